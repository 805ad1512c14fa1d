"""Search hits as a list for the terminal."""

from __future__ import annotations

from gpuready.render.layout import Screen, join_sections

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


def render_search_hits(rows: Sequence[Mapping[str, Any]], screen: Screen | None = None) -> str:
    """Each hit with its excerpt and the command that shows more."""
    display = screen or Screen()
    if not rows:
        return "nothing was found\n"
    return join_sections(_format_search_hit(row, display) for row in rows)


def _format_search_hit(row: Mapping[str, Any], display: Screen) -> list[str]:
    lines = display.lead_paragraph(f"{row['kind']} {row['name']}:", row["title"], "bold")
    return lines + display.format_paragraphs((text for text in (row["excerpt"], row["more"]) if text), 2)
