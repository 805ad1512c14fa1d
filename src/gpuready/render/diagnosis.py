"""The screen of a diagnosis: cause, location, decisive log lines, consequences, fix."""

from __future__ import annotations

from gpuready.diagnosed import HEALTHY
from gpuready.render.escape import visible
from gpuready.render.finding import command_lines, safety
from gpuready.render.layout import Screen, columns
from gpuready.render.units import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from gpuready.diagnosed import Diagnosis, Evidence
    from gpuready.model import Step

LINES = 3
"""Shown without -v."""


def fields(found: Diagnosis) -> Mapping[str, Any]:
    return {"verdict": found.verdict, "exit": found.exit} | found.to_json()


def line(found: Diagnosis) -> str:
    """``cuda-oom MEM001 rank 3 on gpu-07: the job needs …``"""
    if found.verdict != "cause":
        return f"{found.verdict}: {visible(found.says)}\n"
    return f"{visible(found.cause)} {visible(found.code)}{_where(found)}: {visible(found.says)}\n"


def page(found: Diagnosis, screen: Screen | None = None, verbose: bool = False) -> str:
    on = screen or Screen()
    blocks = [_verdict(found, on)]
    if found.verdict == "cause":
        blocks += [
            _evidence(found, on, verbose),
            _after(found, on, verbose),
            _fix(found, on),
            _others(found, on),
        ]
    else:
        blocks += [_after(found, on, verbose)]
    blocks.append(_notes(found, on))
    blocks.append(_foot(found, on))
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _where(found: Diagnosis) -> str:
    rank = f" rank {found.rank}" if found.rank is not None else ""
    return rank + (f" on {visible(found.host)}" if found.host else "")


def _verdict(found: Diagnosis, on: Screen) -> list[str]:
    if found.verdict == "healthy":
        return on.led(f"{HEALTHY}:", visible(found.says), "ok")
    if found.verdict == "unknown":
        return on.led("no cause found:", visible(found.says), "undecided")
    lead = f"{visible(found.cause)}[{visible(found.code)}]:" if found.code else f"{visible(found.cause)}:"
    lines = on.led(lead, visible(found.says), "error")
    where = _where(found).strip()
    sure = f"{round(100 * found.confidence)} % sure"
    lines += _labelled("first", (where or "where is not told") + f", {sure}", on)
    if found.frame:
        frame = found.frame
        at = f"{visible(str(frame.get('file', '')))}, line {frame.get('line')}, in {visible(str(frame.get('function', '')))}"
        lines += _labelled("in", at, on)
    return lines + (_labelled("so", visible(found.so), on) if found.so else [])


def _labelled(label: str, text: str, on: Screen) -> list[str]:
    first, *rest = on.wrap(text, on.width - 9)
    return [on.paint(f"{label:>7}", "dim") + "  " + first, *(" " * 9 + line for line in rest)]


def _evidence(found: Diagnosis, on: Screen, verbose: bool) -> list[str]:
    """The decisive lines with their numbers; the first one with its neighbours."""
    lines: list[str] = []
    several = len(found.logs) > 1
    for i, one in enumerate(found.evidence if verbose else found.evidence[:LINES]):
        if several and one.source and (i == 0 or one.source != found.evidence[i - 1].source):
            lines.append(" " * 2 + on.paint(on.cut(visible(one.source), on.width - 2), "dim"))
        lines += _quoted(one, on, context=i == 0)
    return lines


def _quoted(one: Evidence, on: Screen, context: bool) -> list[str]:
    room = on.width - 9
    start = one.line - len(one.before)
    before = [(start + i, text) for i, text in enumerate(one.before)] if context else []
    after = [(one.line + 1 + i, text) for i, text in enumerate(one.after)] if context else []
    lines = [_numbered(number, on.cut(visible(text), room), on, False) for number, text in before]
    words = on.wrap(visible(one.text), room)
    lines += [_numbered(one.line if i == 0 else None, text, on, True) for i, text in enumerate(words[:5])]
    if len(words) > 5:
        lines[-1] = lines[-1] + on.ellipsis if columns(words[4]) < room else lines[-1]
    return lines + [_numbered(number, on.cut(visible(text), room), on, False) for number, text in after]


def _numbered(number: int | None, text: str, on: Screen, decisive: bool) -> str:
    shown = f"{number:>7}" if number else " " * 7
    mark = ">" if decisive and number else " "
    return (
        on.paint(shown, "dim") + mark + " " + (on.paint(text, "bold") if decisive else on.paint(text, "dim"))
    )


def _after(found: Diagnosis, on: Screen, verbose: bool) -> list[str]:
    rows = found.consequences if verbose else found.consequences[:3]
    lines = []
    for i, one in enumerate(rows):
        ranks = f", ranks {_ranks(one.ranks)}" if one.ranks else ""
        text = f"{visible(one.means)} ({counted(one.count, 'line')} from {one.line} on{ranks})"
        lines += _labelled("then" if i == 0 else "", text, on)
    left = len(found.consequences) - len(rows)
    return [*lines, *_labelled("", f"and {left} more of what followed: -v", on)] if left > 0 else lines


def _ranks(ranks: Sequence[int]) -> str:
    """``0-3, 5``"""
    parts: list[list[int]] = []
    for rank in ranks:
        if parts and rank == parts[-1][-1] + 1:
            parts[-1].append(rank)
        else:
            parts.append([rank])
    shown = [str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts]
    return ", ".join(shown[:8]) + (" and more" if len(shown) > 8 else "")


def _fix(found: Diagnosis, on: Screen) -> list[str]:
    lines = []
    for i, step in enumerate(found.fix[:4]):
        lines += _step("or" if i else "fix", step, on)
    return lines


def _step(label: str, step: Step, on: Screen) -> list[str]:
    how = safety(step) if step.run or step.note else ""
    texts = on.ends(visible(step.does), how, 9)
    lines = [
        (on.paint(f"{label:>7}", "dim") if i == 0 else " " * 7) + "  " + text for i, text in enumerate(texts)
    ]
    return lines + [" " * 9 + text for text in command_lines(step.run, on, 9)] if step.run else lines


def _others(found: Diagnosis, on: Screen) -> list[str]:
    lines = []
    for i, other in enumerate(found.alternatives[:2]):
        at = f", line {other.evidence[0].line}" if other.evidence else ""
        text = f"{visible(other.cause)}{f' ({visible(other.code)})' if other.code else ''}: {visible(other.says)}{at}"
        lines += _labelled("also" if i == 0 else "", text, on)
        if other.decide:
            lines += _labelled("", f"to decide: {visible(other.decide)}", on)
    return lines


def _notes(found: Diagnosis, on: Screen) -> list[str]:
    return [line for note in found.notes[:6] for line in on.led("note:", visible(note), "dim")]


def _foot(found: Diagnosis, on: Screen) -> list[str]:
    total = sum(log.lines for log in found.logs)
    name = visible(found.logs[0].name) if len(found.logs) == 1 else counted(len(found.logs), "log")
    left = f"read {counted(total, 'line')} of {name}"
    if found.verdict != "cause" or not found.code:
        return [on.cut(left, on.width)]
    return on.ends(on.cut(left, on.width - 24), f"gpuready explain {visible(found.code)}")
