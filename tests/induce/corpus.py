"""The recorded corpus: logs of failures that were provoked, so that their cause is certain."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "corpus"
NOT_ENVIRONMENT = (
    "not-environment", "healthy", "loss-diverged", "checkpoint-mismatch", "dataset-error", "stopped-by-user",
)  # fmt: skip
TAG = re.compile(r"^\[default(\d+)\]:(.*)$")
"""The prefix that torchrun's --tee gives to each line of a rank."""


@dataclass(frozen=True)
class Case:
    """One log with its truth.

    ``rank`` is the first failing rank where several ranks ran and one was first. ``ranks`` has each rank's own
    lines, ``agent`` those of the launcher, so that they can be interleaved anew. ``decisive`` are lines of the
    log that prove the cause. ``variant`` tells kinds apart that share a cause. ``file`` is where it is kept.
    """

    id: str
    cause: str
    log: str
    rank: int | None
    decisive: list[str]
    negative: bool
    how: str
    variant: str = ""
    ranks: dict[int, str] = field(default_factory=dict)
    agent: str = ""
    file: str = ""


def load(folder: Path = FOLDER) -> list[Case]:
    """Every recorded case, in the order of the files."""
    found: list[Case] = []
    for file in sorted(folder.glob("*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            found.append(opened(json.loads(line), file.name))
    return found


def opened(row: dict[str, Any], file: str = "") -> Case:
    """A row of a file as a case: a log of several ranks is kept once, with each line's rank before it."""
    text = row["log"]
    ranks, agent = split(text) if row.get("tagged") else ({}, "")
    log = untagged(text) if row.get("bare") else text
    kept = ("id", "cause", "rank", "decisive", "negative", "how", "variant")
    return Case(log=log, ranks=ranks, agent=agent, file=file, **{name: row[name] for name in kept})


def split(text: str) -> tuple[dict[int, str], str]:
    """The lines of each rank, and of the launcher."""
    ranks: dict[int, list[str]] = {}
    agent: list[str] = []
    for line in text.splitlines():
        tagged = TAG.match(line)
        if tagged:
            ranks.setdefault(int(tagged[1]), []).append(tagged[2])
        else:
            agent.append(line)
    return {rank: "\n".join(lines) + "\n" for rank, lines in sorted(ranks.items())}, "\n".join(agent) + "\n"


def untagged(text: str) -> str:
    """The same lines as torchrun prints them without --tee."""
    return "".join(TAG.sub(r"\2", line) + "\n" for line in text.splitlines())
