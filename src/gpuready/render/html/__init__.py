"""A report as HTML: a whole page, or a fragment for a notebook. Nothing is judged here.

Text from machines, logs and files reaches a template only through an escaping environment (see ``template_engine``).
"""

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from gpuready.model import Report
from gpuready.model import report_document as reported
from gpuready.model.fleet import FleetReport
from gpuready.model.report_document import ReportDocument
from gpuready.model.visible_text import escape_lines
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


_PRE_STYLE = (
    "font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
    "line-height:1.35;white-space:pre;overflow-x:auto"
)
"""A screen is drawn in columns: a font of one width, and no line wraps."""


def render_notebook_html(draw_html: Callable[[], str] | None, screen: str) -> str:
    """The HTML of ``draw_html``; the screen where there is none or jinja2 is not installed."""
    if draw_html is not None:
        try:
            return draw_html()
        except ImportError:
            pass  # without jinja2: the same text, unstyled
    return preformatted_html(screen)


def preformatted_html(text: str) -> str:
    return f'<pre class="gpuready" style="{_PRE_STYLE}">{escape(escape_lines(text))}</pre>'


def render_report_fragments(several: Sequence[Report]) -> str:
    """Each Report as a fragment of the page of ``gpuready report``."""
    return "\n".join(render_report_fragment(one) for one in several)


def embed_page_in_iframe(page: str) -> str:
    """A whole page in a sandboxed iframe."""
    return (
        '<iframe sandbox="allow-scripts" style="width:100%;height:40em;border:0" '
        f'srcdoc="{escape(page)}" title="gpuready report"></iframe>'
    )
