"""Kernel locks on files: they end with the process that has them, however it ends."""

from __future__ import annotations

import fcntl
import os

_UNSUPPORTED = (38, 95, 37, 22)
"""ENOSYS, ENOTSUP, ENOLCK, EINVAL: a disk (Lustre without flock, some network disks) without locks."""


class LocksUnsupported(Exception):
    """The disk does not support locks."""


def take_lock(path: str, shared: bool = False) -> int | None:
    """Descriptor of the lock, or None where another process has it. LocksUnsupported where there are none."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        if error.errno in _UNSUPPORTED:
            raise LocksUnsupported(os.strerror(error.errno)) from None
        if error.errno in (11, 13):  # EAGAIN, EACCES: locked by another
            return None
        raise
    return fd


def release_lock(fd: int) -> None:
    os.close(fd)


def is_locked(path: str) -> bool | None:
    """Whether a process has a lock on a file; None where that is unknown."""
    try:
        fd = take_lock(path)
    except (LocksUnsupported, OSError):
        return None
    if fd is None:
        return True
    release_lock(fd)
    return False
