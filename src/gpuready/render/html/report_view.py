"""The view of a whole report for its template: one part for each requested thing."""

from typing import Any

from gpuready import __version__
from gpuready.model.facts import verdict_words
from gpuready.model.plan import Plan
from gpuready.model.proof import PASSED, ProofRecord, ProofResult
from gpuready.model.report_document import ReportDocument
from gpuready.render import plan, prove, units
from gpuready.render import plan as planning
from gpuready.render.check_report import VERDICT_ROLES
from gpuready.render.escape import quote_command_words
from gpuready.render.html import charts, fleet_view, topology
from gpuready.render.html.check_view import build_check_view as judged
from gpuready.render.html.check_view import build_fact_table, mark_view, step_view

_PAGE_SECTIONS = {
    "fleet": "fleet",
    "findings": "reports",
    "checks": "reports",
    "machine": "machine",
    "proofs": "proofs",
}
_PAGE_SECTIONS |= {"bench": "bench", "memory": "memory", "plan": "plans", "facts": "facts"}
"""Anchor -> the part of the view that it shows."""
_PROOF_ROLES = {"passed": "ok", "failed": "error", "crashed": "error", "hung": "error"}


def build_report_view(document: ReportDocument) -> dict[str, Any]:
    reports = [judged(one) for one in document.reports]
    facts = document.reports[0].facts if document.reports else None
    parts: dict[str, Any] = {
        "machine": topology.build_topology_view(facts) if facts is not None else None,
        "reports": reports,
        "proofs": _proofs_view(document.proofs) if document.proofs else None,
        "bench": charts.build_bench_charts(document.bench) if document.bench else None,
        "memory": charts.build_memory_chart(document.fit) if document.fit else None,
        "plans": [_plan_view(one) for one in document.plans],
        "environments": document.environments,
        "conflicts": document.conflicts,
        "facts": build_fact_table(facts) if facts is not None else [],
        "fleet": fleet_view.build_fleet_view(document.fleet) if document.fleet else None,
    }
    return parts | {
        "title": _report_title(document),
        "verdict": verdict_words(document.verdict),
        "mark": mark_view(VERDICT_ROLES[document.verdict]),
        "host": facts.host if facts is not None else "",
        "summary": reports[0]["machine"] if reports else "",
        "made": document.made,
        "notes": document.notes,
        "version": __version__,
        "sections": [(anchor, anchor.title()) for anchor, part in _PAGE_SECTIONS.items() if parts[part]],
    }


def _report_title(document: ReportDocument) -> str:
    if document.fleet and not document.reports:
        return f"fleet of {document.fleet.nodes:,} nodes"
    host = document.reports[0].facts.host if document.reports else ""
    return ", ".join(one.contract.judged_name for one in document.reports) + (f" on {host}" if host else "")


# -- proofs -----------------------------------------------------------------------------------------------------


def _proofs_view(evidence: ProofRecord) -> dict[str, Any]:
    return {
        "evidence": evidence,
        "counts": units.count_words(one.verdict for one in evidence.proofs),
        "rows": [_proof_view(one) for one in evidence.proofs],
    }


def _proof_view(one: ProofResult) -> dict[str, Any]:
    return {
        "one": one,
        "mark": mark_view(_PROOF_ROLES.get(one.verdict, "undecided")),
        "numbers": [_bounded_number_view(name, row) for name, row in one.numbers.items()],
        "versions": ", ".join(f"{name} {version}" for name, version in one.versions.items() if version),
        "known": prove.executed_before(one) if one.verdict == PASSED else True,
        "cause": {"code": one.cause.get("code", ""), "says": one.cause.get("says", "")} if one.cause else None,
    }


def _bounded_number_view(name: str, row: dict[str, Any]) -> dict[str, str]:
    """A number with its unit and its bound."""
    value, limit = row.get("value"), row.get("limit")
    bound = {"most": "at most", "least": "at least", "equal": "equal to"}.get(str(row.get("bound") or ""), "")
    return {
        "name": name.replace("_", " "),
        "value": _format_plain_value(value),
        "unit": str(row.get("unit") or ""),
        "bound": f"{bound} {_format_plain_value(limit)}" if bound else "",
    }


def _format_plain_value(value: Any) -> str:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return f"{value:.3g}" if number else str(value)


# -- plan -------------------------------------------------------------------------------------------------------


def _plan_view(one: Plan) -> dict[str, Any]:
    return {
        "one": one,
        "name": planning.plan_display_name(one),
        "mark": mark_view("ok" if one.verdict == "plan" else "error"),
        "chosen": [row for row in planning.list_chosen_versions(one) if row[1]] if one.verdict == "plan" else [],
        "kernels": [(kernel, planning.describe_kernel_install(kernel)) for kernel in one.kernels],
        "steps": [step_view(each) for each in one.steps],
        "install": " ".join(quote_command_words(plan.build_install_command(one))) if one.lock else "",
    }
