"""Search hits as a list for the terminal."""

from __future__ import annotations

from gpuready.render.escape import escape_unprintable
from gpuready.render.layout import Screen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


def render_search_hits(rows: Sequence[Mapping[str, Any]], screen: Screen | None = None) -> str:
    """Each hit with its excerpt and the command that shows more."""
    display = screen or Screen()
    if not rows:
        return "nothing was found\n"
    return "\n".join("\n".join(_format_search_hit(row, display)) + "\n" for row in rows)


def _format_search_hit(row: Mapping[str, Any], display: Screen) -> list[str]:
    lines = display.lead_paragraph(
        f"{row['kind']} {escape_unprintable(row['name'])}:", escape_unprintable(row["title"]), "bold"
    )
    if row["excerpt"]:
        lines += display.format_paragraph(escape_unprintable(row["excerpt"]), 2)
    return [*lines, *(display.format_paragraph(escape_unprintable(row["more"]), 2) if row["more"] else [])]
