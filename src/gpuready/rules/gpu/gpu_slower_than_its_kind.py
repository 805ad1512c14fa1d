"""A GPU is slower than others of its kind.

## What it checks
Each number of ``gpuready bench`` (matrix products per precision, memory copies, PCIe transfers) against the
range measured on healthy GPUs of the same name. A number below that range in every pass is slow. Without a
record for this GPU nothing is judged. If other processes use the GPU, the result is undecided.

## Why it matters
In a job over many GPUs the slowest sets the speed of all.

## How to fix
The finding names the reasons that the driver reports: a lowered power limit, heat, a power brake, locked or
application clocks, other processes, MIG, ECC on GDDR memory, a PCIe link with fewer lanes or a lower
generation. Remove the reason and measure again. If nothing explains it, compare with another GPU of the
machine after a reboot.

## References
- gpuready guide: bench (docs/how-to/bench.md)
- NVML API, NvmlClocksEventReasons
"""

from typing import Any

from gpuready.model import Contract, Fact, Facts, Finding, FixStep, Requirement, UnknownFactError, make_finding
from gpuready.model.bench import SlowReason
from gpuready.rules import bench_verdict, slowness_reasons, visible_gpus

CODE = "GPU021"
SEVERITY = "error"
READS = ("bench.measures", *slowness_reasons.READS)
REQUIRED_FACTS = ("bench.measures",)
_ROW = {
    "name": "matmul-bf16",
    "gpu": 0,
    "raw": "measured",
    "group": "compute",
    "better": "more",
    "value": 400e12,
    "passes": (400e12, 398e12),
    "spread": 0.005,
    "expected": 989.4e12,
    "low": 700e12,
    "high": 850e12,
}
BROKEN = {"bench.measures": (_ROW,)}
HEALTHY = {"bench.measures": (_ROW | {"value": 770e12, "passes": (770e12, 768e12)},)}
CITE = "gpuready bench, range of the records of this GPU"


def judge(facts: Facts, contract: Contract) -> Finding | None:
    rows = [row for row in facts.value("bench.measures") or () if row.get("gpu") is not None]
    verdicts = [(row, *bench_verdict.judge_measure(row, facts)) for row in rows]
    slow = [row for row, word, _ in verdicts if word == "slow"]
    if slow:
        return _slow_gpu_finding(facts, slow)
    open_ = [(row, word, why) for row, word, why in verdicts if _is_undecided_row(row, word)]
    if open_:
        raise UnknownFactError(_undecided_fact(facts.fact("bench.measures"), open_))
    return None


def _is_undecided_row(row: dict[str, Any], word: str) -> bool:
    """Return whether this row cannot be judged; GPU022 reports failed measures."""
    judged = row.get("low") is not None or row.get("group") not in bench_verdict.BANDLESS_GROUPS
    return word in ("undecided", "absent") or (word == "noisy" and judged and not bench_verdict.is_inside_band(row))


def _undecided_fact(fact: Fact, rows: list[tuple[dict[str, Any], str, str]]) -> Fact:
    """Return the fact with a gap by reason: ``no record of this GPU (matmul-bf16, memory-copy)``."""
    by_why: dict[str, list[str]] = {}
    for row, word, why in rows:
        by_why.setdefault(why or word, []).append(str(row["name"]))
    parts = [f"{why} ({', '.join(dict.fromkeys(names))})" for why, names in by_why.items()]
    return fact.replace(value=None, gap="; ".join(parts))


def _slow_gpu_finding(facts: Facts, slow: list[dict[str, Any]]) -> Finding:
    worst = min(slow, key=lambda row: _share_of_band(row))
    why = _unique_reasons(facts, slow)
    evidence = dict.fromkeys(fact for reason in why for fact in reason.found)
    known = "; ".join(reason.says for reason in why)
    return make_finding(
        _describe_slow_measures(slow, worst),
        found=(facts.fact("bench.measures"), *(f for f in evidence if f.key != "bench.measures")),
        needs=(Requirement("bench.measures", f"{worst['name']} >= {worst['low']:.4g}", level="required", cite=CITE),),
        so=(known or "no visible reason") + "; in a multi-GPU job the slowest GPU sets the speed",
        fix=tuple(dict.fromkeys(step for reason in why for step in reason.fix)) or _inspect_gpu_steps(worst["gpu"]),
    )


def _share_of_band(row: dict[str, Any]) -> float:
    """Return the best pass as a share of the lowest value of the band."""
    if row.get("better") == "less":
        return float(row["high"] / min(row["passes"]))
    return float(max(row["passes"]) / row["low"])


def _describe_slow_measures(slow: list[dict[str, Any]], worst: dict[str, Any]) -> str:
    names = list(dict.fromkeys(str(row["name"]) for row in slow))
    gpus = visible_gpus.join_names([f"GPU {index}" for index in dict.fromkeys(row["gpu"] for row in slow)], 4)
    short = f"{1 - _share_of_band(worst):.0%}"
    if len(names) == 1:
        return f"{names[0]} is {short} below the expected range on {gpus}"
    return f"{len(names)} measurements are below the expected range on {gpus}, {worst['name']} by {short}"


def _unique_reasons(facts: Facts, slow: list[dict[str, Any]]) -> list[SlowReason]:
    """Return the reasons of all slow rows, without duplicates."""
    by_text: dict[str, SlowReason] = {}
    for row in slow:
        for reason in slowness_reasons.find_slowness_reasons(row, facts):
            by_text.setdefault(reason.says, reason)
    return list(by_text.values())


def _inspect_gpu_steps(gpu: int) -> tuple[FixStep, ...]:
    return (
        FixStep(f"check its state under load: nvidia-smi -i {gpu} -q -d PERFORMANCE,CLOCK,POWER"),
        FixStep("measure again after a reboot, and compare with a GPU beside it"),
    )
