"""The facts of a machine: value and source of each; and what a recording of them has."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gpuready.check.changes import FactChange
from gpuready.model import NOT_STATED, Fact, Facts
from gpuready.model.facts import verdict_words
from gpuready.render import units
from gpuready.render.finding import fact_source
from gpuready.render.layout import PLAIN_SCREEN, Screen, join_sections


def render_fact_list(facts: Facts, screen: Screen = PLAIN_SCREEN) -> str:
    """Key, value and source in columns; a missing fact shows its gap in place of the source."""
    title = facts.host or "this machine"
    unknown = sum(bool(f.gap) for f in facts)
    head = screen.align_ends(title, f"{units.format_count(len(facts), 'fact')}, {unknown} unknown")
    rows = [(fact.key, units.format_fact_value(fact), fact_source(fact)) for fact in facts]
    return join_sections([head, screen.indent_table(rows)])


FILE_QUERIES = ("read", "lines", "list", "stat", "real", "elf", "elf_text", "disk")


def render_recording_summary(recording: Mapping[str, Any], screen: Screen = PLAIN_SCREEN) -> str:
    """Return how many facts and files a recording has, which variables, and which programs were run for it."""
    queries = [json.loads(key) for key in recording["tape"]]
    paths = {query[1] for query in queries if query[0] in FILE_QUERIES}
    programs = sorted({query[1][0].rpartition("/")[2] for query in queries if query[0] == "run"})
    variables = sorted(recording["tape"].get('["environ"]') or ())
    rows = [
        f"{len(recording['facts'])} facts, and answers about {len(paths)} files and folders",
        f"output of programs: {', '.join(programs) or 'none'}",
        f"variables: {', '.join(variables) or 'none'}",
    ]
    lines = [line for row in rows for line in screen.format_paragraph(row, 2)]
    end = "Known secrets are removed and only you can open the file (0600): read it before you send it."
    return "\n".join(["it has:", *lines, *screen.format_paragraph(end, 0)]) + "\n"


_OUTCOME_WORDS = {"holds": "passed", "undecided": verdict_words("undecided"), "": "does not apply"}


def render_fact_changes(changes: Sequence[FactChange], screen: Screen) -> str:
    """Worse first, then other verdict changes, then plain differences."""
    if not changes:
        return "nothing changed\n"
    groups = {
        "worse": [c for c in changes if c.is_worse],
        "judged otherwise": [c for c in changes if c.flips and not c.is_worse],
        "different": [c for c in changes if not c.flips],
    }
    told: set[str] = set()
    return join_sections(
        [title, *screen.indent_table([row for change in several for row in _fact_change_rows(change, told)])]
        for title, several in groups.items()
        if several
    )


def _fact_change_rows(change: FactChange, told: set[str]) -> list[tuple[str, str, str]]:
    """The values, and the rules that they flip; a rule is told at the first fact alone, and those that end are counted."""
    values = _format_list_change(change) or f"{_format_changed_fact(change.was)} -> {_format_changed_fact(change.now)}"
    new = [flip for flip in change.flips if flip.code not in told]
    told.update(flip.code for flip in new)
    flips = [
        f"{f.code}: {_OUTCOME_WORDS.get(f.was, f.was)} -> {_OUTCOME_WORDS.get(f.now, f.now)}" for f in new if f.now
    ]
    ended = sum(not flip.now for flip in new)
    flips += [f"{units.format_count(ended, 'check')} no longer appl{'ies' if ended == 1 else 'y'}"] if ended else []
    return [(change.key, values, change.now.source), *(("", text, "") for text in flips)]


def _format_list_change(change: FactChange) -> str:
    """``added LANG; removed CC``: of long lists without repetitions only what differs; empty for any other value."""
    was, now = change.was.value, change.now.value
    if not all(isinstance(value, (list, tuple)) and len(set(map(str, value))) == len(value) for value in (was, now)):
        return ""
    added, removed = [one for one in now if one not in was], [one for one in was if one not in now]
    if len(now) < 3 or len(added) + len(removed) >= len(now):
        return ""
    parts = {"added": added, "removed": removed}
    said = [f"{word} {units.format_any_value(several)}" for word, several in parts.items() if several]
    return "; ".join(said)


def _format_changed_fact(fact: Fact) -> str:
    return f"unknown ({fact.gap})" if fact.gap and fact.gap != NOT_STATED else units.format_fact_value(fact)
