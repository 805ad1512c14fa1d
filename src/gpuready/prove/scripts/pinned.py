"""Pinned memory: asynchronous copies to the GPU and back, with every byte compared."""

from __future__ import annotations

import time

import proof

SIZE = 512 << 20


def act(p):
    torch = p.torch()
    if not p.cuda:
        raise proof.Absent("pinned memory is for copies to a GPU")
    p.step("pin %d MiB" % (SIZE >> 20))
    here = torch.empty(SIZE // 4, dtype=torch.int32, pin_memory=True)
    if not here.is_pinned():
        raise proof.Wrong("the memory is not pinned")
    torch.arange(SIZE // 4, dtype=torch.int32, out=here)
    there = torch.empty_like(here, device=p.device)
    back = torch.empty_like(here, pin_memory=True)
    p.wait()
    p.step("copy to the GPU")
    returned, to = timed(p, torch, there, here)
    p.step("copy back")
    _, fro = timed(p, torch, back, there)
    p.step("compare")
    p.same("bytes", back, here)
    # A blocking copy returns only when it is done, as with pageable memory.
    p.number("returned_after", returned / to, "most", 0.5)
    p.number("to_gpu", SIZE / to, unit="B/s")
    p.number("from_gpu", SIZE / fro, unit="B/s")


def timed(p, torch, into, out_of):
    """Return the seconds of the call and of the copy, the best of three."""
    times = []
    for _ in range(3):
        begun = time.perf_counter()
        into.copy_(out_of, non_blocking=True)
        returned = time.perf_counter() - begun
        p.wait()
        times.append((time.perf_counter() - begun, returned))
    whole, returned = min(times)
    return returned, whole


if __name__ == "__main__":
    proof.main(act)
