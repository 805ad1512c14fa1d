"""The facts of a machine: value and source of each."""

from __future__ import annotations

from gpuready.model import Facts
from gpuready.render import units
from gpuready.render.finding import fact_source
from gpuready.render.layout import Screen, join_sections


def render_fact_list(facts: Facts, screen: Screen | None = None) -> str:
    """Key, value and source in columns; a missing fact shows its gap in place of the source."""
    display = screen or Screen()
    title = facts.host or "this machine"
    unknown = sum(bool(f.gap) for f in facts)
    head = display.align_ends(title, f"{units.format_count(len(facts), 'fact')}, {unknown} unknown")
    rows = [(fact.key, units.format_fact_value(fact), fact_source(fact)) for fact in facts]
    return join_sections([head, display.indent_table(rows)])
