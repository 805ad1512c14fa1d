"""A pytest plugin that watches the tests of the faults: what each command said, how it ended, how long it took.

Each test is watched from outside: every process that it starts is noted with its exit code and its first words, so
that a row of the table shows what a user would have seen, and not what a test says of itself.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.faults import bench
from tests.faults.leftovers import MARK
from tests.ranks import Ranks

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[2]
LONGEST = 160
OURS = re.compile(r'File "[^"\n]*gpuready/cli/__init__\.py"')
"""A frame that only a traceback of gpuready itself has: what a rank raises never passes through the command line."""

_VERDICT = re.compile(r'^(?:ready\b|.*"verdict": "ready")', re.MULTILINE)


class Watch:
    """What was seen of every test, by its file and name; the variants of one test are taken together."""

    def __init__(self, state: dict[str, dict[str, Any]] | None = None):
        self.tests: dict[str, dict[str, Any]] = state or {}
        self.now: dict[str, Any] | None = None
        self.variant = ""

    # -- the hooks --------------------------------------------------------------------------------------

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        # What a test starts carries the mark of this run, also where it is given an environment of its own.
        begin, talk, watch = subprocess.Popen.__init__, subprocess.Popen.communicate, self

        def started(process: Any, args: Any, *more: Any, **options: Any) -> None:
            process.began, process.words = time.monotonic(), args
            if options.get("env") is not None and MARK in os.environ:
                options["env"] = {**options["env"], MARK: os.environ[MARK]}
            begin(process, args, *more, **options)

        def ended(process: Any, *more: Any, **options: Any) -> Any:
            result = talk(process, *more, **options)
            watch.note(process, result)
            return result

        subprocess.Popen.__init__ = started  # type: ignore[method-assign]
        subprocess.Popen.communicate = ended  # type: ignore[method-assign]
        met = Ranks.run

        def meeting(ranks: Any, *each: Any, **options: Any) -> Any:
            found = met(ranks, *each, **options)
            watch.keep(of_ranks(found))
            return found

        Ranks.run = meeting  # type: ignore[method-assign]
        bench.FORKED = False  # a command is seen where a process is started
        bench.noted = lambda text: watch.of_test()["read"].append(short(text))

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        name, _, self.variant = item.nodeid.partition("[")
        self.now = self.begun(name)
        self.now["runs"] += 1

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        kept = self.tests.setdefault(report.nodeid.partition("[")[0], _blank())
        kept["duration"] += report.duration
        if report.failed:
            kept["failed"].append(str(report.longrepr).strip().splitlines()[-1][:200])
        elif report.skipped and report.when in ("setup", "call"):
            kept["skipped"].append(str(report.longrepr[2] if isinstance(report.longrepr, tuple) else "")[:200])
        if report.when == "teardown":
            kept["told"] += [list(value) for name, value in report.user_properties if name == "seen"]

    def pytest_sessionfinish(self) -> None:
        for kept in self.tests.values():
            kept["closed"] = True

    # -- processes --------------------------------------------------------------------------------------

    def begun(self, name: str) -> dict[str, Any]:
        if name not in self.tests or self.tests[name].get("closed"):  # an earlier run of it counts no longer
            self.tests[name] = _blank()
        return self.tests[name]

    def of_test(self) -> dict[str, Any]:
        """What is kept of the test that asks: found by its frame, as some tests run side by side in threads."""
        frame: Any = sys._getframe(1)
        while frame is not None:
            name, file = frame.f_code.co_name, frame.f_code.co_filename
            if name.startswith("test_") and file.startswith(f"{ROOT}/tests/"):
                return self.begun(f"{file[len(str(ROOT)) + 1 :]}::{name}")
            frame = frame.f_back
        return self.now if self.now is not None else _blank()

    def keep(self, rows: list[dict[str, Any]]) -> None:
        self.of_test()["commands"] += [row | {"variant": self.variant} for row in rows]

    def note(self, process: Any, reported: Any) -> None:
        words = [str(word) for word in process.words] if isinstance(process.words, (list, tuple)) else []
        out, err = (_text(one) for one in (reported or (b"", b"")))
        if any("rollcall.attend(" in word for word in words):
            self.keep(of_guest(out))
            return
        command = spoken(words)
        if command is None:
            return
        now = self.of_test()
        now["tracebacks"] += len(OURS.findall(out + err))
        now["ready"] += command[:1] != ["run"] and bool(_VERDICT.search(out))
        row = {"exit": process.returncode, "says": headline(out, err), "seconds": time.monotonic() - process.began}
        row["codes"] = findings(out)
        self.keep([row])


def _blank() -> dict[str, Any]:
    lists: dict[str, Any] = {name: [] for name in ("failed", "skipped", "told", "commands", "read")}
    return lists | {"runs": 0, "duration": 0.0, "tracebacks": 0, "ready": 0}


def of_ranks(found: list[Any]) -> list[dict[str, Any]]:
    """What ranks were told that called ``gpuready.launch``; where some were refused, what these were told."""
    rows = []
    for rank in found:
        refused = rank.err.partition("LaunchRefused: ")[2]
        says = short(" ".join((refused or rank.err or rank.out).split()))
        rows.append({"exit": rank.code, "says": says, "seconds": rank.seconds, "well": not refused})
    return [row for row in rows if not row["well"]] or rows


def of_guest(out: str) -> list[dict[str, Any]]:
    """What a rank was told at the roll-call; its seconds are those of the call."""
    try:
        answer = json.loads(out)
    except ValueError:
        return []
    well = bool(answer.get("go"))
    said = "; ".join(answer.get("notes") or ["goes on"]) if well else answer.get("said", "")
    return [{"exit": None, "says": short(" ".join(said.split())), "seconds": float(answer.get("s", 0)), "well": well}]


def _text(one: object) -> str:
    return one.decode("utf-8", "replace") if isinstance(one, bytes) else str(one or "")


def spoken(words: list[str]) -> list[str] | None:
    """The command line of gpuready in the words of a process; None where it is another program."""
    for at, word in enumerate(words[:8]):
        if "gpuready.cli import main" in word or word.endswith(("/bin/gpuready", "/bin/bench")):
            return words[at + 1 :]
        if word == "-m" and words[at + 1 : at + 2] == ["gpuready"]:
            return words[at + 2 :]
    return None


def headline(out: str, err: str) -> str:
    """What stands first in an answer: the gravest finding, the refusal, or the first line."""
    if out.startswith("{"):
        try:
            return _of_json(json.loads(out)) or short(err)
        except ValueError:
            pass
    for text in (out, err):
        for line in text.splitlines():
            if line.startswith(("  1  ", "error[", "warning[", "failed: ", "gpuready: ", "gpuready failed")):
                return short(line)
    return short(err) or short(out)


def _of_json(data: dict[str, Any]) -> str:
    found = data.get("findings") or [row for one in data.get("reports") or () for row in one.get("findings") or ()]
    verdict = str(data.get("verdict") or "")
    if found:
        return short(f"{verdict}: {found[0]['code']} {found[0]['says']}")
    unreadable = data.get("undecided") or []
    gap = next((fact.get("gap") for row in unreadable for fact in row.get("missing") or () if fact.get("gap")), "")
    return short(f"{verdict}: {gap}" if gap else str(data.get("says") or data.get("error") or verdict))


def findings(out: str) -> dict[str, str]:
    """What was found, by its code, where the answer is JSON."""
    try:
        data = json.loads(out) if out.startswith("{") else {}
    except ValueError:
        return {}
    rows = data.get("findings") or [row for one in data.get("reports") or () for row in one.get("findings") or ()]
    return {str(row["code"]): short(str(row["says"])) for row in rows[:20] if isinstance(row, dict) and "says" in row}


def short(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    line = re.sub(r"/\S*/(?:pytest-of-[^/]+/pytest-\d+|ft-\w+)(?:/[^/ ]+)?", "…", line)
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def hardware() -> str:
    here = os.uname()
    gpu = "with a GPU" if os.path.exists("/dev/nvidiactl") else "without GPU"
    python = ".".join(str(part) for part in sys.version_info[:2])
    return (
        f"{os.cpu_count()} cores, {here.machine}, Linux {'.'.join(here.release.split('.')[:2])}, {gpu}, Python {python}"
    )


def load(path: str) -> dict[str, dict[str, Any]]:
    """What earlier parts of a run have seen."""
    kept: dict[str, dict[str, Any]] = json.loads(Path(path).read_text()) if path and os.path.exists(path) else {}
    return kept
