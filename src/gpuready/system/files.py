"""File access of LiveHost: read without blocking, list, measure, stay below a root, and find the last lines of a log."""

import os
from collections.abc import Callable, Iterator, Sequence
from stat import S_ISBLK, S_ISCHR, S_ISDIR, S_ISLNK, S_ISREG
from typing import Any, TypeVar

from gpuready.system.host_access import AccessError

T = TypeVar("T")


_ABSENT_ERRNOS = (2, 3, 20, 36)
"""ENOENT, ESRCH (a process that has just ended, in /proc), ENOTDIR and ENAMETOOLONG: confirmed absent."""

_MAX_LINKS = 40
"""The number of symbolic links Linux itself follows in one path."""


def error_reason(error: OSError) -> str:
    """The reason of an OSError as a short phrase."""
    return (error.strerror or str(error) or "error").lower()


def printable_name(name: str) -> str:
    """A file name as printable text: bytes that are not UTF-8 are escaped."""
    return name if name.isascii() else os.fsencode(name).decode("utf-8", "backslashreplace")


def resolve_below_root(root: str, path: str) -> str:
    """Map a path below a test's root; links are resolved there and never lead out of it."""
    if not root:
        return path
    left, done, hops = path.split("/")[::-1], "", 0
    while left:
        part = left.pop()
        if part in ("", "."):
            continue
        if part == "..":
            done = done.rpartition("/")[0]
            continue
        link = read_link(root + done + "/" + part)
        if link is None:
            done += "/" + part
            continue
        hops += 1
        if hops > _MAX_LINKS:
            raise AccessError("too many levels of symbolic links")
        done = "" if link.startswith("/") else done
        left += link.split("/")[::-1]
    return root + (done or "/")


def read_link(path: str) -> str | None:
    """Target of a symbolic link; None where there is none."""
    try:
        return os.readlink(path)
    except OSError:
        return None


def read_text(path: str, limit: int) -> str | None:
    """At most `limit` bytes of a regular file as text; never waits on a pipe or opens a device."""
    data = read_bytes(path, limit)
    return None if data is None else data.decode("utf-8", "backslashreplace")


def read_bytes(path: str, limit: int, tail: bool = False) -> bytes | None:
    """At most `limit` bytes of a regular file, from its beginning or end; None where there is none."""
    return _none_if_absent(lambda path: _read_regular_file(path, limit, tail), path)


def _read_regular_file(path: str, limit: int, tail: bool) -> bytes:
    # Opening a device or a pipe can block or change it, so check before opening, and again after.
    _require_regular(os.stat(path).st_mode)
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        found = os.fstat(fd)
        _require_regular(found.st_mode)
        if tail and found.st_size > limit:
            os.lseek(fd, -limit, os.SEEK_END)
        return _read_up_to(fd, limit)
    finally:
        os.close(fd)


def open_regular(path: str, flags: int) -> int:
    """An ``opener`` for open(): OSError for a pipe or a device, which could block, never end, or change."""
    if S_ISREG(os.stat(path).st_mode):
        fd = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        if S_ISREG(os.fstat(fd).st_mode):
            return fd
        os.close(fd)
    raise OSError(22, "not a regular file", path)


def _none_if_absent(look: Callable[[str], T], path: str) -> T | None:
    """Apply a function to a path; None where nothing is there, AccessError on any other error."""
    try:
        return look(path)
    except OSError as error:
        if error.errno in _ABSENT_ERRNOS:
            return None
        raise AccessError(error_reason(error)) from None
    except ValueError:
        raise AccessError("not a path") from None


def _require_regular(mode: int) -> None:
    if S_ISDIR(mode):
        raise AccessError("is a directory")
    if not S_ISREG(mode):
        raise AccessError("not a regular file")


def _read_up_to(fd: int, limit: int) -> bytes:
    # Files in /proc return a page at a time and claim a size of zero: only an empty read is the end.
    parts: list[bytes] = []
    while limit > 0:
        part = os.read(fd, min(limit, 1 << 20))
        if not part:
            break
        parts.append(part)
        limit -= len(part)
    return b"".join(parts)


