"""Our extensions on a GPU: the build beside torch's own, the cached load, and AdamW beside the copy bandwidth and torch's.

    PYTHONPATH=src python benchmarks/extension_h200.py -o benchmarks/results/extension-h200.json [--quick] [--tune]

To be run in an interpreter with a CUDA torch, with nvcc. Everything that is compared is measured in this one call:

- the first build of the AdamW kernel, and `torch.utils.cpp_extension.load_inline` of the same kernel (its launcher takes
  torch tensors, so torch/extension.h is compiled, as everybody's extension does), each from an empty cache;
- the load from the cache in a fresh process, after torch and its CUDA context are there;
- bytes per second of a step of AdamW (each element's parameter, gradient and states read once, parameter and states written
  once), of a device-to-device copy (read and written), of torch's foreach and fused AdamW, interleaved; medians by CUDA events;
- the error against float64.

--tune also builds variants of the kernel (threads, unroll, passes, cache hints) and measures each.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from gpuready import CPUAdam, FusedAdamW, extensions  # noqa: E402
from gpuready.extensions import adamw_kernels, loader  # noqa: E402

BYTES = {torch.float32: 4, torch.bfloat16: 2, torch.float16: 2}
WRAPPER = """
#include <torch/extension.h>
void adamw_step(std::vector<torch::Tensor> p, std::vector<torch::Tensor> g, std::vector<torch::Tensor> m,
          std::vector<torch::Tensor> v, std::vector<double> settings, int64_t stream) {
  std::vector<void *> a[4];
  std::vector<int64_t> n;
  for (size_t i = 0; i < p.size(); ++i) {
    a[0].push_back(p[i].data_ptr()); a[1].push_back(g[i].data_ptr());
    a[2].push_back(m[i].data_ptr()); a[3].push_back(v[i].data_ptr());
    n.push_back(p[i].numel());
  }
  gpuready_adamw_cuda(n.size(), a[0].data(), (const void *const *)a[1].data(), a[2].data(), a[3].data(), n.data(), 0, 0, 0,
                    settings.data(), p[0].device().index(), (void *)stream);
}
"""
CACHED = """
import json, os, sys, time
sys.path.insert(0, sys.argv[1])
import torch
torch.ones(1, device="cuda"); torch.cuda.synchronize()
begun = time.perf_counter()
from gpuready import extensions
kernel = extensions.load_adamw("cuda", torch)
print(json.dumps([time.perf_counter() - begun, kernel.loaded.how]))
"""


# -- builds -------------------------------------------------------------------------------------------


def builds() -> dict[str, Any]:
    """Seconds from nothing to a loaded kernel: ours, and torch's load_inline of the same source."""
    capability = "{}.{}".format(*torch.cuda.get_device_capability())
    os.environ["TORCH_CUDA_ARCH_LIST"] = capability  # the same single target for both
    with tempfile.TemporaryDirectory() as empty:
        os.environ["GPUREADY_EXTENSIONS_DIR"] = f"{empty}/ours"
        begun = time.perf_counter()
        kernel = extensions.load_adamw("cuda", torch)
        mine = time.perf_counter() - begun
        assert kernel.loaded.how == "built"
        cached = [cached_load() for _ in range(5)]
        theirs = inline(f"{empty}/theirs")
    return {
        "arch": capability,
        "targets": list(kernel.loaded.entry.targets),
        "ours_first_build_s": mine,
        "load_inline_first_build_s": theirs,
        "ratio": mine / theirs if theirs else None,
        "cached_load_after_torch_s": statistics.median(cached),
        "cached_load_after_torch_all_s": cached,
    }


def cached_load() -> float:
    result = subprocess.run(
        [sys.executable, "-c", CACHED, str(ROOT / "src")], capture_output=True, text=True, check=True
    )
    seconds, how = json.loads(result.stdout.splitlines()[-1])
    assert how == "cached", how
    return float(seconds)


def inline(folder: str) -> float | None:
    from torch.utils.cpp_extension import load_inline

    os.makedirs(folder)
    source = Path(adamw_kernels.SOURCES_FOLDER, "adamw.cu").read_text()
    begun = time.perf_counter()
    four = ", ".join(["std::vector<torch::Tensor>"] * 4)
    try:
        load_inline(
            "adamw_inline",
            cpp_sources=f"#include <vector>\nvoid adamw_step({four}, std::vector<double>, int64_t);",
            cuda_sources=source + WRAPPER,
            functions=["adamw_step"],
            extra_include_paths=[adamw_kernels.SOURCES_FOLDER],
            build_directory=folder,
        )
    except Exception as error:
        print("load_inline failed:", str(error)[-1500:])
        return None
    return time.perf_counter() - begun


