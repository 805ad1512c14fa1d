"""A node or a GPU is slower than others of its kind, each time it is measured.

## What it checks
The measured figures of each node against the median of its kind, and again in a second measurement. The
spread is the median of the distances, so a few bad nodes do not change it, and one measurement alone is not
enough.

## Why it matters
A job that waits for all ranks runs at the speed of this one. Usual causes: heat, a power limit, a narrower
PCIe link, low clocks, or another process.

## How to fix
Compare the node with another: ``gpuready fleet check``. Run ``gpuready check -v`` on it.

## References
- Wald 1945, sequential tests of statistical hypotheses
- gpuready guide: fleet
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import fleet_findings

CODE = "FLT011"
SEVERITY = "error"
READS = ("fleet.outliers",)
REQUIRED_FACTS = ("fleet.outliers",)
BROKEN = {
    "fleet.outliers": (
        {"node": "n0412", "gpu": 3, "figure": "gemm_bf16", "value": 650.0, "usual": 707.0, "share": -0.081,
         "score": -6.1, "tries": 5, "confirmed": True, "peers": "all"},
    )
}  # fmt: skip
HEALTHY = {"fleet.outliers": ()}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    rows = fleet_findings.fleet_rows(facts, "fleet.outliers")
    if not rows:
        return None
    row = max(rows, key=lambda one: abs(one["share"]))
    slow = len({one["node"] for one in rows})
    which = row["node"] + (f" GPU {row['gpu']}" if row["gpu"] is not None else "")
    figures = f"{which}: {row['figure']} {row['value']:.4g} instead of {row['usual']:.4g} ({row['share']:+.1%})"
    tail = f" in {row['tries']} measurements" if row["tries"] > 1 else ""
    return make_finding(
        f"{fleet_findings.format_count(slow)} {'is' if slow == 1 else 'are'} slower than {'its' if slow == 1 else 'their'} peers: {figures}{tail}",
        found=(facts.fact("fleet.outliers"),),
        needs=(Requirement("fleet.outliers", "none", cite="Wald 1945, sequential tests of statistical hypotheses"),),
        so="a job with this node runs at its speed",
        fix=(
            FixStep("check temperature, power limit, clocks and PCIe width: run gpuready check -v on the node"),
            FixStep("exclude it from jobs until then, with the exclude list of this report"),
        ),
    )
