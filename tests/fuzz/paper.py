"""Machines of paper for the harnesses: every answer is a text that somebody else wrote."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from gpuready.system import AccessError, HostAccess, RunResult
from gpuready.workflow.refusal import Refused

REFUSALS = (ValueError, AccessError, Refused)
"""What a reader may raise: the callers turn each into one sentence."""

FOLDER = Path("/dev/shm") if os.path.isdir("/dev/shm") else Path(tempfile.gettempdir())
RECORDED = Path(__file__).parents[1] / "machines" / "h200.json"


class Paper(HostAccess):
    """A machine on which every file has the same text, every program says it, and nothing else is there."""

    def __init__(self, text: str, **requested: Any):
        self.text, self.answers = text, requested

    def answer_query(self, verb: str, *args: Any) -> Any:
        if verb in self.answers:
            return self.answers[verb]
        if verb == "read":
            return self.text
        if verb == "run":
            return RunResult(tuple(args[0]), 0, self.text).to_json()
        if verb == "stat":
            return {"kind": "file", "mode": 0o644, "uid": 0, "size": len(self.text), "mtime": 0.0}
        return None


@cache
def _tape() -> dict[str, Any]:
    tape: dict[str, Any] = json.loads(RECORDED.read_text())["tape"]
    return tape


class Doctored(HostAccess):
    """A real machine in which one answer, or every answer that was not recorded, is somebody else's."""

    def __init__(self, which: int, text: str):
        tape = _tape()
        self.text, self.key = (text, sorted(tape)[which % (len(tape) + 1) - 1] if which % (len(tape) + 1) else "")

    def answer_query(self, verb: str, *args: Any) -> Any:
        from gpuready.system.recording import query_key

        at, tape = query_key(verb, *args), _tape()
        if at == self.key or (not self.key and at not in tape):
            return self._said(verb, args)
        if at not in tape:
            raise AccessError("not recorded")
        answer = tape[at]
        if isinstance(answer, dict) and len(answer) == 1 and "access_error" in answer:
            raise AccessError(str(answer["access_error"]))
        return answer

    def _said(self, verb: str, args: tuple[Any, ...]) -> Any:
        if verb in ("list", "lines", "environ", "stat", "disk", "nvml"):
            try:
                return json.loads(self.text)
            except (ValueError, RecursionError):
                return self.text.split("\n") if verb in ("list", "lines") else None
        return RunResult(tuple(args[0]), 0, self.text, self.text).to_json() if verb == "run" else self.text


def text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def file(data: bytes, suffix: str = "", name: str = "") -> str:
    """The path of a file with these bytes; under a name of its own in a folder of this process."""
    path = FOLDER / f"gpuready-fuzz-{os.getpid()}{suffix}"
    if name:
        path.mkdir(exist_ok=True)
        path /= name
    path.write_bytes(data)
    return str(path)


def plain(*facts: Any) -> None:
    """Facts must be plain JSON: no number that JSON has no word for, nothing that is too deep."""
    for several in facts:
        json.dumps([fact.to_json() for fact in several], allow_nan=False)


def tried(reader: Callable[[str], object], reported: str) -> None:
    """A refusal is an answer."""
    try:
        reader(reported)
    except REFUSALS:
        return


def decoded(data: bytes) -> Any:
    """JSON that has arrived as such; ValueError where it is none."""
    try:
        return json.loads(text(data))
    except RecursionError:
        raise ValueError("nested too deeply") from None
