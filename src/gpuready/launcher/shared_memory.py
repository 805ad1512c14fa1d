"""Remove what dead ranks leave in shared memory, if it is provably theirs."""

from __future__ import annotations

import os
from collections.abc import Iterable

from gpuready.launcher import process_status

SHM_FOLDER = "/dev/shm"
_NAMES_WITHOUT_PID = ("nccl-", "psm_", "sem.mp-", "cuda.shm.")
"""Prefixes of names that contain no process id."""


def list_shared_memory() -> set[str]:
    try:
        return set(os.listdir(SHM_FOLDER))
    except OSError:
        return set()


def remove_leftovers(before: set[str], dead: Iterable[int]) -> list[str]:
    """Remove what these processes have left since ``before``; return the names."""
    dead_pids = {str(pid) for pid in dead}
    fresh = [name for name in list_shared_memory() - before if _is_own_file(name)]
    with_pid = [n for n in fresh if n.startswith("torch_") and n.split("_")[1] in dead_pids]
    without_pid = [n for n in fresh if n.startswith(_NAMES_WITHOUT_PID)]
    used = _names_in_use() if without_pid else set()
    return [n for n in with_pid + [n for n in without_pid if n not in used] if _remove_file(n)]


def _is_own_file(name: str) -> bool:
    try:
        return os.lstat(f"{SHM_FOLDER}/{name}").st_uid == os.getuid()
    except OSError:
        return False


def _names_in_use() -> set[str]:
    """Return the names that some process still has mapped or open."""
    names: set[str] = set()
    for pid in process_status.list_process_ids():
        try:
            with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
                names |= {line.rsplit("/", 1)[1].strip() for line in file if f" {SHM_FOLDER}/" in line}
        except OSError:
            continue  # another user's: it cannot have our files mapped unless we shared them
        names |= _names_opened_by(pid)
    return names


def _names_opened_by(pid: int) -> set[str]:
    names = set()
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            target = os.readlink(f"/proc/{pid}/fd/{fd}")
            if target.startswith(f"{SHM_FOLDER}/"):
                names.add(target.rsplit("/", 1)[1].replace(" (deleted)", ""))
    except OSError:
        pass
    return names


def _remove_file(name: str) -> bool:
    try:
        os.unlink(f"{SHM_FOLDER}/{name}")
        return True
    except OSError:
        return False


def free_share() -> float | None:
    """Return the share of /dev/shm that is free; None if there is none."""
    try:
        disk = os.statvfs("/dev/shm")
    except OSError:
        return None
    return round(disk.f_bavail / disk.f_blocks, 3) if disk.f_blocks else None
