"""A node or a GPU fails with whomever it reduces.

The fleet was put into pairs, round by round with new partners, and each pair ran an all-reduce. Whoever failed was paired
with nodes that never failed. This one failed with several partners that pass with others, so the fault is its own: a
network card, a GPU, a cable, or a setting that only it has.

It is an error. A node that twice met bad ones is explained by them and is not accused, and one failure accuses nobody.
Look at its network card and at ``gpuready fleet drift``; keep jobs away from it until it passes.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement
from gpuready.rules import fleet_findings

CODE = "FLT016"
SEVERITY = "error"
READS = ("fleet.suspects",)
BROKEN = {
    "fleet.suspects": (
        {"kind": "node", "names": ("n0412",), "failed": 3, "passed": 0, "confirmed": True, "evidence": (), "gpu": None},
    )
}
HEALTHY = {"fleet.suspects": ()}
KINDS = ("node", "gpu")


def judge(facts: Facts, contract: Contract) -> Finding | None:
    suspect = fleet_findings.first_suspect(facts, KINDS)
    if suspect is None:
        return None
    row, tests, more = suspect
    which = row["names"][0] + (f" GPU {row['gpu']}" if row.get("gpu") is not None else "")
    return Finding(
        CODE,
        SEVERITY,
        f"{which} failed {row['failed']} of {tests} pairs, with partners that pass with others{more}",
        found=(facts.fact("fleet.suspects"),),
        needs=(Requirement("fleet.suspects", "none", cite="gpuready fleet bisect: rounds of disjoint pairs"),),
        so="any job that has this node in it fails or hangs in its first collectives",
        fix=(
            FixStep("look at its network cards, cables and GPUs, and at gpuready fleet drift"),
            FixStep("keep jobs away from it until then, with the exclude list of this report"),
        ),
    )
