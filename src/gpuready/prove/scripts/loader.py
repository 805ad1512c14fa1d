"""A DataLoader with workers: batches come through /dev/shm, and each has the expected contents."""

WORKERS, BATCHES, ITEMS, WIDTH = 2, 12, 8, 1 << 18  # 8 MiB a batch, 32 MiB in flight


def run_proof(p):
    torch = p.torch()

    class NumberedDataset(torch.utils.data.Dataset):
        def __len__(self):
            return BATCHES * ITEMS

        def __getitem__(self, index):
            return torch.full((WIDTH,), index, dtype=torch.int32)

    p.begin_step("start %d workers" % WORKERS)
    wait = max(10.0, p.deadline - 15)
    loader = torch.utils.data.DataLoader(
        NumberedDataset(),
        batch_size=ITEMS,
        num_workers=WORKERS,
        pin_memory=p.cuda,
        timeout=wait,
        multiprocessing_context="fork",
    )
    p.record_note("sharing", torch.multiprocessing.get_sharing_strategy())
    p.begin_step("read %d batches" % BATCHES)
    wrong, shared, count = 0, 0, 0
    for number, batch in enumerate(loader):
        shared += bool(batch.is_shared() or p.cuda)  # pinned batches were copied out of shared memory
        expected = torch.arange(number * ITEMS, (number + 1) * ITEMS, dtype=torch.int32)
        moved = batch.to(p.device, non_blocking=True)
        wrong += int((moved.cpu() != expected[:, None]).sum())
        count += 1
    p.begin_step("compare")
    p.record_number("batches", count, "equal", BATCHES)
    p.record_number("wrong_elements", wrong, "equal", 0)
    p.record_number("batches_shared", shared, "equal", BATCHES)
