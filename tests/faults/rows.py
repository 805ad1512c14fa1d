"""The cases as rows of one table, and the sums below it. Nothing is run here."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent
SLACK = 0.5
"""What a deadline may be missed by, in seconds."""

BUDGETS = {"D": 60.0}
"""Whatever is broken of a machine, a check has ended by then."""

COUNTS = {"A": 58, "B": 16, "C": 23, "D": 64, "E": 35, "F": 24, "G": 18}
COLUMNS = ("id", "fault", "how", "expected", "seen", "seconds", "outcome")
CODED = re.compile(r"[A-Z]{3}\d{3} ")
WORDS = ("not run:", "record:")

Case = dict[str, Any]
Tests = dict[str, dict[str, Any]]


def cases(only: str = "") -> list[Case]:
    """Every case, by its number; ``A,D01`` takes a part of them."""
    every: list[Case] = tomllib.loads((HERE / "cases.toml").read_text())["case"]
    wanted = tuple(word for word in only.split(",") if word)
    found = [case for case in every if not wanted or case["id"].startswith(wanted)]
    return sorted(found, key=lambda case: str(case["id"]))


def tests(some: list[Case]) -> list[str]:
    """The tests that the cases name, each once."""
    return list(dict.fromkeys(name for case in some for name in named(case)))


def named(case: Case) -> list[str]:
    return [where for where in case["where"] if not where.startswith(WORDS)]


def table(some: list[Case], seen: Tests) -> str:
    lines = [_line(COLUMNS), "|---" * len(COLUMNS) + "|"]
    return "\n".join([*lines, *(_line(row(case, seen)) for case in some)]) + "\n"


def _line(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |"


def row(case: Case, seen: Tests) -> tuple[str, ...]:
    return (
        case["id"],
        case["fault"],
        _how(case),
        case["expect"],
        what(case, seen),
        f"{seconds(case, seen):.2f}" + ("" if within(case) is None else f" of {within(case):g}"),
        outcome(case, seen),
    )


def _how(case: Case) -> str:
    reasons = [where.partition(": ")[2] for where in case["where"] if where.startswith("not run:")]
    return case["how"] + (f" (not run on a GPU: {reasons[0]})" if reasons and case["how"] != "not run" else "")


def _watched(case: Case, seen: Tests) -> list[tuple[str, dict[str, Any]]]:
    return [(name, seen[name]) for name in named(case) if name in seen]


def what(case: Case, seen: Tests) -> str:
    """What a user would have seen: told by a test, else by a command, else what the tests say that holds."""
    watched = _watched(case, seen)
    result = [row[2] for _, one in watched for row in one["told"] if case["id"] in str(row[0])]
    found = [*_recorded(case)[:1], *(result[:1] or _said(case, watched) or _kept(watched)[:1])]
    return "; ".join(found) or reason(case)


def _recorded(case: Case) -> list[str]:
    records = [where.split(": ", 2)[1:] for where in case["where"] if where.startswith("record:")]
    return [f"in {file.rpartition('/')[2]}: {words}" for file, words in records]


def _kept(watched: list[tuple[str, dict[str, Any]]]) -> list[str]:
    """The names of tests that ran no command of their own; each says what holds."""
    well = [name for name, one in watched if not one["failed"] and not _skipped(one) and not one["commands"]]
    return [f"holds: {name.rpartition('::test_')[2].replace('_', ' ')}" for name in well]


def _said(case: Case, watched: list[tuple[str, dict[str, Any]]]) -> list[str]:
    """The finding that the case expects, else what the tests read of an answer or the last command said."""
    commands = _chosen(case, [row for _, one in watched for row in one["commands"] if row["says"]])
    for code in re.findall(r"[A-Z]{3}\d{3}", case["expect"]):
        for row in commands:
            if code in row.get("codes", {}):
                return [f"{_exit(row)}{code} {row['codes'][code]}"]
    if not commands:
        return []
    read = _read([text for _, one in watched for text in one.get("read", ())])
    return [_exit(commands[-1]) + (read or commands[-1]["says"]), *([] if read else _kept(watched)[:1])]


def _chosen(case: Case, commands: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of the variant that has the name of the case; then those that ended otherwise than well."""
    named = case["id"].lower()
    commands = [row for row in commands if named in row.get("variant", "")] or commands
    return [row for row in commands if row["exit"] != 0 and not row.get("well")] or commands


def _read(texts: list[str]) -> str:
    """What tests read of answers: findings first, then what was unknown, then values; three at most."""
    order = sorted(dict.fromkeys(texts), key=lambda text: (not CODED.match(text), " unknown: " not in text))
    return "; ".join(order[:3])