# -- rates --------------------------------------------------------------------------------------------


def llama(layers: int, hidden: int, inner: int, words: int) -> list[tuple[int, ...]]:
    """The tensors of a Llama, in their order."""
    shapes: list[tuple[int, ...]] = [(words, hidden)]
    for _ in range(layers):
        shapes += [(hidden, hidden)] * 4 + [(inner, hidden)] * 2 + [(hidden, inner), (hidden,), (hidden,)]
    return [*shapes, (hidden,), (words, hidden)]


def cases(quick: bool) -> dict[str, tuple[list[tuple[int, ...]], Any, Any]]:
    """Shapes, the type of parameters and gradients, the type of the states."""
    one, half = llama(16, 2048, 5632, 32000), torch.bfloat16
    found = {
        "one tensor, 1e8, fp32": ([(100_000_000,)], torch.float32, None),
        "llama 1B (146 tensors), fp32": (one, torch.float32, None),
        "llama 1B, bf16, fp32 states": (one, half, torch.float32),
        "llama 1B, bf16 throughout": (one, half, None),
    }
    if not quick:
        found["one tensor, 1e9, fp32"] = ([(1_000_000_000,)], torch.float32, None)
        found["10,000 tensors of 1e4, fp32"] = ([(10_000,)] * 10_000, torch.float32, None)
        found["llama 1B, fp16 throughout"] = (one, torch.float16, None)
    return found


def timed(do: Any, rounds: int, least: float = 0.02) -> list[float]:
    """Seconds of one call, by events around as many calls as take ``least`` seconds: what Python does between them is hidden."""
    calls, times = 1, []
    for at in range(-2, rounds):  # two to warm up, and to learn how many calls are enough
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(calls):
            do()
        end.record()
        end.synchronize()
        each = begin.elapsed_time(end) / 1e3 / calls
        if at < 0:
            calls = max(1, round(least / each))
        else:
            times.append(each)
    return times


