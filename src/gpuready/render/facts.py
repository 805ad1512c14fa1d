"""The facts of a machine: value and source of each; and what a recording of them has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

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


FILE_QUERIES = ("read", "lines", "list", "stat", "real", "elf", "elf_text", "disk")


def render_recording_summary(recording: Mapping[str, Any], screen: Screen | None = None) -> str:
    """Return how many facts and files a recording has, which variables, and which programs were run for it."""
    display = screen or Screen()
    queries = [json.loads(key) for key in recording["tape"]]
    paths = {query[1] for query in queries if query[0] in FILE_QUERIES}
    programs = sorted({query[1][0].rpartition("/")[2] for query in queries if query[0] == "run"})
    variables = sorted(recording["tape"].get('["environ"]') or ())
    rows = [
        f"{len(recording['facts'])} facts, and answers about {len(paths)} files and folders",
        f"output of programs: {', '.join(programs) or 'none'}",
        f"variables: {', '.join(variables) or 'none'}",
    ]
    lines = [line for row in rows for line in display.format_paragraph(row, 2)]
    end = "Known secrets are removed and only you can open the file (0600): read it before you send it."
    return "\n".join(["it has:", *lines, *display.format_paragraph(end, 0)]) + "\n"
