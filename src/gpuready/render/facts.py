"""The facts of a machine: value and source of each."""

from __future__ import annotations

from gpuready.model import NOT_STATED
from gpuready.render import units
from gpuready.render.escape import visible
from gpuready.render.layout import Screen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Fact, Facts


def listing(known: Facts, screen: Screen | None = None) -> str:
    """Key, value and source in columns; a missing fact shows its gap in place of the source."""
    on = screen or Screen()
    title = visible(known.host) or "this machine"
    unknown = sum(bool(f.gap) for f in known)
    head = on.ends(title, f"{units.counted(len(known), 'fact')}, {unknown} unknown")
    rows = [_row(fact) for fact in known]
    lines = ["  " + line for row in on.table(rows, 2) for line in row]
    return "\n".join([*head, *([""] if lines else []), *lines]) + "\n"


def _row(fact: Fact) -> tuple[str, str, str]:
    where = fact.gap if fact.gap and fact.gap != NOT_STATED else fact.source
    return visible(fact.key), visible(units.value(fact)), visible(where)
