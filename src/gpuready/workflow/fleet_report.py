"""Compare the answers of a fleet: nodes that differ, slow nodes, bad nodes, and which to exclude."""

from __future__ import annotations

import time
from typing import Any

from gpuready import __version__, catalog, rules
from gpuready.catalog import bands, kernels
from gpuready.check.evaluate import judge, rule_title
from gpuready.fleet import drift, facets, outliers, verdict
from gpuready.fleet.drift import FacetDifference
from gpuready.fleet.outliers import LOWER_IS_BETTER, SHARED_PREFIX
from gpuready.fleet.pair_search import PairSearch
from gpuready.fleet.strata import assign_strata
from gpuready.model import Contract, Facts, Report
from gpuready.model.fleet import Drift, FleetReport
from gpuready.workflow.fleet_run import FleetRun

DETAIL_ROUNDS = 3
"""How often details are requested: a node that does not answer is skipped, and another of its group asked."""


def build_fleet_report(run: FleetRun, reference: Facts | None = None, search: PairSearch | None = None) -> FleetReport:
    gather = run.gather
    stratum_of = assign_strata(gather.nodes, gather.records)
    differ, drifts = find_drift(run, stratum_of, reference)
    pieces = verdict.FleetEvidence(
        gather,
        stratum_of,
        differ,
        drifts,
        outliers.find_outliers(gather.measured_tries, stratum_of),
        search.list_suspects() if search else (),
        search.mark_slow_pairs() if search else (),
    )
    report = verdict.build_fleet_report(
        pieces,
        lambda known: judge_fleet(known, run.task.strict),
        did=run.task.do,
        transport=run.transport.name,
        seconds=time.monotonic() - run.started,
        rounds=search.round_number if search else 0,
        notes=(f"{run.transport.name}: {run.transport_reason}", *run.notes),
    )
    units = {figure: figure_unit(figure) for figure in report.figures}
    return report.replace(meanings={code: rule_meaning(code) for code in report.codes}, units=units)


def figure_unit(figure: str) -> str:
    """The unit of a figure of bench; empty for one that this version does not know."""
    name = figure.removeprefix(SHARED_PREFIX)
    for suffix in LOWER_IS_BETTER:
        name = name.removesuffix(suffix)
    spec = bands.find_measure(name)
    return spec.unit if spec is not None else ""


def rule_meaning(code: str) -> str:
    """The title of a rule; empty for a code that this version does not know."""
    try:
        return rule_title(rules.load_rule(code))
    except KeyError:
        return ""


def judge_fleet(known: Facts, strict: bool) -> Report:
    """Apply the FLT rules to the facts of a fleet."""
    contract = Contract("fleet", __version__, title="every node like the others")
    fleet_rules = [rules.load_rule(code) for code in rules.list_rule_modules() if code.startswith("FLT")]
    return judge(fleet_rules, known, contract, strict=strict, catalog=catalog.catalog_date())


def find_drift(
    run: FleetRun, stratum_of: dict[str, str], reference: Facts | None
) -> tuple[list[FacetDifference], list[Drift]]:
    """Find in what the nodes differ: one node of each group is asked for the facts."""
    rows: dict[str, dict[str, Any]] | None = None
    if reference is not None:
        rows = {facet: facets.reference_values(facet, reference, kernels.list_kernels()) for facet in facets.FACETS}
    kind = facets.classify_node(reference) if reference is not None else None
    differ = drift.find_facet_differences(run.gather.records, stratum_of, rows, kind)
    avoid: set[str] = set()
    for _ in range(DETAIL_ROUNDS):
        questions = drift.plan_detail_requests(differ, run.gather.details, avoid)
        if not questions:
            break
        avoid |= set(questions)
        _request_details(run, questions)
    return differ, drift.explain_differences(differ, run.gather.details)


def _request_details(run: FleetRun, questions: dict[str, tuple[str, ...]]) -> None:
    """Ask for details; nodes with the same facets are asked together."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, keys in questions.items():
        groups.setdefault(tuple(sorted(keys)), []).append(name)
    for keys, names in groups.items():
        nodes = [run.gather.nodes[name] for name in names]
        run.ask_nodes(nodes, run.make_request("details", keys=list(keys)))
