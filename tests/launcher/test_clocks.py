"""Deadlines by the clock that never jumps: the time of day is read only where it is told to somebody."""

from __future__ import annotations

import re
from pathlib import Path

import gpuready

SRC = Path(gpuready.__file__).parent
REPORTED = {
    "launcher/rank_watch.py": "how old a file is, which has the time of day",
    "launcher/run_events.py": "when an event was",
    "rollcall/hello.py": "compared between hosts, and only noted",
    "rollcall/server.py": "compared between hosts, and only noted",
}


def test_no_deadline_goes_by_the_time_of_day():
    folders = ("launcher", "rollcall", "runtime", "fleet")
    files = [path for folder in folders for path in (SRC / folder).rglob("*.py")]
    users = {
        path.relative_to(SRC).as_posix()
        for path in files
        if re.search(r"\btime\.time\(|datetime\.now\(", path.read_text())
    }
    assert users == set(REPORTED)
