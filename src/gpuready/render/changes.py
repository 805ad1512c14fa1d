"""The differences between two probes of a machine, as text."""

from __future__ import annotations

from gpuready.render import units
from gpuready.render.escape import escape_unprintable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuready.check.changes import FactChange
    from gpuready.render.layout import Screen


def render_fact_changes(changes: Sequence[FactChange], screen: Screen) -> str:
    """Worse first, then other verdict changes, then plain differences."""
    if not changes:
        return "nothing changed\n"
    lines: list[str] = []
    for title, chosen in (
        ("worse", [c for c in changes if c.is_worse]),
        ("flipped", [c for c in changes if c.flips and not c.is_worse]),
        ("different", [c for c in changes if not c.flips]),
    ):
        if chosen:
            table = screen.format_table([row for change in chosen for row in _fact_change_rows(change)], 2)
            lines += [title, *("  " + line for row in table for line in row), ""]
    return "\n".join(lines)


def _fact_change_rows(change: FactChange) -> list[tuple[str, str, str]]:
    first = (
        escape_unprintable(change.key),
        f"{_format_changed_fact(change.was)} -> {_format_changed_fact(change.now)}",
        escape_unprintable(change.now.source),
    )
    flips = [("", f"{f.code}: {f.was or 'did not apply'} -> {f.now or 'does not apply'}", "") for f in change.flips]
    return [first, *flips]


def _format_changed_fact(fact: object) -> str:
    from gpuready.model import Fact

    assert isinstance(fact, Fact)
    if fact.gap:
        return f"unknown ({escape_unprintable(fact.gap)})"
    return "absent" if fact.value is None else escape_unprintable(units.format_fact_value(fact))
