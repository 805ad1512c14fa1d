"""Collectives over all ranks (NCCL on GPUs, gloo on the CPU), every result compared with the expected one.

The numbers are small integers, so that sums are exact in every precision and order.
"""

from __future__ import annotations

import proof

COUNT = 1 << 18


def act(p):
    dist = p.group()
    torch = p.torch()
    p.note("ranks", p.ranks)
    for dtype in (torch.float32, torch.float16 if p.cuda else torch.float64):
        reduced(p, torch, dist, dtype)
        gathered(p, torch, dist, dtype)
        scattered(p, torch, dist, dtype)
        told(p, torch, dist, dtype)
        if p.ranks > 1:
            sent(p, torch, dist, dtype)
    p.step("barrier")
    dist.barrier()
    p.wait()


def mine(p, torch, dtype, rank, count=COUNT):
    """Return a rank's values: known to all ranks, different for each rank and place."""
    at = torch.arange(count, device=p.device) % 13
    return (at + rank + 1).to(dtype)


def named(what, dtype):
    return "%s_%s" % (what, str(dtype).rpartition(".")[2])


def reduced(p, torch, dist, dtype):
    p.step("all-reduce")
    got = mine(p, torch, dtype, p.rank)
    dist.all_reduce(got)
    p.wait()
    p.same(named("all_reduce", dtype), got, sum(mine(p, torch, dtype, r) for r in range(p.ranks)))


def gathered(p, torch, dist, dtype):
    p.step("all-gather")
    got = [torch.zeros(COUNT, dtype=dtype, device=p.device) for _ in range(p.ranks)]
    dist.all_gather(got, mine(p, torch, dtype, p.rank))
    p.wait()
    p.same(
        named("all_gather", dtype),
        torch.stack(got),
        torch.stack([mine(p, torch, dtype, r) for r in range(p.ranks)]),
    )


def scattered(p, torch, dist, dtype):
    p.step("reduce-scatter")
    whole = COUNT * p.ranks
    got = torch.zeros(COUNT, dtype=dtype, device=p.device)
    try:
        dist.reduce_scatter_tensor(got, mine(p, torch, dtype, p.rank, whole))
    except (RuntimeError, ValueError) as refused:
        if p.cuda or "support" not in str(refused):
            raise
        p.note("reduce_scatter", "gloo of this torch has none")
        return
    p.wait()
    total = sum(mine(p, torch, dtype, r, whole) for r in range(p.ranks))
    p.same(named("reduce_scatter", dtype), got, total[p.rank * COUNT : (p.rank + 1) * COUNT])


def told(p, torch, dist, dtype):
    p.step("broadcast")
    last = p.ranks - 1
    got = mine(p, torch, dtype, p.rank)
    dist.broadcast(got, src=last)
    p.wait()
    p.same(named("broadcast", dtype), got, mine(p, torch, dtype, last))


def sent(p, torch, dist, dtype):
    """Send to the next rank and receive from the previous one, around the ring."""
    p.step("send and receive")
    after, before = (p.rank + 1) % p.ranks, (p.rank - 1) % p.ranks
    got = torch.zeros(COUNT, dtype=dtype, device=p.device)
    ops = [
        dist.P2POp(dist.isend, mine(p, torch, dtype, p.rank), after),
        dist.P2POp(dist.irecv, got, before),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    p.wait()
    p.same(named("send_recv", dtype), got, mine(p, torch, dtype, before))


if __name__ == "__main__":
    proof.main(act)
