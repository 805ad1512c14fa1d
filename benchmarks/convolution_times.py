"""Time and workspaces of cuDNN convolutions, and with cudnn.benchmark what it tries algorithms with.

    python benchmarks/convolution_times.py time|bench|both FILE.gz SECONDS SEED   on a GPU

The record has `time` of seed 12 and `both` of seed 11 (seconds), and `bench` of seeds 1 to 5, five at once (tried, kept: bytes of allocations).
"""

import gzip
import json
import random
import sys
import time
from math import prod

import torch

what, out, seconds, seed = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
CH = (8, 16, 32, 48, 64, 80, 96, 128, 160, 192, 256, 320, 384, 512, 640, 768, 1024)


def pad(k, d=1):
    return (k * d - d) // 2


def draw(r):
    kind = r.choice(
        (
            "sound",
            "sound",
            "dilated",
            "sound_t",
            "sound_g",
            "sound_dw",
            "period",
            "wav",
            "three",
            "three",
            "three_s2",
            "point",
            "point_s2",
            "wide",
            "stem",
            "trans",
            "trans",
            "grouped",
            "dw",
            "patch",
            "three_d",
            "rect",
        )
    )
    c = r.choice(CH)
    k_out = r.choice((c, c, r.choice(CH)))
    g = 1
    st = [1]
    dil = [1]
    transposed = False
    n = r.choice((1, 2, 4, 8, 16, 32, 64))
    L = r.choice((256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536))
    if kind == "sound":
        ks, sp = [r.choice((1, 3, 5, 7, 11, 15))], [L]
        st = [r.choice((1, 1, 1, 2))]
        p = [pad(ks[0])]
    elif kind == "dilated":
        ks, sp = [r.choice((3, 7, 11))], [L]
        dil = [r.choice((1, 3, 5, 9, 27))]
        p = [pad(ks[0], dil[0])]
    elif kind == "sound_t":
        u = r.choice((2, 4, 5, 8))
        ks, sp, st, p = [2 * u], [min(L, 16384)], [u], [u // 2]
        transposed = True
        k_out = max(8, c // 2)
    elif kind == "sound_g":
        g = r.choice((4, 16))
        c = max(c, 64)
        c -= c % 16
        k_out = r.choice((c, 2 * c))
        ks, sp, st, p = [41], [min(L, 16384)], [r.choice((1, 2, 4))], [20]
    elif kind == "sound_dw":
        g = k_out = c
        ks, sp, p = [r.choice((7, 15, 31))], [min(L, 8192)], None
        p = [pad(ks[0])]
    elif kind == "wav":
        c = 1
        k_out = r.choice((16, 32, 64, 128, 512))
        ks, sp, st = [r.choice((7, 10, 15, 251))], [max(L, 8192)], [r.choice((1, 5, 10))]
        p = [pad(ks[0])]
    else:
        S = r.choice((4, 7, 8, 14, 16, 28, 32, 56, 64, 96, 112, 128, 224, 256))
        sp = [S, r.choice((S, S, S, 2 * S))]
        st, dil, n = [1, 1], [1, 1], r.choice((1, 2, 4, 8, 16, 32, 64, 128, 256))
        if kind == "period":
            sp = [r.choice((81, 243, 512, 1365, 4096)), r.choice((2, 3, 5, 7, 11))]
            ks, st, p = [5, 1], [r.choice((1, 3)), 1], [2, 0]
            n = r.choice((8, 16, 32))
        elif kind == "three":
            ks, p = [3, 3], [1, 1]
        elif kind == "three_s2":
            ks, p, st = [3, 3], [1, 1], [2, 2]
        elif kind == "point":
            ks, p = [1, 1], [0, 0]
        elif kind == "point_s2":
            ks, p, st = [1, 1], [0, 0], [2, 2]
        elif kind == "wide":
            k = r.choice((5, 7))
            ks, p, st = [k, k], [k // 2] * 2, [r.choice((1, 1, 2))] * 2
        elif kind == "stem":
            c = r.choice((1, 3, 3, 4))
            k = r.choice((3, 4, 5, 7))
            ks, p, st = [k, k], [k // 2] * 2, [r.choice((1, 2))] * 2
            sp = [r.choice((32, 64, 96, 128, 224, 256))] * 2
        elif kind == "trans":
            transposed = True
            k = r.choice((2, 4, 4))
            ks, st, p = [k, k], [2, 2], [k // 2 - 1] * 2
            k_out = r.choice((max(8, c // 2), 3))
            sp = [min(s, 128) for s in sp]
        elif kind == "grouped":
            g = r.choice((2, 8, 32))
            c = max(c, 128)
            c -= c % 32
            k_out = c
            ks, p, st = [3, 3], [1, 1], [r.choice((1, 2))] * 2
        elif kind == "dw":
            g = k_out = c
            k = r.choice((3, 5, 7))
            ks, p, st = [k, k], [k // 2] * 2, [r.choice((1, 1, 2))] * 2
        elif kind == "patch":
            c = 3
            k = r.choice((4, 8, 14, 16))
            ks, st, p = [k, k], [k, k], [0, 0]
            sp = [k * r.choice((8, 14, 16, 28))] * 2
        elif kind == "three_d":
            ks, p = [3, 3, 3], [1, 1, 1]
            st = dil = [1, 1, 1]
            sp = [r.choice((4, 8, 16, 32))] * 3
            n = r.choice((1, 2, 4))
        elif kind == "rect":
            a = r.choice(([1, 5], [5, 1], [1, 7], [7, 1], [1, 3]))
            ks, p = a, [x // 2 for x in a]
    w = [c, k_out // g, *ks] if transposed else [k_out, c // g, *ks]
    if len(st) < len(sp):
        st, dil = st * len(sp), dil * len(sp)
    return {
        "kind": kind,
        "dtype": r.choice(("float32", "float32", "float16", "bfloat16")),
        "x": [n, c, *sp],
        "weight": w,
        "stride": st,
        "padding": p,
        "dilation": dil,
        "groups": g,
        "transposed": transposed,
        "last": len(sp) == 2 and r.random() < 0.15,
    }


def result(o):
    s = []
    for side, k, st, p, d in zip(o["x"][2:], o["weight"][2:], o["stride"], o["padding"], o["dilation"], strict=False):
        reach = d * (k - 1) + 1
        s.append((side - 1) * st - 2 * p + reach if o["transposed"] else (side + 2 * p - reach) // st + 1)
    return [o["x"][0], o["weight"][1] * o["groups"] if o["transposed"] else o["weight"][0], *s]


MASKS = (None, [True, False, False], [False, True, False])


def operands(o):
    lay = torch.channels_last if o["last"] else torch.contiguous_format
    return [
        torch.randn(s, dtype=getattr(torch, o["dtype"]), device="cuda").to(memory_format=lay)
        for s in (o["x"], o["weight"], result(o))
    ]


def caller(o, mask, x, w, g):
    z = [0] * len(o["stride"])
    a = (o["stride"], o["padding"], o["dilation"], o["transposed"], z, o["groups"])
    if mask is None:
        return lambda: torch.ops.aten.convolution(x, w, None, *a)
    return lambda: torch.ops.aten.convolution_backward(g, x, w, None, *a, mask)


def births(f):
    torch.cuda.memory._record_memory_history(enabled=None)
    torch.cuda.memory._record_memory_history(enabled="all", context=None)
    made = f()
    got = [e["size"] for e in torch.cuda.memory._snapshot()["device_traces"][0] if e["action"] == "alloc"]
    torch.cuda.memory._record_memory_history(enabled=None)
    del made
    return got


def seconds_of(f):
    for _ in range(3):
        f()
    a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    reps = 4
    while True:
        a.record()
        for _ in range(reps):
            f()
        b.record()
        b.synchronize()
        t = a.elapsed_time(b)
        if t > 4 or reps >= 512:
            return t / reps * 1e-3
        reps = min(512, max(reps * 2, int(reps * 6 / max(t, 0.01))))


r, end, n = random.Random(seed), time.monotonic() + seconds, 0
limit = 40e6 if what != "time" else 70e6
with gzip.open(out, "wt") as file:
    while time.monotonic() < end:
        o = draw(r)
        try:
            sizes = result(o)
        except Exception:
            continue
        if (
            min(sizes) < 1
            or max(prod(o["x"]), prod(sizes), prod(o["weight"])) > limit
            or prod(sizes) * prod(o["weight"][1:]) > 4e11
        ):
            continue
        if what != "time" and max(prod(o["x"]), prod(sizes)) < 2e5:
            continue
        try:
            x, w, g = operands(o)
            o["bytes"] = [t.numel() * t.element_size() for t in (g, x, w)]
            for bench in (False,) if what == "time" else (True,) if what == "bench" else (False, True):
                torch.backends.cudnn.benchmark = bench
                for mask in MASKS:
                    f = caller(o, mask, x, w, g)
                    if bench:
                        o.setdefault("tried", []).append(births(f))
                    o.setdefault("kept" if bench else "plain", []).append(births(f))
                    if what != "bench":
                        o.setdefault("best" if bench else "seconds", []).append(seconds_of(f))
        except Exception as e:
            o["error"] = str(e)[:120]
            torch.cuda.empty_cache()
        o["free"] = torch.cuda.mem_get_info()[0]
        file.write(json.dumps(o) + "\n")
        n += 1
        del x, w, g
        if n % 20 == 0:
            torch.cuda.empty_cache()
print(what, seed, n, "convolutions")
