"""Runs in the target environment: one of two ranks that all-reduce together, check the numbers and measure.

python pair.py RANK ADDRESS PORT BACKEND SECONDS BYTES DEVICE      writes "@ready SECONDS", then one line of JSON
"""

import json
import os
import sys
import time
from datetime import timedelta

ROUNDS = 5


BEGAN = time.monotonic()


def print_result(fields):
    fields["ended"] = round(time.monotonic() - BEGAN, 3)
    sys.stdout.write("\n@pair " + json.dumps(fields) + "\n")
    sys.stdout.flush()


def find_wrong_numbers(torch, dist, rank, device):
    """All-reduce and broadcast known numbers; return the first error, or an empty string."""
    count = 1 << 16
    value = (torch.arange(count, dtype=torch.float32, device=device) % 1021) * (rank + 1)
    dist.all_reduce(value)
    wanted = (torch.arange(count, dtype=torch.float32, device=device) % 1021) * 3
    wrong = int((value != wanted).sum().item())
    if wrong:
        return "%d of %d numbers are wrong after the all-reduce" % (wrong, count)
    whole = torch.full((1024,), rank + 7, dtype=torch.int64, device=device)
    dist.broadcast(whole, 1)
    wrong = int((whole != 8).sum().item())
    return "%d of 1024 numbers are wrong after the broadcast" % wrong if wrong else ""


def measure_allreduce(torch, dist, size, device):
    """Bytes a second of an all-reduce of two ranks: the best of a few rounds."""
    value = torch.ones(size // 4, dtype=torch.float32, device=device)
    best = 0.0
    for _ in range(ROUNDS):
        began = time.perf_counter()
        dist.all_reduce(value)
        if device.type == "cuda":
            torch.cuda.synchronize()
        best = max(best, size / (time.perf_counter() - began))
        value.fill_(1.0)
    return best


def join_process_group(torch, dist, rank, address, port, backend, seconds):
    """Join the process group over rank 0's store. A taken port is reported as such: no node is at fault."""
    limit = timedelta(seconds=seconds)
    try:
        store = dist.TCPStore(address, port, 2, rank == 0, limit)
    except Exception as error:
        text = str(error)
        taken = rank == 0 and ("EADDRINUSE" in text or "in use" in text)
        return None, "port in use" if taken else text
    try:
        dist.init_process_group(backend, store=store, rank=rank, world_size=2, timeout=limit)
    except Exception as error:
        return None, str(error)
    return store, ""


def main(argv):
    rank, address, port, backend = int(argv[0]), argv[1], int(argv[2]), argv[3]
    seconds, size, device = float(argv[4]), int(argv[5]), argv[6]
    try:
        import torch
        import torch.distributed as dist
    except Exception as error:
        return print_result({"outcome": "absent", "why": "torch cannot be imported: %s" % str(error)[:200]})
    place = torch.device(device)
    if backend == "nccl":
        try:
            torch.cuda.set_device(place)
        except Exception as error:
            return print_result({"outcome": "failed", "why": first_line(str(error))})
    ready = time.monotonic() - BEGAN
    sys.stdout.write("\n@ready %.3f\n" % ready)
    sys.stdout.flush()
    _, why = join_process_group(torch, dist, rank, address, port, backend, max(seconds - ready, 2.0))
    if why:
        outcome = "unclear" if why == "port in use" else "failed"
        return print_result({"outcome": outcome, "why": first_line(why), "ready": round(ready, 3)})
    try:
        met, rate = time.monotonic(), 0.0
        why = find_wrong_numbers(torch, dist, rank, place)
        if not why:
            rate = measure_allreduce(torch, dist, size, place)
        took = time.monotonic() - met
    except Exception as error:
        return print_result({"outcome": "failed", "why": first_line(str(error)), "ready": round(ready, 3)})
    print_result({"outcome": "failed" if why else "passed", "why": why, "rate": rate,
         "seconds": round(took, 4), "ready": round(ready, 3)})  # fmt: skip


def first_line(text):
    return (text.strip().splitlines() or ["no word of why"])[0][:200]


if __name__ == "__main__":
    sys.path.pop(0)
    main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)  # destroying a group whose peer is gone may hang