def copy_rate(size: int, rounds: int) -> list[float]:
    """Bytes read and written a second by a copy on the device."""
    a = torch.empty(size // 4, device="cuda")
    b = torch.empty_like(a)
    return [2 * a.numel() * 4 / one for one in timed(lambda: b.copy_(a), rounds)]


def adam_rates(shapes: Any, kind: Any, states: Any, rounds: int) -> dict[str, Any]:
    """Ours, torch's fused and foreach, in turn, over tensors of the same shapes."""
    parameters = [torch.randn(shape, device="cuda").to(kind).requires_grad_() for shape in shapes]
    for one in parameters:
        one.grad = torch.randn_like(one)
    count = sum(one.numel() for one in parameters)
    makers = {"ours": lambda: FusedAdamW(parameters, state_dtype=states)}
    if states is None:
        makers["torch fused"] = lambda: torch.optim.AdamW(parameters, fused=True)
        makers["torch foreach"] = lambda: torch.optim.AdamW(parameters, foreach=True)
    found: dict[str, Any] = {"tensors": len(shapes), "numbers": count, "bytes": count * traffic(kind, states)}
    for name, make in makers.items():
        optimizer = make()
        rate = found["bytes"] / statistics.median(timed(optimizer.step, rounds))
        found[name] = {"bytes_per_s": rate}
        if name == "ours":
            found["copy_bytes_per_s"] = statistics.median(copy_rate(min(found["bytes"] // 2, 8 << 30), rounds))
            found["of_copy"] = rate / found["copy_bytes_per_s"]
        del optimizer
        torch.cuda.empty_cache()
    return found


def traffic(kind: Any, states: Any) -> int:
    """Bytes that one number of a step has to move: parameter, gradient and two states in, all but the gradient out."""
    own, kept = BYTES[kind], BYTES[states or kind]
    return 3 * own + 4 * kept


# -- the kernel alone ---------------------------------------------------------------------------------


def tune(count: int, rounds: int) -> list[dict[str, Any]]:
    """Variants of the kernel on one large tensor in fp32: what the defaults in adamw.cu are chosen from."""
    p, g, m, v = (torch.rand(count, device="cuda") for _ in range(4))
    rows = adamw_kernels.AdamWTensors(*([one.data_ptr()] for one in (p, g, m, v)), [count], ("float32",) * 3)
    stream = torch.cuda.current_stream().cuda_stream
    found = []
    for threads in (256, 512, 1024):
        for unroll in (1, 2, 4):
            for passes in (1, 4, 16):
                for hint in (0, 1):
                    flags = [f"-DGPUREADY_{k}={x}" for k, x in
                             (("THREADS", threads), ("UNROLL", unroll), ("PASSES", passes), ("STREAM", hint))]  # fmt: skip
                    name = f"tune_{threads}_{unroll}_{passes}_{hint}"
                    variant = adamw_kernels.ADAMW_CUDA.replace(name=name, cuda_flags=tuple(flags))
                    kernel = adamw_kernels.AdamWKernel(loader.load_extension(variant, torch, prebuilt=False), "cuda")
                    step = adamw_kernels.AdamWSettings(1e-3)
                    times = timed(lambda k=kernel, s=step: k.step(rows, s, 0, stream), rounds)
                    found.append({"variant": name, "bytes_per_s": 28 * count / statistics.median(times)})
                    print(f"  {name:24} {found[-1]['bytes_per_s'] / 1e12:.3f} TB/s", flush=True)
    return sorted(found, key=lambda row: -row["bytes_per_s"])


def errors() -> dict[str, float]:
    """After ten steps, the largest error against float64 that starts each step where ours starts, of the largest number."""
    found = {}
    for kind, states in ((torch.float32, None), (torch.bfloat16, torch.float32), (torch.float16, torch.float32)):
        for maker, device in ((FusedAdamW, "cuda"), (CPUAdam, "cpu")):
            torch.manual_seed(7)
            mine = torch.randn(1_000_003, device=device).to(kind).requires_grad_()
            reference = mine.detach().double().requires_grad_()
            a = maker([mine], lr=1e-2, state_dtype=states)
            b = torch.optim.AdamW([reference], lr=1e-2)
            worst = 0.0
            for _ in range(10):
                reference.data.copy_(mine.detach())
                mine.grad = torch.randn_like(mine)
                reference.grad = mine.grad.double()
                a.step()
                b.step()
                gap = (mine.detach().double() - reference.detach()).abs().max() / reference.detach().abs().max()
                worst = max(worst, float(gap))
            found[f"{device} {str(kind).removeprefix('torch.')}"] = worst
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--quick", action="store_true", help="fewer sizes, fewer rounds")
    parser.add_argument("--tune", action="store_true", help="variants of the kernel, too")
    args = parser.parse_args()
    rounds = 10 if args.quick else 30
    found: dict[str, Any] = {
        "date": date.today().isoformat(),
        "command": " ".join(["python", "benchmarks/extension_h200.py", *sys.argv[1:]]),
        "hardware": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "processors": len(os.sched_getaffinity(0)),
    }
    written = Path(args.output)

    def keep() -> None:
        written.write_text(json.dumps(found, indent=1) + "\n")

    found["build"] = builds()
    print(json.dumps(found["build"], indent=1), flush=True)
    keep()
    folder = tempfile.mkdtemp()
    os.environ["GPUREADY_EXTENSIONS_DIR"] = f"{folder}/cache"
    found["errors"] = errors()
    print(json.dumps(found["errors"], indent=1), flush=True)
    found["adamw"] = {}
    for name, (shapes, kind, states) in cases(args.quick).items():
        found["adamw"][name] = row = adam_rates(shapes, kind, states, rounds)
        rates = {k: f"{v['bytes_per_s'] / 1e12:.3f}" for k, v in row.items() if isinstance(v, dict)}
        print(
            f"{name}: {rates} TB/s, copy {row['copy_bytes_per_s'] / 1e12:.3f}, of copy {row['of_copy']:.1%}", flush=True
        )
        keep()
    if args.tune:
        found["tune"] = tune(300_000_000, 10)
        keep()
    best = min(row["of_copy"] for name, row in found["adamw"].items() if "10,000" not in name)
    found["least_of_copy"] = best
    keep()
    print(f"least share of the copy bandwidth: {best:.1%}; written to {written}")


if __name__ == "__main__":
    main()
