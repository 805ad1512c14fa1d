"""CUDA releases: what NVIDIA's packages tell of them, and what nobody but a person can."""

from typing import Any

from packaging.version import Version

from refresh.index import File, Index
from refresh.text import NEW, TODO, Change, replace_row, touched

TOOLKIT, COMPILER = "cuda-toolkit", "nvidia-cuda-nvcc"
# No package carries these: they are in NVIDIA's release notes, or printed by a compiler that would have to be run.
BY_HAND = "driver_floor, driver_full or driver_branch, targets, forward, gcc"


def changes(data: dict[str, Any], index: Index, only: list[str]) -> list[Change]:
    """Updates of known releases that the catalogue lacks, and releases that are wholly new."""
    rows = {row["version"]: row for row in data["cuda"]}
    found: list[Change] = []
    for version, files in index.releases(TOOLKIT).items():
        minor = f"{version.major}.{version.minor}"
        public = ".".join(str(part) for part in (*version.release, 0, 0)[:3])
        key = f"cuda/{minor}/updates/{public}"
        if not touched(key, only):
            continue
        if minor in rows and all(update["version"] != public for update in rows[minor]["updates"]):
            found.append(_update(key, rows[minor], _entry(public, files, index), f"PyPI metadata of {files[0].name}"))
        elif minor not in rows and Version(minor) > max(map(Version, rows)):
            says = f"new: {_reported(_entry(public, files, index))}; a row needs {BY_HAND}, which no package carries"
            found.append(Change(TODO, f"cuda/{minor}", says))
    return found


def _update(key: str, row: dict[str, Any], entry: dict[str, Any], source: str) -> Change:
    """One update of a known release."""
    row["updates"] = sorted([*row["updates"], entry], key=lambda update: Version(update["version"]))
    if isinstance(row["source"], dict):
        row["source"] = row["source"] | {"updates": source}
    return Change(NEW, key, f"{_reported(entry)} ({source})", lambda text: replace_row(text, "cuda", "version", row))


def _entry(public: str, files: list[File], index: Index) -> dict[str, Any]:
    """An entry of ``updates``: the day of the package, and the compiler that it pins."""
    entry = {"version": public}
    day = min((f.day for f in files if f.day), default="")
    wheel = next((f for f in files if f.tags), None)
    pinned = [r for r in index.metadata(wheel).requires if r.name.startswith(COMPILER)] if wheel else []
    nvcc = {s.version.removesuffix(".*") for r in pinned for s in r.specifier if s.operator == "=="}
    return entry | ({"date": day} if day else {}) | ({"nvcc": nvcc.pop()} if len(nvcc) == 1 else {})


def _reported(entry: dict[str, Any]) -> str:
    return ", ".join(v if k == "version" else f"{k} {v}" for k, v in entry.items())
