"""A whole report as the fields of one JSON document: each part as its own command writes it."""

from typing import Any

from gpuready.model.report_document import ReportDocument
from gpuready.render import bench, check_report, fit, fleet, json_document, plan


def report_document_fields(document: ReportDocument) -> dict[str, Any]:
    """The verdict first; a part that was not requested is null."""
    return {
        "kind": "report",
        "verdict": document.verdict,
        "exit": document.exit,
        "made": document.made,
        "reports": [json_document.report_json_fields(one) for one in document.reports],
        "proofs": document.proofs.to_json() if document.proofs else None,
        "bench": bench.bench_json_fields(document.bench) if document.bench else None,
        "fit": fit.fit_json_fields(document.fit) if document.fit else None,
        "plan": _plan_part_fields(document),
        "fleet": document.fleet.fields() if document.fleet else None,
        "notes": list(document.notes),
    }


def _plan_part_fields(document: ReportDocument) -> dict[str, Any] | None:
    if len(document.plans) > 1:
        return plan.plan_set_json_fields(document)
    return plan.plan_json_fields(document.plans[0]) if document.plans else None


def format_report_lines(document: ReportDocument) -> str:
    """One line for each framework and for the fleet."""
    report_lines = [check_report.format_check_line(one) for one in document.reports]
    return "".join([*report_lines, *([fleet.format_fleet_line(document.fleet)] if document.fleet else [])])
