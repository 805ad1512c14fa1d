"""The facts of a machine: value and source of each."""

from __future__ import annotations

from gpuready.model import NOT_STATED
from gpuready.render import units
from gpuready.render.escape import escape_unprintable
from gpuready.render.layout import Screen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Fact, Facts


def render_fact_list(facts: Facts, screen: Screen | None = None) -> str:
    """Key, value and source in columns; a missing fact shows its gap in place of the source."""
    display = screen or Screen()
    title = escape_unprintable(facts.host) or "this machine"
    unknown = sum(bool(f.gap) for f in facts)
    head = display.align_ends(title, f"{units.format_count(len(facts), 'fact')}, {unknown} unknown")
    rows = [_fact_row(fact) for fact in facts]
    lines = ["  " + line for row in display.format_table(rows, 2) for line in row]
    return "\n".join([*head, *([""] if lines else []), *lines]) + "\n"


def _fact_row(fact: Fact) -> tuple[str, str, str]:
    where = fact.gap if fact.gap and fact.gap != NOT_STATED else fact.source
    return (escape_unprintable(fact.key), escape_unprintable(units.format_fact_value(fact)), escape_unprintable(where))
