"""Collectives over all ranks (NCCL on GPUs, gloo on the CPU), every result compared with the expected one.

The numbers are small integers, so that sums are exact in every precision and order.
"""

COUNT = 1 << 18


def run_proof(p):
    dist = p.join_group()
    torch = p.torch()
    p.record_note("ranks", p.ranks)
    for dtype in (torch.float32, torch.float16 if p.cuda else torch.float64):
        check_whole_buffers(p, torch, dist, dtype)
        check_reduce_scatter(p, torch, dist, dtype)
        if p.ranks > 1:
            check_send_receive(p, torch, dist, dtype)
    p.begin_step("barrier")
    dist.barrier()
    p.wait_for_gpu()


def rank_values(p, torch, dtype, rank, count=COUNT):
    """Return a rank's values: known to all ranks, different for each rank and place."""
    at = torch.arange(count, device=p.device) % 13
    return (at + rank + 1).to(dtype)


def check_result(p, what, got, expected):
    p.wait_for_gpu()
    p.check_equal("%s_%s" % (what, str(expected.dtype).rpartition(".")[2]), got, expected)


def check_whole_buffers(p, torch, dist, dtype):
    every = [rank_values(p, torch, dtype, rank) for rank in range(p.ranks)]
    p.begin_step("all-reduce")
    got = every[p.rank].clone()
    dist.all_reduce(got)
    check_result(p, "all_reduce", got, sum(every))
    p.begin_step("all-gather")
    gathered = [torch.zeros_like(got) for _ in every]
    dist.all_gather(gathered, every[p.rank])
    check_result(p, "all_gather", torch.stack(gathered), torch.stack(every))
    p.begin_step("broadcast")
    got = every[p.rank].clone()
    dist.broadcast(got, src=p.ranks - 1)
    check_result(p, "broadcast", got, every[-1])


def check_reduce_scatter(p, torch, dist, dtype):
    p.begin_step("reduce-scatter")
    every = [rank_values(p, torch, dtype, rank, COUNT * p.ranks) for rank in range(p.ranks)]
    got = torch.zeros(COUNT, dtype=dtype, device=p.device)
    try:
        dist.reduce_scatter_tensor(got, every[p.rank])
    except (RuntimeError, ValueError) as refused:
        if p.cuda or "support" not in str(refused):
            raise
        p.record_note("reduce_scatter", "gloo of this torch has none")
        return
    check_result(p, "reduce_scatter", got, sum(every)[p.rank * COUNT : (p.rank + 1) * COUNT])


def check_send_receive(p, torch, dist, dtype):
    """Send to the next rank and receive from the previous one, around the ring."""
    p.begin_step("send and receive")
    after, before = (p.rank + 1) % p.ranks, (p.rank - 1) % p.ranks
    got = torch.zeros(COUNT, dtype=dtype, device=p.device)
    ops = [dist.P2POp(dist.isend, rank_values(p, torch, dtype, p.rank), after), dist.P2POp(dist.irecv, got, before)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    check_result(p, "send_recv", got, rank_values(p, torch, dtype, before))
