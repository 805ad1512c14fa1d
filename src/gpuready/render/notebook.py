"""An answer as HTML for a notebook: as the report draws it where it can, else the screen as it is."""

from __future__ import annotations

from gpuready.render.escape import visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuready.model import Report

_STYLE = "line-height:1.35;white-space:pre-wrap;overflow-wrap:anywhere"


def html(drawn: Callable[[], str] | None, screen: str) -> str:
    """What ``drawn`` gives; the screen where there is nothing drawn, or the package that draws is not here."""
    if drawn is not None:
        try:
            return drawn()
        except ImportError:
            pass  # without jinja2 the words are the same, only plainer
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
    """A whole page inside a notebook, in a frame of its own that can reach nothing around it."""
    from html import escape

    return (
        '<iframe sandbox="allow-scripts" style="width:100%;height:40em;border:0" '
        f'srcdoc="{escape(page)}" title="gpuready report"></iframe>'
    )
