"""CUDA releases: what NVIDIA's packages tell of them, and what nobody but a person can."""

from __future__ import annotations

import re
from typing import Any

from packaging.version import Version

from refresh.changes import NEW, TODO, Change, touched
from refresh.index import File, Index
from refresh.text import Document
from refresh.web import Missing

TOOLKIT, COMPILER = "cuda-toolkit", "nvidia-cuda-nvcc"
RUNTIMES = ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12")
HOST = "include/crt/host_config.h"
GCC = re.compile(r"__GNUC__\s*>\s*(\d+)")
# No package carries these: they are in NVIDIA's release notes, or printed by a compiler that would have to be run.
BY_HAND = "driver_floor, driver_full or driver_branch, targets, forward"


def changes(data: dict[str, Any], index: Index, only: list[str]) -> list[Change]:
    """Updates of known releases that the catalogue lacks, and releases that are wholly new."""
    rows = {row["version"]: row for row in data["cuda"]}
    found: list[Change] = []
    for version, files in index.releases(TOOLKIT).items():
        minor = f"{version.major}.{version.minor}"
        public = ".".join(str(part) for part in (*version.release, 0, 0)[:3])
        if not touched(f"cuda/{minor}/updates/{public}", only):
            continue
        if minor in rows:
            found += _update(rows[minor], public, files, index)
        elif Version(minor) > max(Version(v) for v in rows):
            found.append(_release(minor, public, files, index))
    return found + (_ahead(rows, index) if not only else [])


def _update(row: dict[str, Any], public: str, files: list[File], index: Index) -> list[Change]:
    """One update of a known release; an older one that is there already is only compared."""
    known = next((u for u in row["updates"] if u["version"] == public), None)
    key = f"cuda/{row['version']}/updates/{public}"
    if known is not None:
        return []  # its days are NVIDIA's own, which packages do not give
    learned = _entry(public, files, index)
    source = f"PyPI metadata of {files[0].name}"

    def edit(document: Document) -> None:
        at = document.find("cuda", "version", row["version"])
        assert at is not None
        updates = [*document.blocks[at].values["updates"], learned]
        document.blocks[at].set("updates", sorted(updates, key=lambda u: Version(u["version"])))
        result = document.blocks[at].values["source"]
        if isinstance(result, dict):
            document.blocks[at].set("source", result | {"updates": source})

    return [Change(NEW, key, f"{_reported(learned)} ({source})", edit)]


def _entry(public: str, files: list[File], index: Index) -> dict[str, Any]:
    """An entry of ``updates``: the day of the package, and the compiler that it pins."""
    entry = {"version": public}
    day = min((f.day for f in files if f.day), default="")
    wheel = next((f for f in files if f.tags), None)
    pinned = [r for r in index.metadata(wheel).requires if r.name.startswith(COMPILER)] if wheel else []
    nvcc = {s.version.removesuffix(".*") for r in pinned for s in r.specifier if s.operator == "=="}
    return entry | ({"date": day} if day else {}) | ({"nvcc": nvcc.pop()} if len(nvcc) == 1 else {})


def _release(minor: str, public: str, files: list[File], index: Index) -> Change:
    """A release without a row: what could be read, and what a person has to find."""
    learned = _entry(public, files, index)
    gcc = _gcc_max(minor, index)
    says = f"new: {_reported(learned)}{f', gcc up to {gcc}' if gcc else ''}; a row needs {BY_HAND}, which no package carries"
    return Change(TODO, f"cuda/{minor}", says)


def _reported(entry: dict[str, Any]) -> str:
    return ", ".join(v if k == "version" else f"{k} {v}" for k, v in entry.items())


def _gcc_max(minor: str, index: Index) -> str:
    """The newest gcc that the compiler of a release accepts, out of its header."""
    try:
        releases = index.releases("nvidia-cuda-crt")
    except Missing:
        return ""  # a mirror need not have it, and a person looks at the row anyway
    for version, files in reversed(releases.items()):
        wheel = next((f for f in files if f.linux("x86_64")), None)
        if wheel and f"{version.major}.{version.minor}" == minor:
            opened = index.wheel(wheel)
            header = next((m for m in opened.members if m.endswith(HOST)), "")
            seen = GCC.search(opened.text(header) or "") if header else None
            return seen[1] if seen else ""
    return ""


def _ahead(rows: dict[str, Any], index: Index) -> list[Change]:
    """A runtime of a release that no row knows and no toolkit package announces yet."""
    announced = {f"{v.major}.{v.minor}" for v in index.releases(TOOLKIT)}
    found = []
    for project in RUNTIMES:
        newest = max(index.releases(project), default=None)
        minor = f"{newest.major}.{newest.minor}" if newest else ""
        if minor and minor not in rows and minor not in announced:
            found.append(Change(TODO, f"cuda/{minor}", f"{project} {newest} is out; a row needs {BY_HAND}"))
    return found
