"""Time and memory of 552 operations of torch, forward and backward, on a GPU: what kernels outside of products and attention take.

    python benchmarks/operation_times.py FOLDER SECONDS

The record has microseconds of all kernels of a call, and the bytes that it keeps and has at most.
"""

import gzip
import json
import os
import sys
import time

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from operation_cases import C

OUT, LIMIT = sys.argv[1], float(sys.argv[2])
BEGAN = time.time()
REPS = 3


def make(spec):
    kind, shape, t, _last = spec
    if kind in "gx":
        made = torch.randn(shape, device="cuda", dtype=torch.float32).to(t)
        return made.requires_grad_() if kind == "g" else made
    if kind == "i":
        return torch.randint(0, t, shape, device="cuda")
    if kind == "i1":
        return torch.randint(1, t, shape, device="cuda")
    if kind == "cum":
        return torch.linspace(t / shape[0], t, shape[0], device="cuda").to(torch.int32)
    return torch.rand(shape, device="cuda") < 0.3


sync, used, peak, reset = (
    torch.cuda.synchronize,
    torch.cuda.memory_allocated,
    torch.cuda.max_memory_allocated,
    torch.cuda.reset_peak_memory_stats,
)
rows = {}


def one(n, name, specs, fn, back, measure):
    ts = [make(s) for s in specs]
    wants = [q for q in ts if q.requires_grad]

    def run(label, f):
        sync()
        a = used()
        reset()
        if measure:
            t = time.perf_counter()
            out = f()
            host = time.perf_counter() - t
            sync()
            rows[name][label] = {"kept": used() - a, "peak": peak() - a, "host": host}
            return out
        with record_function(f"@{n}:{label}"):
            for _ in range(REPS):
                out = None
                out = f()
            sync()
        return out

    if measure:
        rows[name] = {}
    out = run("fwd", lambda: fn(*ts))
    if back:
        outs = out if isinstance(out, (tuple, list)) else (out,)
        gs = [torch.ones_like(o) for o in outs]
        params = wants
        run("bwd", lambda: torch.autograd.grad(outs, params, gs, retain_graph=True, allow_unused=True))


skip = set()


def play(measure, begin, end):
    for n in range(begin, end):
        if n in skip:
            continue
        name, specs, fn, back = C[n]
        try:
            one(n, name, specs, fn, back, measure)
        except Exception as e:
            rows.setdefault(name, {})["error"] = f"{type(e).__name__}: {e}"[:160]
            skip.add(n)


chunk = 60
for begin in range(0, len(C), chunk):
    if time.time() - BEGAN > LIMIT:
        print("stopped at", begin, "of", len(C), flush=True)
        break
    end = min(begin + chunk, len(C))
    play(True, begin, end)
    play(True, begin, end)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as p:
        play(False, begin, end)
    events = p.events()
    labels, kernels = [], []
    for e in events:
        if e.device_type == DeviceType.CUDA:
            if not e.name.startswith("@"):
                kernels.append((e.time_range.start, e.time_range.elapsed_us(), e.name))
        elif e.name.startswith("@"):
            labels.append((e.time_range.start, e.time_range.end, e.name))
    labels.sort()
    kernels.sort()
    k = 0
    for start, stop, label in labels:
        n, part = label[1:].split(":")
        found = {}
        while k < len(kernels) and kernels[k][0] < start:
            k += 1
        while k < len(kernels) and kernels[k][0] <= stop:
            q = found.setdefault(kernels[k][2][:140], [0, 0.0])
            q[0] += 1
            q[1] += kernels[k][1]
            k += 1
        row = rows[C[int(n)][0]].setdefault(part, {})
        row["us"] = sum(q[1] for q in found.values()) / REPS
        row["kernels"] = {a: (q[0], round(q[1] / REPS, 2)) for a, q in found.items()}
    print(end, round(time.time() - BEGAN, 1), flush=True)
    with gzip.open(f"{OUT}/operation-times.jsonl.gz", "wt") as f:
        for name, row in rows.items():
            f.write(json.dumps({"name": name, **row}) + "\n")
print("errors", {a: r["error"] for a, r in rows.items() if "error" in r}, flush=True)
