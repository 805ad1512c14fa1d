"""The differences between two probes of a machine, as text."""

from __future__ import annotations

from gpuready.model import NOT_STATED
from gpuready.render import units
from gpuready.render.layout import join_sections

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuready.check.changes import FactChange
    from gpuready.model import Fact
    from gpuready.render.layout import Screen


def render_fact_changes(changes: Sequence[FactChange], screen: Screen) -> str:
    """Worse first, then other verdict changes, then plain differences."""
    if not changes:
        return "nothing changed\n"
    groups = {
        "worse": [c for c in changes if c.is_worse],
        "flipped": [c for c in changes if c.flips and not c.is_worse],
        "different": [c for c in changes if not c.flips],
    }
    return join_sections(
        [title, *screen.indent_table([row for change in several for row in _fact_change_rows(change)])]
        for title, several in groups.items()
        if several
    )


def _fact_change_rows(change: FactChange) -> list[tuple[str, str, str]]:
    first = (change.key, f"{_format_changed_fact(change.was)} -> {_format_changed_fact(change.now)}", change.now.source)
    flips = [("", f"{f.code}: {f.was or 'did not apply'} -> {f.now or 'does not apply'}", "") for f in change.flips]
    return [first, *flips]


def _format_changed_fact(fact: Fact) -> str:
    return f"unknown ({fact.gap})" if fact.gap and fact.gap != NOT_STATED else units.format_fact_value(fact)
