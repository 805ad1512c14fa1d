"""A measurement failed, crashed or hung.

## What it checks
Whether every operation of ``gpuready bench`` (matrix products, copies, launches, collectives, reads and
writes) finished without an error.

## Why it matters
These are plain operations. If one fails on a device that supports it, the installation is broken (a torch not
built for this GPU, a driver that is too old, libraries of two CUDA versions), or the GPU or the disk is. The
finding has the error message.

## How to fix
``gpuready check`` finds incompatible versions. ``gpuready prove`` runs each capability and verifies its
numbers. ``dmesg`` and ``nvidia-smi -q`` show driver errors.

## References
- gpuready guide: bench (docs/how-to/bench.md)
"""

from typing import Any

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import bench_verdict

CODE = "GPU022"
SEVERITY = "error"
READS = ("bench.measures",)
REQUIRED_FACTS = ("bench.measures",)
_ROW = {"name": "matmul-bf16", "gpu": 0, "raw": "failed", "why": "RuntimeError: no kernel image is available"}
BROKEN = {"bench.measures": (_ROW,)}
HEALTHY = {"bench.measures": (_ROW | {"raw": "measured", "why": ""},)}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    broken = [row for row in facts.value("bench.measures") or () if row["raw"] in bench_verdict.FAILED_OUTCOMES]
    if not broken:
        return None
    first = broken[0]
    more = f" and {len(broken) - 1} more" if len(broken) > 1 else ""
    return make_finding(
        f"{first['name']}{more} {first['raw']} on {_measure_location(first)}",
        found=(facts.fact("bench.measures"),),
        needs=(Requirement("bench.measures", "measured", cite="gpuready bench"),),
        so=" ".join(f"the operation does not work here: {first.get('why') or first['raw']}".split())[:300].rstrip(".!"),
        fix=(
            FixStep("check whether the versions are compatible", ("gpuready", "check"), "safe"),
            FixStep("read the driver's errors: dmesg, nvidia-smi -q"),
        ),
    )


def _measure_location(row: dict[str, Any]) -> str:
    gpu = row.get("gpu")
    return "the host" if gpu is None else "the GPU" if gpu < 0 else f"GPU {gpu}"
