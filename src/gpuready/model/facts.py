"""Facts: what was seen of a host, with its source, and the words for them. Field names are the JSON keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from gpuready.model.record import Record

if TYPE_CHECKING:
    from typing_extensions import Self


SCHEMA = 1
"""Version of every JSON document gpuready writes; raised when a field changes its meaning."""

NOT_STATED = "not stated"
"""Gap of a fact that a what-if leaves open: neither absent nor unknown."""


class Fact(Record):
    """One fact about the host, with its evidence.

    ``gap`` set: unknown, and why. ``value`` None without gap: confirmed absent.
    """

    key: str
    value: Any
    source: str = ""
    how: str = "read"  # read, run, log, or stated (a what-if or a flag)
    gap: str = ""

    @classmethod
    def from_json(cls, data: object) -> Self:
        fact = super().from_json(data)
        for field in ("key", "source", "how", "gap"):
            if not isinstance(getattr(fact, field), str):
                raise ValueError(f"the {field!r} of a fact must be text")
        return fact


class UnknownFactError(Exception):
    """A rule asked for a fact that is unknown; the rule becomes undecided."""

    def __init__(self, fact: Fact):
        super().__init__(f"{fact.key}: {fact.gap}")
        self.fact = fact


class Facts:
    """An immutable mapping of key to Fact, for one host."""

    __slots__ = ("_absent", "_facts", "host", "otherwise")

    def __init__(self, facts: Iterable[Fact], host: str = "", otherwise: str = "nothing looked for it"):
        self._facts: dict[str, Fact] = {f.key: f for f in facts}
        self._absent: dict[str, Fact] = {}  # asked for by many rules, made once
        self.host = host
        self.otherwise = otherwise  # gap of every fact that is not listed

    def __iter__(self) -> Iterator[Fact]:
        return iter(self._facts.values())

    def __len__(self) -> int:
        return len(self._facts)

    def __contains__(self, key: object) -> bool:
        return key in self._facts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Facts) and self._facts == other._facts and self.host == other.host

    __hash__ = None  # type: ignore[assignment]

    def fact(self, key: str) -> Fact:
        """The fact itself, gap or not. A package missing from the listing is absent, not unknown."""
        found = self._facts.get(key) or self._absent.get(key)
        if found is None:
            listing = self._facts.get(_LISTING_FACTS.get(key.partition(".")[0], ""))
            evidence = (listing.source, listing.how, listing.gap) if listing else ("", "read", self.otherwise)
            found = self._absent[key] = Fact(key, None, *evidence)
        return found

    def value(self, key: str) -> Any:
        """The value, or None where it is absent; raises UnknownFactError where it is unknown."""
        fact = self.fact(key)
        if fact.gap:
            raise UnknownFactError(fact)
        return fact.value

    def value_if_known(self, key: str) -> Any:
        """The value where it is known, else None: for evidence that is only additional."""
        fact = self.fact(key)
        return None if fact.gap else fact.value

    def without_tracking(self) -> Facts:
        """The same facts without tracking of the keys that are read."""
        same = Facts((), self.host, self.otherwise)
        same._facts, same._absent = self._facts, self._absent
        return same

    def with_facts(self, *facts: Fact) -> Facts:
        """Return these facts with others added or replaced."""
        return Facts([*self._facts.values(), *facts], self.host, self.otherwise)

    def to_json(self) -> list[dict[str, Any]]:
        return [f.to_json() for f in self]


_LISTING_FACTS = {"package": "python.packages", "env": "env.names"}
"""Families that are listed completely: a missing key is absent, or as unknown as the listing."""


VERDICT_WORDS = {"ready": "ready", "clear": "no problems found", "not-ready": "not ready", "undecided": "can't tell"}
OTHER_WORDS = {"unknown": "no cause found", "partly": "partly fixed", "undone": "taken back",
               "by-hand": "nothing that gpuready can change here"}  # fmt: skip
"""Of a diagnosis, and of a fix."""

UNSTATED_TEXT = "not given"
"""A value that a what-if machine was not given."""


def describe_gap(gap: str) -> str:
    """Why a fact is unknown, in words: a what-if machine was not given it, or what the probe says."""
    return UNSTATED_TEXT if gap == NOT_STATED else gap


def verdict_words(verdict: str) -> str:
    """``clear`` -> ``no problems found``; a verdict of another kind of result without its hyphens."""
    return (VERDICT_WORDS | OTHER_WORDS).get(verdict) or verdict.replace("-", " ")


HARDWARE_FACTS = ("gpu.capability", "gpu.name", "gpu.memory", "gpu.count", "gpu.pci_count", "gpu.vendor", "os.arch",
            "memory.total", "platform.name")  # fmt: skip
"""Facts that only another machine changes."""
FILE_KINDS = ("missing", "resized", "short", "changed", "unreadable", "damaged", "machine", "source", "source-gone")
"""Files that are not as they were installed: PKG043."""
LIBRARY_KINDS = ("library", "old-library", "other-torch", "python")
"""Whole extension modules that want what is not here: PKG047."""
NO_METADATA = "no-metadata"
NEED_KINDS = ("absent", "version", NO_METADATA)
"""What is required and is not there, or of another version: PKG044."""
NUMPY_KINDS = ("numpy",)
"""Extension modules that were compiled for another numpy: PKG046."""
COMMAND_KINDS = ("command", "command-gone")
"""Commands of bin/ that cannot be started, or are not there: PKG043."""


def is_cause(row: dict[str, Any], failed: dict[str, Any]) -> bool:
    """Whether the failure of an import is about a row."""
    error, name, file = (str(failed.get(key) or "") for key in ("error", "name", "file"))
    if row["kind"] in NEED_KINDS:
        module = str(row["distribution"]).replace("-", "_")
        is_raised_there = row["kind"] == "version" and _package_of(file) == str(row["by"]).replace("-", "_")
        return name.partition(".")[0].lower() == module or f"'{module}" in error or is_raised_there
    path, parts, library = str(row["path"]), name.replace(".", "/"), find_missing_library(failed)
    if row["kind"] in NUMPY_KINDS and _package_of(path) in map(_package_of, failed.get("chain") or ()):
        return True
    if library and (path.endswith(f"/{library}") or library in row["detail"]):
        return True
    is_named = bool(parts) and path.endswith((f"/{parts}.py", f"/{parts}/__init__.py"))
    is_extension = bool(parts) and f"/{parts}." in path and path.endswith(".so")
    return bool(path) and (is_named or is_extension or path == file or path in error)


def explain_failure(rows: Iterable[dict[str, Any]], failed: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows that a failure is about; where none is, what is damaged of all that a root requires."""
    causes = [row for row in rows if is_cause(row, failed)]
    damaged = [row for row in rows if row["kind"] in FILE_KINDS and row["roots"]]
    return causes if causes or find_missing_library(failed) else damaged


def find_missing_library(failed: dict[str, Any]) -> str:
    """``libGL.so.1`` of ``ImportError: libGL.so.1: cannot open shared object file``; empty for any other failure."""
    words, sign, _ = str(failed.get("error")).partition(": cannot open shared object file")
    name = words.rpartition(" ")[2].rpartition("/")[2]
    return name if sign and ".so" in name else ""


def _package_of(path: str) -> str:
    """``numpy`` of /venv/lib/python3.12/site-packages/numpy/dtypes.py."""
    return path.partition("-packages/")[2].partition("/")[0]
