"""A node or a GPU is slower than its equals, each time it is measured.

Its figures lie below the median of the nodes of its kind by more than they scatter, and did so again when it was
measured again. Scatter is estimated by the median of the distances, which a few bad nodes cannot move, and nobody is
accused on one measurement. A job that waits for all of its ranks runs at the pace of this one.

It is an error. Common causes are a GPU that is too hot or whose power is capped, a PCIe link that trained narrower, a
clock set low, or somebody else's process. Compare its facts with those of another node: ``gpuready fleet drift``.
"""

from __future__ import annotations

from gpuready.model import Finding, Need, Step
from gpuready.rules import fleetwide

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts

CODE = "FLT011"
SEVERITY = "error"
READS = ("fleet.outliers",)
SIGNS = ()
BROKEN = {
    "fleet.outliers": (
        {"node": "n0412", "gpu": 3, "figure": "gemm_bf16", "value": 650.0, "usual": 707.0, "share": -0.081,
         "score": -6.1, "tries": 5, "confirmed": True, "stratum": "all"},
    )
}  # fmt: skip
HEALTHY = {"fleet.outliers": ()}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    found = fleetwide.rows(facts, "fleet.outliers")
    if not found:
        return None
    row = max(found, key=lambda one: abs(one["share"]))
    slow = len({one["node"] for one in found})
    which = row["node"] + (f" GPU {row['gpu']}" if row["gpu"] is not None else "")
    figures = (
        f"{which}: {row['figure']} {row['value']:.4g} instead of {row['usual']:.4g} ({row['share']:+.1%})"
    )
    tail = f" in {row['tries']} measurements" if row["tries"] > 1 else ""
    return Finding(
        CODE,
        SEVERITY,
        f"{fleetwide.plural(slow)} {'is' if slow == 1 else 'are'} slower than {'its' if slow == 1 else 'their'} equals: {figures}{tail}",
        found=(facts.fact("fleet.outliers"),),
        needs=(Need("fleet.outliers", "none", cite="Wald 1945, sequential tests of statistical hypotheses"),),
        so="a job over this node runs at its pace",
        fix=(
            Step(
                "look at temperature, power limit, clocks and PCIe width of the node: gpuready check -v there"
            ),
            Step("keep jobs away from it until then, with the exclude list of this report"),
        ),
    )
