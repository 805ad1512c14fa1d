"""Compare the answers of a fleet: nodes that differ, slow nodes, bad nodes, and which to exclude."""

from __future__ import annotations

import time

from gpuready.fleet import drift, facets, outliers, verdict
from gpuready.fleet.strata import strata

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuready.fleet.drift import Differing
    from gpuready.fleet.pairs import Search
    from gpuready.fleeted import Drift, FleetReport
    from gpuready.model import Facts, Report
    from gpuready.workflow.fleeting import Run

TURNS = 3
"""How often details are requested: a node that does not answer is skipped, and another of its group asked."""


def report(run: Run, reference: Facts | None = None, search: Search | None = None) -> FleetReport:
    gather = run.gather
    stratum_of = strata(gather.nodes, gather.records)
    differ, drifts = drifted(run, stratum_of, reference)
    pieces = verdict.Pieces(
        gather,
        stratum_of,
        differ,
        drifts,
        outliers.weigh(gather.tries, stratum_of),
        search.suspects() if search else (),
        search.pairs if search else (),
    )
    return verdict.report(
        pieces,
        lambda known: judged(known, run.asked.strict),
        did=run.asked.do,
        transport=run.transport.name,
        seconds=time.monotonic() - run.begun,
        rounds=search.number if search else 0,
        notes=(f"{run.transport.name}: {run.why}", *run.notes),
    )


def judged(known: Facts, strict: bool) -> Report:
    """Apply the FLT rules to the facts of a fleet."""
    from gpuready import __version__, catalog, rules
    from gpuready.check import judge
    from gpuready.model import Contract

    contract = Contract("fleet", __version__, title="every node like the others")
    every = [rules.rule(code) for code in rules.LEDGER if code.startswith("FLT")]
    return judge(every, known, contract, strict=strict, catalog=catalog.as_of())


def drifted(
    run: Run, stratum_of: dict[str, str], reference: Facts | None
) -> tuple[list[Differing], list[Drift]]:
    """Find in what the nodes differ: one node of each group is asked for the facts."""
    from gpuready.catalog import kernels

    rows: dict[str, dict[str, Any]] | None = None
    if reference is not None:
        rows = {facet: facets.compared(facet, reference, kernels.names()) for facet in facets.FACETS}
    kind = facets.kind(reference) if reference is not None else None
    differ = drift.differing(run.gather.records, stratum_of, rows, kind)
    avoid: set[str] = set()
    for _ in range(TURNS):
        asked = drift.questions(differ, run.gather.details, avoid)
        if not asked:
            break
        avoid |= set(asked)
        _details(run, asked)
    return differ, drift.explain(differ, run.gather.details)


def _details(run: Run, asked: dict[str, tuple[str, ...]]) -> None:
    """Ask for details; nodes with the same facets are asked together."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, keys in asked.items():
        groups.setdefault(tuple(sorted(keys)), []).append(name)
    for keys, names in groups.items():
        nodes = [run.gather.nodes[name] for name in names]
        run.ask(nodes, run.request("details", keys=list(keys)))
