"""HTML for a notebook: the report fragment where possible, else the screen as preformatted text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from gpuready.model import Report
from gpuready.render.escape import escape_unprintable
from gpuready.render.html import render_report_fragment

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
    lines = "\n".join(escape_unprintable(line) for line in text.split("\n"))
    return f'<pre class="gpuready" style="{_PRE_STYLE}">{escape(lines)}</pre>'


def render_report_fragments(several: Sequence[Report]) -> str:
    """Each Report as a fragment of the page of ``gpuready report``."""
    return "\n".join(render_report_fragment(one) for one in several)


def embed_page_in_iframe(page: str) -> str:
    """A whole page in a sandboxed iframe."""
    return (
        '<iframe sandbox="allow-scripts" style="width:100%;height:40em;border:0" '
        f'srcdoc="{escape(page)}" title="gpuready report"></iframe>'
    )
