"""Search hits as a list for the terminal."""

from __future__ import annotations

from gpuready.render.escape import visible
from gpuready.render.layout import Screen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


def listing(rows: Sequence[Mapping[str, Any]], screen: Screen | None = None) -> str:
    """Each hit with its excerpt and the command that shows more."""
    on = screen or Screen()
    if not rows:
        return "nothing was found\n"
    return "\n".join("\n".join(_hit(row, on)) + "\n" for row in rows)


def _hit(row: Mapping[str, Any], on: Screen) -> list[str]:
    lines = on.led(f"{row['kind']} {visible(row['name'])}:", visible(row["title"]), "bold")
    if row["excerpt"]:
        lines += on.paragraph(visible(row["excerpt"]), 2)
    return [*lines, *(on.paragraph(visible(row["more"]), 2) if row["more"] else [])]
