"""The last lines of a log that contain a text: from a file, or from the kernel's buffer /dev/kmsg."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from stat import S_ISCHR

from gpuready.system import files
from gpuready.system.files import error_reason
from gpuready.system.host_access import AccessError

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
    tail = files.read_bytes(path, _TAIL_BYTES, tail=True)
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
