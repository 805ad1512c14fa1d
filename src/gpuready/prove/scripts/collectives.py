"""Collectives over all ranks (NCCL on GPUs, gloo on the CPU), every result compared with the expected one.

The numbers are small integers, so that sums are exact in every precision and order.
"""

COUNT = 1 << 18


def run_proof(p):
    dist = p.join_group()
    torch = p.torch()
    p.record_note("ranks", p.ranks)
    for dtype in (torch.float32, torch.float16 if p.cuda else torch.float64):
        check_all_reduce(p, torch, dist, dtype)
        check_all_gather(p, torch, dist, dtype)
        check_reduce_scatter(p, torch, dist, dtype)
        check_broadcast(p, torch, dist, dtype)
        if p.ranks > 1:
            check_send_receive(p, torch, dist, dtype)
    p.begin_step("barrier")
    dist.barrier()
    p.wait_for_gpu()


def rank_values(p, torch, dtype, rank, count=COUNT):
    """Return a rank's values: known to all ranks, different for each rank and place."""
    at = torch.arange(count, device=p.device) % 13
    return (at + rank + 1).to(dtype)


def result_name(what, dtype):
    return "%s_%s" % (what, str(dtype).rpartition(".")[2])


def check_all_reduce(p, torch, dist, dtype):
    p.begin_step("all-reduce")
    got = rank_values(p, torch, dtype, p.rank)
    dist.all_reduce(got)
    p.wait_for_gpu()
    p.check_equal(result_name("all_reduce", dtype), got, sum(rank_values(p, torch, dtype, r) for r in range(p.ranks)))


def check_all_gather(p, torch, dist, dtype):
    p.begin_step("all-gather")
    got = [torch.zeros(COUNT, dtype=dtype, device=p.device) for _ in range(p.ranks)]
    dist.all_gather(got, rank_values(p, torch, dtype, p.rank))
    p.wait_for_gpu()
    p.check_equal(
        result_name("all_gather", dtype),
        torch.stack(got),
        torch.stack([rank_values(p, torch, dtype, r) for r in range(p.ranks)]),
    )


def check_reduce_scatter(p, torch, dist, dtype):
    p.begin_step("reduce-scatter")
    whole = COUNT * p.ranks
    got = torch.zeros(COUNT, dtype=dtype, device=p.device)
    try:
        dist.reduce_scatter_tensor(got, rank_values(p, torch, dtype, p.rank, whole))
    except (RuntimeError, ValueError) as refused:
        if p.cuda or "support" not in str(refused):
            raise
        p.record_note("reduce_scatter", "gloo of this torch has none")
        return
    p.wait_for_gpu()
    total = sum(rank_values(p, torch, dtype, r, whole) for r in range(p.ranks))
    p.check_equal(result_name("reduce_scatter", dtype), got, total[p.rank * COUNT : (p.rank + 1) * COUNT])


def check_broadcast(p, torch, dist, dtype):
    p.begin_step("broadcast")
    last = p.ranks - 1
    got = rank_values(p, torch, dtype, p.rank)
    dist.broadcast(got, src=last)
    p.wait_for_gpu()
    p.check_equal(result_name("broadcast", dtype), got, rank_values(p, torch, dtype, last))


def check_send_receive(p, torch, dist, dtype):
    """Send to the next rank and receive from the previous one, around the ring."""
    p.begin_step("send and receive")
    after, before = (p.rank + 1) % p.ranks, (p.rank - 1) % p.ranks
    got = torch.zeros(COUNT, dtype=dtype, device=p.device)
    ops = [dist.P2POp(dist.isend, rank_values(p, torch, dtype, p.rank), after), dist.P2POp(dist.irecv, got, before)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    p.wait_for_gpu()
    p.check_equal(result_name("send_recv", dtype), got, rank_values(p, torch, dtype, before))
