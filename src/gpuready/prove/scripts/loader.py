"""A DataLoader with workers: batches come through /dev/shm, and each has the expected contents."""

from __future__ import annotations

import proof

WORKERS, BATCHES, ITEMS, WIDTH = 2, 12, 8, 1 << 18  # 8 MiB a batch, 32 MiB in flight


def act(p):
    torch = p.torch()

    class Numbered(torch.utils.data.Dataset):
        def __len__(self):
            return BATCHES * ITEMS

        def __getitem__(self, index):
            return torch.full((WIDTH,), index, dtype=torch.int32)

    p.step("start %d workers" % WORKERS)
    wait = max(10.0, p.deadline - 15)
    loader = torch.utils.data.DataLoader(
        Numbered(),
        batch_size=ITEMS,
        num_workers=WORKERS,
        pin_memory=p.cuda,
        timeout=wait,
        multiprocessing_context="fork",
    )
    p.note("sharing", torch.multiprocessing.get_sharing_strategy())
    p.step("read %d batches" % BATCHES)
    wrong, shared, count = 0, 0, 0
    for number, batch in enumerate(loader):
        shared += bool(batch.is_shared() or p.cuda)  # pinned batches were copied out of shared memory
        expected = torch.arange(number * ITEMS, (number + 1) * ITEMS, dtype=torch.int32)
        moved = batch.to(p.device, non_blocking=True)
        wrong += int((moved.cpu() != expected[:, None]).sum())
        count += 1
    p.step("compare")
    p.number("batches", count, "equal", BATCHES)
    p.number("wrong_elements", wrong, "equal", 0)
    p.number("batches_shared", shared, "equal", BATCHES)


if __name__ == "__main__":
    proof.main(act)
