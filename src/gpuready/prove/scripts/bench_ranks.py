"""Bus bandwidth of the collectives over all ranks: NCCL over GPUs, gloo over CPU processes.

    proof.py bench_ranks --device cuda '{"measures": ["all-reduce"], "sizes": [1048576], "repeat": 2}'

Bytes are counted as in nccl-tests, so that the number does not depend on how many ranks there are: it is what the
slowest link carries.
"""

import json
import time

import proof
from bench_clock import BenchClock

BUS_SHARES = {
    "all-reduce": lambda n: 2.0 * (n - 1) / n,
    "all-gather": lambda n: (n - 1.0) / n,
    "reduce-scatter": lambda n: (n - 1.0) / n,
    "broadcast": lambda n: 1.0,
    "send-receive": lambda n: 1.0,
}
"""Bytes that cross the bus per byte of the whole buffer."""


def collective_calls(torch, dist, ranks, rank, whole, part):
    """Return each collective as a call; ``whole`` has one part per rank."""
    ring = ((rank + 1) % ranks, (rank - 1) % ranks)
    back = torch.empty_like(whole)

    def send_and_receive(turn):
        work = [dist.isend(whole, ring[0]), dist.irecv(back, ring[1])]
        [one.wait() for one in work]

    def send_and_receive_batched(turn):
        ops = [dist.P2POp(dist.isend, whole, ring[0]), dist.P2POp(dist.irecv, back, ring[1])]
        [one.wait() for one in dist.batch_isend_irecv(ops)]

    return {
        "all-reduce": lambda turn: dist.all_reduce(whole),
        "all-gather": lambda turn: dist.all_gather_into_tensor(whole, part),
        "reduce-scatter": lambda turn: dist.reduce_scatter_tensor(part, whole),
        "broadcast": lambda turn: dist.broadcast(whole, 0),
        "send-receive": send_and_receive_batched if whole.is_cuda else send_and_receive,
    }


def run_proof(p):
    torch = p.torch()
    options = json.loads(p.arguments[0])
    dist = p.join_group()
    rows = p.record["measures"] = []
    clock = BenchClock(torch, p.device)
    for size in options["sizes"]:
        count = max(size // 4 // p.ranks, 1) * p.ranks
        whole = torch.zeros(count, device=p.device)
        known = collective_calls(torch, dist, p.ranks, p.rank, whole, torch.zeros(count // p.ranks, device=p.device))
        for word in options["measures"]:
            name = word.partition("@")[0]
            p.begin_step(f"{name} of {size} bytes")
            rows.append(_measure_collective(p, dist, clock, name, known[name], count * 4, options))
            p.write()
    p.record_number("measures", len(rows), "least", 1)


def _measure_collective(p, dist, clock, name, call, size, options):
    row = {
        "name": name,
        "device": p.requested_device,
        "verdict": "measured",
        "why": "",
        "passes": [],
        "best": 0.0,
        "spans": [],
    }
    row.update(at=_format_size(size) + f", {p.ranks} ranks", size=size)
    began = time.time()
    try:
        for _ in range(int(options.get("repeat", 2))):
            dist.barrier()
            middle, best = _time_collective(clock, call, int(options.get("turns", 20)))
            row["passes"].append(size * BUS_SHARES[name](p.ranks) / middle)
            row["best"] = max(row["best"], size * BUS_SHARES[name](p.ranks) / best)
    except (RuntimeError, ValueError, NotImplementedError) as error:
        row.update(verdict="unsupported" if _is_unsupported(error) else "failed", why=proof.describe_error(error)[:300])
    row["spans"].append([began, time.time()])
    return row


def _is_unsupported(error):
    text = str(error).lower()
    return isinstance(error, NotImplementedError) or "support" in text or "no backend" in text


def _time_collective(clock, call, turns):
    """Time a fixed number of turns: a rank that stopped early would leave the others waiting."""
    clock.time_turns(call, 3)
    found = sorted(clock.time_turns(call, turns))
    return found[len(found) // 2], found[0]


def _format_size(size):
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"
