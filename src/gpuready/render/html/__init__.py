"""A report as HTML: a whole page, or a fragment for a notebook. Nothing is judged here.

Text from machines, logs and files reaches a template only through an escaping environment (see ``template_engine``).
"""

from __future__ import annotations

from gpuready import reported
from gpuready.model import Report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def page(document: dict[str, Any]) -> str:
    """The page of a ``gpuready report`` document. ValueError where it is invalid or jinja2 is missing."""
    from gpuready.render import json
    from gpuready.render.html import engine, whole

    found = reported.read(document)
    try:
        return engine.page(whole.view(found), json.document(document))
    except ImportError as missing:
        raise ValueError(
            f"the page needs the package jinja2, which is not here ({missing}): install it beside gpuready"
        ) from None


def fragment(report: Report | dict[str, Any]) -> str:
    """One Report for a notebook: verdict, family rows and findings, without a script."""
    from gpuready.render.html import engine, judged

    one = report if isinstance(report, Report) else reported.report(report)
    return engine.fragment(judged.view(one))