def list_names(path: str) -> list[str] | None:
    """Names in a folder, sorted; None where there is no such folder."""
    found = _none_if_absent(os.listdir, path)
    return None if found is None else sorted(map(printable_name, found))


def path_status(path: str) -> dict[str, Any] | None:
    """Status of a path, links followed; a dangling link is described itself."""
    found = _none_if_absent(_stat_or_lstat, path)
    if found is None:
        return None
    mode = found.st_mode
    return {
        "kind": _file_kind(mode),
        "mode": mode & 0o7777,
        "uid": found.st_uid,
        "size": found.st_size,
        "mtime": found.st_mtime,
    }


def _stat_or_lstat(path: str) -> os.stat_result:
    try:
        return os.stat(path)
    except OSError:
        found = os.lstat(path)
        if not S_ISLNK(found.st_mode):
            raise
        return found


def _file_kind(mode: int) -> str:
    tests = (("file", S_ISREG), ("dir", S_ISDIR), ("char", S_ISCHR), ("block", S_ISBLK), ("link", S_ISLNK))
    return next((name for name, is_it in tests if is_it(mode)), "other")


def filesystem_space(path: str) -> dict[str, int] | None:
    """Space left on a file system for an unprivileged user."""
    found = _none_if_absent(os.statvfs, path)
    if found is None:
        return None
    unit = found.f_frsize
    return {"free": found.f_bavail * unit, "total": found.f_blocks * unit, "free_inodes": found.f_favail}


def list_program_paths(name: str, path: str) -> list[str]:
    """Where a program may be, by PATH. An empty or relative entry means the current folder, which is not trusted."""
    return [f"{folder.rstrip('/')}/{name}" for folder in path.split(":") if folder.startswith("/")]


def is_executable_file(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


KMSG_DEVICE = (1, 11)
"""Device number of /dev/kmsg: the only device that is read, since reading it changes nothing."""

_TAIL_BYTES, _MAX_LINES, _MAX_RECORD_BYTES = 16 << 20, 256, 8192
"""Bytes read from the end of a file, lines kept, and longest record."""

_MAX_RECORDS = 1 << 18
_EMPTY, _LOST = 11, 32
"""EAGAIN: nothing more to read. EPIPE: the record was overwritten before it could be read."""


def find_matching_lines(path: str, pieces: Sequence[str]) -> list[str] | None:
    """The last lines that contain any of the pieces; None where there is no such file."""
    wanted = [piece.encode() for piece in pieces if piece]
    try:
        records = _read_records(path)
        if records is None:
            return None
        found = [line for line in records if any(piece in line for piece in wanted)]
    except OSError as error:
        raise AccessError(error_reason(error)) from None
    except ValueError:
        raise AccessError("not a path") from None
    return [line.decode("utf-8", "backslashreplace") for line in found[-_MAX_LINES:]]


def _read_records(path: str) -> Iterator[bytes] | list[bytes] | None:
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if S_ISCHR(status.st_mode) and (os.major(status.st_rdev), os.minor(status.st_rdev)) == KMSG_DEVICE:
        return _read_kernel_buffer(path)
    tail = read_bytes(path, _TAIL_BYTES, tail=True)
    return None if tail is None else [line[:_MAX_RECORD_BYTES] for line in tail.splitlines()]


def _read_kernel_buffer(path: str) -> Iterator[bytes]:
    """The first line of every record in the buffer: ``6,1234,5678900,-;NVRM: Xid …``."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        for _ in range(_MAX_RECORDS):
            try:
                record = os.read(fd, _MAX_RECORD_BYTES)
            except OSError as error:
                if error.errno == _LOST:
                    continue
                if error.errno == _EMPTY:
                    return
                raise
            if not record:
                return
            yield record.partition(b"\n")[0]
    finally:
        os.close(fd)


SYSTEM_PREFIXES = ("", "/usr", "/usr/local")


def is_in_environment(path: str, exists: Callable[[str], bool] = os.path.lexists) -> bool:
    """Whether a path lies in a Python environment: a venv, or one of conda."""
    folder = path.rpartition("/")[0]
    while folder not in SYSTEM_PREFIXES:
        if any(exists(f"{folder}/{name}") for name in ("pyvenv.cfg", "conda-meta")):
            return True
        folder = folder.rpartition("/")[0]
    return False
