"""Findings on the screen, and rules without a verdict: undecided, not stated, ignored."""

from __future__ import annotations

from gpuready.model import NOT_STATED
from gpuready.render import units
from gpuready.render.escape import command, visible
from gpuready.render.layout import columns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuready.model import Fact, Finding, Ignored, Need, Report, Step, Undecided
    from gpuready.render.layout import Screen

_TEXT = 9
"""The column where a finding's text begins: after ``  found  ``."""

_SAFETY = {"safe": "safe", "ask": "asks first"}
_OPENERS = ("The", "A", "An", "No", "This", "These", "Two", "One", "Nothing", "Some", "More", "It", "There")


def block(finding: Finding, screen: Screen) -> list[str]:
    """One finding: headline, found, needs, so, fix. An info finding is only its headline."""
    lead = f"{visible(finding.severity)}[{visible(finding.code)}]:"
    role = finding.severity if finding.severity in ("error", "warning") else "info"
    lines = screen.led(lead, visible(finding.says), role)
    if finding.severity == "info":
        return lines
    return [*lines, *_evidence(finding, screen), *_so(finding, screen), *_fixes(finding, screen)]


def _evidence(finding: Finding, screen: Screen) -> list[str]:
    """Found and needed values in the same columns: key, value, source."""
    rows = [(*_found(fact), "found") for fact in finding.found]
    rows += [(*_needed(need), "needs") for need in finding.needs]
    table = screen.table([row[:3] for row in rows], _TEXT, (4, 3))
    lines, last = [], ""
    for row, cells in zip(rows, table, strict=True):
        lines += _labelled("" if row[3] == last else row[3], cells, screen)
        last = row[3]
    return lines


def _found(fact: Fact) -> tuple[str, str, str]:
    source = fact.gap if fact.gap and fact.gap != NOT_STATED else fact.source
    return visible(fact.key), visible(units.value(fact)), visible(source)


def _needed(need: Need) -> tuple[str, str, str]:
    where = visible(need.cite)
    if need.when:
        where = f"{where}; {condition(need.when)}" if where else condition(need.when)
    return visible(need.key), want(need.want), where


def want(text: str) -> str:
    """``>=2.2,<=2.5.1`` -> ``>= 2.2, <= 2.5.1``; ``==2.6|==2.8`` -> ``2.6 or 2.8``; ``*`` -> ``present``."""
    if text.strip() == "*":
        return "present"
    choices = [[visible(c.strip()) for c in choice.split(",")] for choice in text.split("|")]
    lone = len(choices) > 1 and all(len(clauses) == 1 for clauses in choices)
    return " or ".join(", ".join(_spaced(c, lone) for c in clauses) for clauses in choices)


def condition(when: str) -> str:
    """``wants=fp8|fp4,gpus>1`` -> ``when wants=fp8 or fp4, gpus>1``"""
    return "when " + visible(when).replace("|", " or ").replace(",", ", ")


def _spaced(clause: str, lone: bool) -> str:
    bound = clause.lstrip("<>=!~")
    operator = clause[: len(clause) - len(bound)]
    number = bound.strip().rstrip("KMGTiB")
    if number and number != bound.strip() and number[-1].isdigit():
        bound = f"{number} {bound.strip()[len(number) :]}"
    if not operator or (lone and operator == "=="):
        return bound.strip()
    return f"{operator} {bound.strip()}"


def _so(finding: Finding, screen: Screen) -> list[str]:
    if not finding.so:
        return []
    return _labelled("so", screen.wrap(visible(finding.so), screen.width - _TEXT), screen)


def _fixes(finding: Finding, screen: Screen) -> list[str]:
    lines = []
    for i, step in enumerate(finding.fix):
        lines += _labelled("or" if i else "fix", _step(step, screen), screen)
    return lines


def _step(step: Step, screen: Screen) -> list[str]:
    lines = screen.ends(visible(step.does), safety(step), _TEXT)
    if step.run:
        lines += command_lines(step.run, screen, _TEXT)
    return lines


def safety(step: Step) -> str:
    """``safe``, ``asks first``, or ``by hand`` with its note."""
    return _SAFETY.get(step.safety) or visible(step.note) or "by hand"


def command_lines(words: tuple[str, ...], screen: Screen, start: int) -> list[str]:
    """Break a command only between words, with ``\\`` at the end of the line, so that it can be pasted."""
    room = screen.width - start - 6
    lines, line = [], ""
    for word in (screen.cut(w, room) for w in command(words)):
        if line and columns(line) + 1 + columns(word) > room:
            lines.append(line + " \\")
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [("  $ " if i == 0 else "    ") + text for i, text in enumerate([*lines, line])]


def _labelled(label: str, lines: list[str], screen: Screen) -> list[str]:
    """Indent lines to the text column, the first one with its label."""
    first = screen.paint(f"{label:>7}", "dim") if label else " " * 7
    return [(first if i == 0 else " " * 7) + "  " + line for i, line in enumerate(lines)]


# -- rules without a verdict ---------------------------------------------------------------------------


def undecided(several: Sequence[Undecided], screen: Screen) -> list[str]:
    """``? GPU004 cannot tell whether …: gpu.capability unknown, permission denied``; more than four in one sentence."""
    if len(several) > 4:
        return _many(several, screen)
    return [line for item in several for line in _one(item, screen)]


def _many(several: Sequence[Undecided], screen: Screen) -> list[str]:
    """Rules that are undecided for the same reason: the reason once, then their codes."""
    keys = list(dict.fromkeys(visible(fact.key) for item in several for fact in item.missing))
    reason = visible("; ".join(dict.fromkeys(fact.gap for fact in several[0].missing)))
    codes = ", ".join(visible(item.code) for item in several)
    shown = ", ".join(keys[:4]) + (f" and {len(keys) - 4} more" if len(keys) > 4 else "")
    said = f"{len(several)} rules cannot tell, because {shown} cannot be seen ({reason}): {codes}"
    return screen.led("?", said, "undecided")


def _one(item: Undecided, screen: Screen) -> list[str]:
    missing = "; ".join(f"{visible(f.key)} unknown, {visible(f.gap)}" for f in item.missing)
    says = f"cannot tell whether {continued(visible(item.says))}"
    return screen.led(f"? {visible(item.code)}", f"{says}: {missing}" if missing else says, "undecided")


def continued(title: str) -> str:
    """Lower-case an opening word inside a sentence: ``The driver is`` -> ``the driver is``; names keep their capitals."""
    first, space, rest = title.partition(" ")
    return f"{first.lower()}{space}{rest}" if first in _OPENERS else title


def unstated(report: Report, screen: Screen, settle: str) -> list[str]:
    """The facts a what-if leaves open, each with the rules that need it, and the command that settles them."""
    waiting: dict[str, list[str]] = {}
    for item in report.unstated:
        for fact in item.missing:
            waiting.setdefault(visible(fact.key), []).append(visible(item.code))
    lead = f"not stated: {units.counted(len(report.unstated), 'rule')} left open"
    lines = screen.ends(lead, screen.cut(settle, screen.width))
    rows = [(key, ", ".join(codes)) for key, codes in waiting.items()]
    return lines + ["  " + line for row in screen.table(rows, 2) for line in row]


def ignored(item: Ignored, screen: Screen) -> list[str]:
    finding = item.finding
    says = f"{visible(finding.says)}; reason: {visible(item.reason)}"
    return screen.led(f"ignored {visible(finding.severity)}[{visible(finding.code)}]:", says, "dim")
