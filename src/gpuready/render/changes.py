"""The differences between two probes of a machine, as text."""

from __future__ import annotations

from gpuready.render import units
from gpuready.render.escape import visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuready.changes import Change
    from gpuready.render.layout import Screen


def listing(changes: Sequence[Change], screen: Screen) -> str:
    """Worse first, then other verdict changes, then plain differences."""
    if not changes:
        return "nothing changed\n"
    lines: list[str] = []
    for title, chosen in (
        ("worse", [c for c in changes if c.worse]),
        ("flipped", [c for c in changes if c.flips and not c.worse]),
        ("different", [c for c in changes if not c.flips]),
    ):
        if chosen:
            table = screen.table([row for change in chosen for row in _rows(change)], 2)
            lines += [title, *("  " + line for row in table for line in row), ""]
    return "\n".join(lines)


def _rows(change: Change) -> list[tuple[str, str, str]]:
    first = (visible(change.key), f"{_told(change.was)} -> {_told(change.now)}", visible(change.now.source))
    flips = [
        ("", f"{f.code}: {f.was or 'did not apply'} -> {f.now or 'does not apply'}", "") for f in change.flips
    ]
    return [first, *flips]


def _told(fact: object) -> str:
    from gpuready.model import Fact

    assert isinstance(fact, Fact)
    if fact.gap:
        return f"unknown ({visible(fact.gap)})"
    return "absent" if fact.value is None else visible(units.value(fact))
