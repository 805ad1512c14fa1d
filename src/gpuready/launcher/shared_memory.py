"""Remove what dead ranks leave in shared memory, if it is provably theirs."""

import os
from collections.abc import Iterable
from contextlib import suppress

SHM_FOLDER = "/dev/shm"


def list_shared_memory() -> set[str]:
    try:
        return set(os.listdir(SHM_FOLDER))
    except OSError:
        return set()


def remove_leftovers(before: set[str], dead: Iterable[int]) -> list[str]:
    """Remove what these processes have left since ``before``; return the names.

    A name without a process's number stays: another container may share the folder, and its processes are not seen.
    """
    pids = {str(pid) for pid in dead}
    fresh = [name for name in list_shared_memory() - before if name.startswith("torch_") and name.split("_")[1] in pids]
    return [name for name in fresh if _remove_own_file(name)]


def _remove_own_file(name: str) -> bool:
    with suppress(OSError):
        if os.lstat(f"{SHM_FOLDER}/{name}").st_uid == os.getuid():
            os.unlink(f"{SHM_FOLDER}/{name}")
            return True
    return False


def free_share() -> float | None:
    """Return the share of /dev/shm that is free; None if there is none."""
    try:
        disk = os.statvfs("/dev/shm")
    except OSError:
        return None
    return round(disk.f_bavail / disk.f_blocks, 3) if disk.f_blocks else None
