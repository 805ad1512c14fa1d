"""HTML for a notebook: the report fragment where possible, else the screen as preformatted text."""

from __future__ import annotations

from gpuready.render.escape import visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuready.model import Report

_STYLE = "line-height:1.35;white-space:pre-wrap;overflow-wrap:anywhere"


def html(drawn: Callable[[], str] | None, screen: str) -> str:
    """The HTML of ``draw_html``; the screen where there is none or jinja2 is not installed."""
    if drawn is not None:
        try:
            return drawn()
        except ImportError:
            pass  # without jinja2: the same text, unstyled
    return preformatted(screen)


def preformatted(text: str) -> str:
    from html import escape

    lines = "\n".join(visible(line) for line in text.split("\n"))
    return f'<pre class="gpuready" style="{_STYLE}">{escape(lines)}</pre>'


def reports(several: Sequence[Report]) -> str:
    """Each Report as a fragment of the page of ``gpuready report``."""
    from gpuready.render.html import fragment

    return "\n".join(fragment(one) for one in several)


def framed(page: str) -> str:
    """A whole page in a sandboxed iframe."""
    from html import escape

    return (
        '<iframe sandbox="allow-scripts" style="width:100%;height:40em;border:0" '
        f'srcdoc="{escape(page)}" title="gpuready report"></iframe>'
    )
