"""Fleets for tests: simulated nodes with the facts of the recorded machine, judged by the real rules."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.simulated_fleet import SimulatedTransport

from gpuready.fleet import drift, outliers, verdict
from gpuready.fleet.answer_collector import AnswerCollector
from gpuready.fleet.peers import assign_peers
from gpuready.model import Fact, Facts
from gpuready.model.fleet import FleetReport
from gpuready.workflow.fleet import judge_fleet

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
    return known.with_facts(*(Fact(key, value, "test") for key, value in (eight | values).items()))


def names(count: int) -> list[str]:
    return [f"n{at:05d}" for at in range(1, count + 1)]


def judge_all(transport: SimulatedTransport, did: str = "check", reference: Facts | None = None) -> FleetReport:
    """One whole run: ask, compare, ask for details, measure again, judge."""
    gather = AnswerCollector(transport.list_nodes(), "run")
    transport.ask_nodes(gather.list_unanswered(), {"do": did, "token": "run"}, 1, gather.add_answer)
    peers_of = assign_peers(gather.nodes, gather.records)
    weighed = outliers.find_outliers(gather.measured_tries, peers_of)
    for attempt in range(2, outliers.MAX_TRIES + 1):
        again = [node for node in transport.list_nodes() if node.name in weighed.measure_again]
        transport.ask_nodes(again, {"do": did, "token": "run", "try": attempt}, 1, gather.add_answer) if again else None
        weighed = outliers.find_outliers(gather.measured_tries, peers_of)
    return judge_gathered(gather, transport, peers_of, weighed, reference, did)


def judge_gathered(gather, transport, peers_of=None, weighed=None, reference=None, did="check", **more) -> FleetReport:
    from gpuready.fleet import areas

    peers_of = peers_of if peers_of is not None else assign_peers(gather.nodes, gather.records)
    rows = {area: areas.area_values(area, reference) for area in areas.AREAS} if reference is not None else None
    differ = drift.find_area_differences(gather.records, peers_of, rows)
    for node, keys in drift.plan_detail_requests(differ, gather.details).items():
        transport.ask_nodes([gather.nodes[node]], {"do": "details", "token": "run", "keys": keys}, 1, gather.add_answer)
    pieces = verdict.FleetEvidence(
        gather, peers_of, differ, drift.explain_differences(differ, gather.details), weighed, **more
    )
    return verdict.build_fleet_report(pieces, lambda known: judge_fleet(known, False), did=did, transport="simulated")


def codes(report: FleetReport) -> list[str]:
    return [finding.code for finding in report.findings]
