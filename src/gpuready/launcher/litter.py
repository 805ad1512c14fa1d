"""Remove what dead ranks leave in shared memory, if it is provably theirs."""

from __future__ import annotations

import os

from gpuready.launcher import pulse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

SHM = "/dev/shm"
_ANONYMOUS = ("nccl-", "psm_", "sem.mp-", "cuda.shm.")
"""Prefixes of names that contain no process id."""


def listed() -> set[str]:
    try:
        return set(os.listdir(SHM))
    except OSError:
        return set()


def sweep(before: set[str], dead: Iterable[int]) -> list[str]:
    """Remove what these processes have left since ``before``; return the names."""
    gone = {str(pid) for pid in dead}
    fresh = [name for name in listed() - before if _mine(name)]
    named = [n for n in fresh if n.startswith("torch_") and n.split("_")[1] in gone]
    nameless = [n for n in fresh if n.startswith(_ANONYMOUS)]
    used = _in_use() if nameless else set()
    return [n for n in named + [n for n in nameless if n not in used] if _removed(n)]


def _mine(name: str) -> bool:
    try:
        return os.lstat(f"{SHM}/{name}").st_uid == os.getuid()
    except OSError:
        return False


def _in_use() -> set[str]:
    """Return the names that some process still has mapped or open."""
    found: set[str] = set()
    for pid in pulse.pids():
        try:
            with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
                found |= {line.rsplit("/", 1)[1].strip() for line in file if f" {SHM}/" in line}
        except OSError:
            continue  # another user's: it cannot have our files mapped unless we shared them
        found |= _opened(pid)
    return found


def _opened(pid: int) -> set[str]:
    found = set()
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            target = os.readlink(f"/proc/{pid}/fd/{fd}")
            if target.startswith(f"{SHM}/"):
                found.add(target.rsplit("/", 1)[1].replace(" (deleted)", ""))
    except OSError:
        pass
    return found


def _removed(name: str) -> bool:
    try:
        os.unlink(f"{SHM}/{name}")
        return True
    except OSError:
        return False
