"""A machine derived from a recorded one: the door answers from the real tape, but for what was changed.

The probes run over it as over any machine. What neither the tape nor a change tells of is not there: a derived machine
has no file that nobody put on it.
"""

from __future__ import annotations

import json
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from gpuready import probe
from gpuready.model import SCHEMA, Facts
from gpuready.system import AccessError, ReplayHost
from gpuready.system.recording import query_key

HERE = Path(__file__).parent
ABSENT = {"read": None, "list": None, "stat": None, "disk": None, "library": None, "which": None, "elf": None,
          "elf_text": [], "env": None, "libraries": {}, "lines": None}  # fmt: skip
"""What is said of something that is not there."""

FILE = {"kind": "file", "mode": 0o644, "uid": 0, "size": 1, "mtime": 1792188051.0}
FOLDER = {"kind": "dir", "mode": 0o755, "uid": 0, "size": 4096, "mtime": 1792188051.0}
DEVICE = {"kind": "char", "mode": 0o666, "uid": 0, "size": 0, "mtime": 1792188051.0}


@cache
def tape(name: str = "h200") -> dict[str, Any]:
    return json.loads((HERE / f"{name}.json").read_text())["tape"]


@lru_cache(maxsize=None, typed=True)  # 1 and True are other questions
def _named(verb: str, *args: Any) -> str:
    """The key of a question; redaction makes it dear, and every machine asks the same ones."""
    return query_key(verb, *args)


def _key(verb: str, *args: Any) -> str:
    return _named(verb, *args) if all(isinstance(arg, (str, int, float)) for arg in args) else query_key(verb, *args)


class Changes:
    """What differs from the recorded machine: files by path, variables, and whole answers by verb."""

    def __init__(self, *parts: Changes) -> None:
        self.files: dict[str, Any] = {}
        self.gone: list[str] = []
        self.variables: dict[str, str | None] = {}
        self.answers: dict[str, Any] = {}
        self.host = ""
        for part in parts:
            self.files |= part.files
            self.gone += [path for path in part.gone if path not in part.files]
            self.variables |= part.variables
            self.answers |= part.answers
            self.host = part.host or self.host

    def file(self, path: str, content: Any = "") -> Changes:
        """A file with this text; a dict is the status of a device or of a folder."""
        self.files[path] = content
        return self

    def remove(self, *paths: str) -> Changes:
        """These, and everything below them, are not there; what a later change puts there is."""
        self.gone += paths
        return self

    def env(self, **variables: str | None) -> Changes:
        self.variables |= variables
        return self

    def say(self, answer: Any, verb: str, *args: Any) -> Changes:
        self.answers[query_key(verb, *args)] = answer
        return self

    def unreadable(self, why: str, verb: str, *args: Any) -> Changes:
        return self.say({"access_error": why}, verb, *args)


class Altered(ReplayHost):
    """The door of a derived machine."""

    def __init__(self, changes: Changes, base: str = "h200") -> None:
        super().__init__(tape(base))
        self.changes = changes
        self.below: dict[str, set[str]] = {}
        for path in changes.files:
            folder, _, name = path.rpartition("/")
            while name:
                self.below.setdefault(folder or "/", set()).add(name)
                folder, _, name = folder.rpartition("/")

    def answer_query(self, verb: str, *args: Any) -> Any:
        at = _key(verb, *args)
        if at in self.changes.answers:
            return _said(self.changes.answers[at])
        if verb in ("env", "environ", "hostname"):
            return self._own(verb, *args)
        if args and isinstance(args[0], str) and verb in ("read", "list", "stat"):
            return self._file(verb, *args)
        if verb in ABSENT and args and isinstance(args[0], str) and self._gone(args[0]):
            return ABSENT[verb]
        if verb == "real" and at not in self.recording:
            return args[0]
        if verb in ABSENT and at not in self.recording:
            return ABSENT[verb]
        return super().answer_query(verb, *args)

    def _own(self, verb: str, *args: Any) -> Any:
        changed = self.changes.variables
        if verb == "hostname":
            return self.changes.host
        if verb == "env":
            return changed[args[0]] if args[0] in changed else self.recording.get(_key("env", args[0]))
        kept = {name: value for name, value in self.recording[_key("environ")].items() if name not in changed}
        return kept | {name: value for name, value in changed.items() if value is not None}

    def _gone(self, path: str) -> bool:
        return any(path == one or path.startswith(f"{one}/") for one in self.changes.gone)

    def _file(self, verb: str, path: str, *more: Any) -> Any:
        put, below = self.changes.files, self.below.get(path.rstrip("/") or "/", set())
        if verb == "list":
            return self._names(path, below)
        if path in put:
            content = put[path]
            if verb == "stat":
                return content if isinstance(content, dict) else FILE
            return (
                content[: more[0]]
                if isinstance(content, str) and more
                else (content if isinstance(content, str) else None)
            )
        if verb == "stat" and below:
            return FOLDER
        if self._gone(path):
            return None
        return self._taped(verb, path, *more)

    def _names(self, path: str, below: set[str]) -> list[str] | None:
        old = None if self._gone(path) else self._taped("list", path)
        kept = {name for name in old or () if not self._gone(f"{path.rstrip('/')}/{name}")}
        return None if old is None and not below and path not in self.changes.files else sorted(kept | below)

    def _taped(self, verb: str, *args: Any) -> Any:
        at = _key(verb, *args)
        return _said(self.recording[at]) if at in self.recording else ABSENT[verb]


def _said(answer: Any) -> Any:
    if isinstance(answer, dict) and len(answer) == 1 and "access_error" in answer:
        raise AccessError(str(answer["access_error"]))
    return answer


def facts(changes: Changes, python: str | None, distributions: tuple[str, ...] = ()) -> Facts:
    """What the probes make of it."""
    return probe.probe(Altered(changes), python, distributions)


def recording(found: Facts) -> dict[str, Any]:
    """The same as `gpuready probe -o` writes it, without the tape."""
    return {"schema": SCHEMA, "kind": "recording", "gpuready": "0.0.0", "host": found.host, "facts": found.to_json()}
