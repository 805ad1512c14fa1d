"""Pinned memory: asynchronous copies to the GPU and back, with every byte compared."""

import time

import proof

SIZE = 512 << 20


def run_proof(p):
    torch = p.torch()
    if not p.cuda:
        raise proof.Absent("pinned memory is for copies to a GPU", "gpu")
    p.begin_step("pin %d MiB" % (SIZE >> 20))
    here = torch.empty(SIZE // 4, dtype=torch.int32, pin_memory=True)
    if not here.is_pinned():
        raise proof.WrongResult("the memory is not pinned")
    torch.arange(SIZE // 4, dtype=torch.int32, out=here)
    there = torch.empty_like(here, device=p.device)
    back = torch.empty_like(here, pin_memory=True)
    p.wait_for_gpu()
    p.begin_step("copy to the GPU")
    returned, to = time_copy(p, torch, there, here)
    p.begin_step("copy back")
    _, fro = time_copy(p, torch, back, there)
    p.begin_step("compare")
    p.check_equal("bytes", back, here)
    # A blocking copy returns only when it is done, as with pageable memory.
    p.record_number("returned_after", returned / to, "most", 0.5)
    p.record_number("to_gpu", SIZE / to, unit="B/s")
    p.record_number("from_gpu", SIZE / fro, unit="B/s")


def time_copy(p, torch, into, out_of):
    """Return the seconds of the call and of the copy, the best of three."""
    times = []
    for _ in range(3):
        begun = time.perf_counter()
        into.copy_(out_of, non_blocking=True)
        returned = time.perf_counter() - begun
        p.wait_for_gpu()
        times.append((time.perf_counter() - begun, returned))
    whole, returned = min(times)
    return returned, whole
