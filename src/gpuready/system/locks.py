"""Kernel locks on files: they end with the process that has them, however it ends."""

from __future__ import annotations

import os

_UNSUPPORTED = (38, 95, 37, 22)
"""ENOSYS, ENOTSUP, ENOLCK, EINVAL: a disk (Lustre without flock, some network disks) without locks."""


class NoLocks(Exception):
    """The disk does not support locks."""


def take(path: str, shared: bool = False) -> int | None:
    """Descriptor of the lock, or None where another process has it. LocksUnsupported where there are none."""
    import fcntl

    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        if error.errno in _UNSUPPORTED:
            raise NoLocks(os.strerror(error.errno)) from None
        if error.errno in (11, 13):  # EAGAIN, EACCES: locked by another
            return None
        raise
    return fd


def leave(fd: int) -> None:
    os.close(fd)


def held(path: str) -> bool | None:
    """Whether a process has a lock on a file; None where that is unknown."""
    try:
        fd = take(path)
    except (NoLocks, OSError):
        return None
    if fd is None:
        return True
    leave(fd)
    return False
