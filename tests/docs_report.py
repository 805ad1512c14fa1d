"""The page of ``make docs-run REPORT=FILE``: what was run, in which form, and how each command ended."""

from __future__ import annotations

import collections
import os
import platform
import subprocess
from datetime import date
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
HEAD = """# Every command of README, tutorial and how-to pages, executed

`make docs-run` takes the commands of the pages in their order, each page in a shell and a folder of its own; `tests/docs_commands.toml` says what is run smaller and what is not run.
A question (`check`, `prove`, `bench`, `diagnose`, `fit`, `fleet`, `report`) may be answered with exit 1 (not ready) or 3 (can't tell); every other command has to succeed, unless the table says
which exit is right on this machine.
"""
NOTES = """
Exit 2: no node gpu-1, no GPU for a job's steps or its record and no Ray here, and no generation before the first; the refusal says so. Exit 124: a server or a follower, stopped after 5 seconds.
Exit 1 of the `prove` lines without `--python`: the environment of the tests has no torch, so that no proof was executed by them; those of the tutorial and of `prove trainer --wants cpu` were, on the CPU.
"""


class Ran(NamedTuple):
    """A command of a page: ``result`` is ``exit N``, ``not run`` or ``FAILED``, with the rest of the sentence."""

    command: str
    result: str
    seconds: float
    run_as: str = ""


def write_report(path: Path, rows: list[Ran]) -> None:
    skipped: dict[str, list[str]] = collections.defaultdict(list)
    for row in rows:
        if row.result.startswith("not run: "):
            skipped[row.result.removeprefix("not run: ")].append(row.command)
    failed = [row for row in rows if row.result.startswith("FAILED")]
    ran = [row for row in rows if row.result.startswith("exit ")]
    exits = collections.Counter(int(row.result.split()[1]) for row in ran)
    other = [row for row in ran if not row.result.startswith("exit 0")]
    again = [row for row in ran if row.result.startswith("exit 0") and row.run_as not in ("", row.command)]
    parts = [
        HEAD,
        *_describe_run(rows, len(ran), len(failed), exits),
        _table("Failed", ("result", "command"), [(row.result, f"`{row.command}`") for row in failed]) if failed else "",
        _table("Not run", ("reason", "commands"), [(why, "; ".join(f"`{c}`" for c in cs)) for why, cs in skipped.items()]),
        _table("Ended with another exit than 0", ("exit", "command", "run as"), [(row.result.split()[1], *_forms(row)) for row in other]),
        NOTES,
        _table("Run in another form, with exit 0", ("command", "run as"), [_forms(row) for row in again]),
    ]  # fmt: skip
    path.write_text("\n".join(part for part in parts if part).rstrip("\n") + "\n", encoding="utf-8")


def _describe_run(rows: list[Ran], ran: int, failed: int, exits: collections.Counter[int]) -> list[str]:
    words = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    minutes = sum(row.seconds for row in rows) / 60
    return [
        f"- date: {date.today().isoformat()}, commit {commit}",
        f"- hardware: {os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        f"- command: `make docs-run`, in one piece: {minutes:.0f} minutes in the commands",
        f"- {len(rows)} commands: {ran} run, {len(rows) - ran - failed} not run, {failed} failed",
        "- exits: " + ", ".join(f"{code}: {count}" for code, count in sorted(exits.items())),
    ]


def _forms(row: Ran) -> tuple[str, str]:
    return f"`{row.command}`", f"`{row.run_as}`" if row.run_as else ""


def _table(title: str, heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [f"\n## {title}\n", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)])
