"""A report as HTML: a whole page, or a fragment for a notebook. Nothing is judged here.

Text from machines, logs and files reaches a template only through an escaping environment (see ``template_engine``).
"""

from __future__ import annotations

from typing import Any

from gpuready.model import Report
from gpuready.model import report_document as reported
from gpuready.model.fleet import FleetReport
from gpuready.model.report_document import ReportDocument
from gpuready.render import json_document
from gpuready.render.html import check_view, report_view, template_engine
from gpuready.render.report import report_document_fields


def render_report_page(document: dict[str, Any]) -> str:
    """The page of a ``gpuready report`` document. ValueError where it is invalid or jinja2 is missing."""
    return _render_page(reported.parse_report_document(document), document)


def render_fleet_page(report: FleetReport) -> str:
    """The page of a fleet: a report of nothing else."""
    document = reported.ReportDocument(fleet=report)
    return _render_page(document, report_document_fields(document))


def _render_page(document: ReportDocument, fields: dict[str, Any]) -> str:
    try:
        return template_engine.render_page_template(
            report_view.build_report_view(document), json_document.format_json_document(fields)
        )
    except ImportError as missing:
        raise ValueError(
            f"the page needs the package jinja2, which is not here ({missing}): install it beside gpuready"
        ) from None


def render_report_fragment(report: Report | dict[str, Any]) -> str:
    """One Report for a notebook: verdict, family rows and findings, without a script."""
    report_record = report if isinstance(report, Report) else reported.parse_check_report(report)
    return template_engine.render_fragment_template(check_view.build_check_view(report_record))