def _exit(row: dict[str, Any]) -> str:
    """A rank at the roll-call has no exit code of gpuready's."""
    return "" if row["exit"] is None else f"exit {row['exit']}: "


def reason(case: Case) -> str:
    return next((where.partition(": ")[2] for where in case["where"] if where.startswith("not run:")), "nothing")


def _skipped(one: dict[str, Any]) -> bool:
    return len(one["skipped"]) >= max(1, one["runs"])


def seconds(case: Case, seen: Tests) -> float:
    """Those told by a test, else of the slowest command, else of the slowest test."""
    watched = [one for _, one in _watched(case, seen)]
    result = [float(row[3]) for one in watched for row in one["told"] if case["id"] in str(row[0])]
    commands = [row for one in watched for row in one["commands"]]
    named = [row for row in commands if case["id"].lower() in row.get("variant", "")] or commands
    taken = [row["seconds"] for row in [row for row in named if not row.get("well")] or named]
    each = [one["duration"] / max(1, one["runs"]) for one in watched]
    return max(result or taken or each or [0.0])


def within(case: Case) -> float | None:
    """The deadline of a case: its own, or that of its chapter."""
    found: float | None = case.get("within", BUDGETS.get(str(case["id"])[0]))
    return found


def late(case: Case, seen: Tests) -> bool:
    limit = within(case)
    return limit is not None and seconds(case, seen) > limit + SLACK


def outcome(case: Case, seen: Tests) -> str:
    watched = [one for _, one in _watched(case, seen)]
    failed = [line for one in watched for line in one["failed"]]
    if failed:
        return f"FAILED: {failed[0]}"
    if not named(case):
        return "recorded" if case["how"] == "recorded" else "not run"
    missing = len(named(case)) - len(watched)
    if missing:
        return f"{missing} of {len(named(case))} tests not run"
    if all(_skipped(one) for one in watched):
        return f"skipped: {watched[0]['skipped'][0]}"
    return "late" if late(case, seen) else "passed"


def besides(seen: Tests) -> str:
    """What was told by tests that no case names: the same faults under the real engines, and the budget of a check."""
    named_tests = set(tests(cases()))
    result = [row for name, one in seen.items() if name not in named_tests for row in one["told"]]
    rows = [_line((str(case), wanted, found, f"{float(taken):.2f}")) for case, wanted, found, taken in result]
    if not rows:
        return ""
    return "\n".join(["", _line(("besides", "expected", "seen", "seconds")), "|---" * 4 + "|", *rows]) + "\n"


def sums(some: list[Case], seen: Tests, left: dict[str, list[str]]) -> str:
    """The sums of a run, one on each line."""
    ends: dict[str, int] = {}
    for case in some:
        word = outcome(case, seen).partition(":")[0]
        word = "incomplete" if word.endswith("not run") and word != "not run" else word
        ends[word] = ends.get(word, 0) + 1
    how = {name: sum(case["how"] == name for case in some) for name in ("injected", "replayed", "recorded", "not run")}
    timed = [case for case in some if within(case) is not None]
    held = [case for case in timed if not late(case, seen)]
    skipped = [f"{name.rpartition('::')[2]}: {one['skipped'][0]}" for name, one in seen.items() if one["skipped"]]
    lines = [
        f"- cases: {len(some)}: " + ", ".join(f"{count} {word}" for word, count in ends.items()),
        "- how: " + ", ".join(f"{count} {word}" for word, count in how.items()),
        f"- tests: {len(seen)}, with {sum(one['runs'] for one in seen.values())} variants; commands watched: "
        f"{sum(len(one['commands']) for one in seen.values())}",
        f"- tests that were skipped, or variants of them: {len(skipped)}" + "".join(f"; {text}" for text in skipped),
        f"- tracebacks of gpuready: {sum(one['tracebacks'] for one in seen.values())}",
        f"- false ready: {sum(one['ready'] for one in seen.values())}",
        f"- leftovers: {sum(map(len, left.values()))}" + _listed(left),
        f"- deadlines held (with {SLACK:g} s): {len(held)} of {len(timed)}",
    ]
    return "\n".join(lines) + "\n"


def _listed(left: dict[str, list[str]]) -> str:
    kinds = ", ".join(f"{len(found)} {kind}" for kind, found in left.items())
    first = "; ".join(f"{kind}: {', '.join(found[:4])}" for kind, found in left.items() if found)
    return f" ({kinds}{'; ' + first if first else ''})"


def bad(some: list[Case], seen: Tests, left: dict[str, list[str]]) -> bool:
    wrong = any(one["tracebacks"] or one["ready"] for one in seen.values())
    return wrong or any(left.values()) or any(late(case, seen) for case in some)
