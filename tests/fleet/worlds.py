"""Fleets for tests: simulated nodes with the facts of the recorded machine, judged by the real rules."""

from __future__ import annotations

import json
from pathlib import Path

from gpuready.fleet import drift, outliers, verdict
from gpuready.fleet.gather import Gather
from gpuready.fleet.simulated import Simulated
from gpuready.fleet.strata import strata
from gpuready.fleeted import FleetReport
from gpuready.model import Fact, Facts
from gpuready.workflow.comparing import judged

RECORDED = Path(__file__).parent.parent / "machines" / "h200.json"
KEPT = (
    "driver.",
    "torch.",
    "gpu.",
    "os.",
    "net.",
    "limit.",
    "system.",
    "memory.",
    "python.version",
    "python.packages",
    "package.t",
)


def machine(**values: object) -> Facts:
    """The recorded machine with eight GPUs, and without most of its packages: they are only more of the same."""
    rows = [Fact.from_json(row) for row in json.loads(RECORDED.read_text())["facts"]]
    eight = {
        "gpu.count": 8,
        "gpu.name": ("NVIDIA H100 80GB HBM3",) * 8,
        "gpu.nvlink": (18,) * 8,
        "gpu.ecc": ("on",) * 8,
    }
    known = Facts([row for row in rows if row.key.startswith(KEPT)], "h200")
    return known.also(*(Fact(key, value, "test") for key, value in (eight | values).items()))


def names(count: int) -> list[str]:
    return [f"n{at:05d}" for at in range(1, count + 1)]


def judge_all(transport: Simulated, did: str = "check", reference: Facts | None = None) -> FleetReport:
    """One whole run: ask, compare, ask for details, measure again, judge."""
    gather = Gather(transport.nodes(), "run")
    transport.ask(gather.missing(), {"do": did, "token": "run"}, 1, gather.heard)
    stratum_of = strata(gather.nodes, gather.records)
    weighed = outliers.weigh(gather.tries, stratum_of)
    for attempt in range(2, outliers.TRIES + 1):
        again = [node for node in transport.nodes() if node.name in weighed.again]
        transport.ask(again, {"do": did, "token": "run", "try": attempt}, 1, gather.heard) if again else None
        weighed = outliers.weigh(gather.tries, stratum_of)
    return judge_gathered(gather, transport, stratum_of, weighed, reference, did)


def judge_gathered(
    gather, transport, stratum_of=None, weighed=None, reference=None, did="check", **more
) -> FleetReport:
    from gpuready.fleet import facets

    stratum_of = stratum_of if stratum_of is not None else strata(gather.nodes, gather.records)
    rows = (
        {facet: facets.values(facet, reference) for facet in facets.FACETS} if reference is not None else None
    )
    differ = drift.differing(gather.records, stratum_of, rows)
    for node, keys in drift.questions(differ, gather.details).items():
        transport.ask([gather.nodes[node]], {"do": "details", "token": "run", "keys": keys}, 1, gather.heard)
    pieces = verdict.Pieces(
        gather, stratum_of, differ, drift.explain(differ, gather.details), weighed, **more
    )
    return verdict.report(pieces, lambda known: judged(known, False), did=did, transport="simulated")


def codes(report: FleetReport) -> list[str]:
    return [finding.code for finding in report.findings]
