"""ELF files: name, dependencies and strings of a library, read from its headers without loading it."""

from __future__ import annotations

import os

from gpuready.system.door import Blind
from gpuready.system.files import why

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

_MACHINES = {3: "i386", 21: "ppc64", 22: "s390x", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64"}
_DYNAMIC, _LOAD = 2, 1
_NEEDED, _STRTAB, _SONAME, _RPATH, _RUNPATH = 1, 5, 14, 15, 29
_MOST = 1 << 16
"""Tables are read up to this many bytes; no sane file has longer ones."""

_CHUNK, _LONGEST, _STRINGS = 1 << 20, 4096, 256
"""Bytes of a section read at once, longest string, and number of strings kept."""


def headers(path: str) -> dict[str, Any] | None:
    """needed, soname, runpath, rpath and machine; None where there is no such file."""
    fd = _open(path)
    if fd is None:
        return None
    try:
        return _File(fd).headers()
    except (OSError, ValueError, IndexError, OverflowError) as error:
        raise Blind(why(error) if isinstance(error, OSError) else "a damaged ELF file") from None
    finally:
        os.close(fd)


def strings(path: str, section: str, pieces: Sequence[str]) -> list[str]:
    """The C strings of one section that contain any of the pieces, in order of their offset."""
    fd = _open(path)
    if fd is None:
        return []
    try:
        start, size = _File(fd).section(section)
        return _scan(fd, start, size, [p.encode() for p in pieces if p])
    except (OSError, ValueError, IndexError, OverflowError) as error:
        raise Blind(why(error) if isinstance(error, OSError) else "a damaged ELF file") from None
    finally:
        os.close(fd)


def place(path: str, section: str) -> tuple[int, int] | None:
    """Offset and size of a section; None where the file has no such section."""
    fd = _open(path)
    if fd is None:
        raise Blind("there is no such file")
    try:
        return _File(fd).section(section)
    except Blind as blind:
        if str(blind) == f"no section {section}":
            return None
        raise
    except (OSError, ValueError, IndexError, OverflowError) as error:
        raise Blind(why(error) if isinstance(error, OSError) else "a damaged ELF file") from None
    finally:
        os.close(fd)


def _open(path: str) -> int | None:
    from stat import S_ISREG

    try:
        if not S_ISREG(os.stat(path).st_mode):
            raise Blind("not a regular file")
        return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Blind(why(error)) from None
    except ValueError:
        raise Blind("not a path") from None


class _File:
    """Tables of one open file. Offsets depend on 32 or 64 bits and on the byte order."""

    def __init__(self, fd: int):
        self.fd = fd
        head = os.pread(fd, 64, 0)
        if len(head) < 52 or head[:4] != b"\x7fELF" or head[4] not in (1, 2):
            raise Blind("not an ELF file")
        self.wide = head[4] == 2
        self.order = ">" if head[5] == 2 else "<"
        self.head = head
        self.machine = self._unpack("H", head, 18)[0]

    def _unpack(self, form: str, data: bytes, at: int = 0) -> tuple[int, ...]:
        import struct

        try:
            return struct.unpack_from(self.order + form, data, at)
        except struct.error:
            raise ValueError("short") from None

    def _table(self, offset: int, size: int, count: int) -> Iterator[bytes]:
        data = os.pread(self.fd, min(size * count, _MOST), offset)
        for at in range(0, len(data) - size + 1, size or 1):
            yield data[at : at + size]

    def _segments(self) -> list[tuple[int, int, int, int]]:
        """Kind, offset, address and size of each segment."""
        offset = self._unpack("Q" if self.wide else "I", self.head, 32 if self.wide else 28)[0]
        size, count = self._unpack("HH", self.head, 54 if self.wide else 42)
        found = []
        for row in self._table(offset, size, count):
            if self.wide:
                kind, _, at, address, _, length = self._unpack("IIQQQQ", row)
            else:
                kind, at, address, _, length = self._unpack("IIIII", row)
            found.append((kind, at, address, length))
        return found

    def headers(self) -> dict[str, Any]:
        segments = self._segments()
        tags = list(self._dynamic(segments))
        place = next((self._offset(segments, v) for t, v in tags if t == _STRTAB), 0)

        def named(*wanted: int) -> list[str]:
            return [self._string(place + value) for tag, value in tags if tag in wanted]

        return {
            "needed": named(_NEEDED),
            "soname": next(iter(named(_SONAME)), None),
            "runpath": next(iter(named(_RUNPATH) or named(_RPATH)), None),
            "rpath": bool(named(_RPATH)) and not named(_RUNPATH),
            "machine": _MACHINES.get(self.machine, str(self.machine)),
        }

    def _dynamic(self, segments: list[tuple[int, int, int, int]]) -> Iterator[tuple[int, int]]:
        form, size = ("QQ", 16) if self.wide else ("II", 8)
        for kind, at, _, length in segments:
            if kind != _DYNAMIC:
                continue
            for row in self._table(at, size, length // size):
                tag, value = self._unpack(form, row)
                if tag == 0:
                    return
                yield tag, value

    @staticmethod
    def _offset(segments: list[tuple[int, int, int, int]], address: int) -> int:
        for kind, at, start, length in segments:
            if kind == _LOAD and start <= address < start + length:
                return at + address - start
        raise ValueError("an address outside the file")

    def _string(self, offset: int) -> str:
        return os.pread(self.fd, _LONGEST, offset).partition(b"\0")[0].decode("utf-8", "backslashreplace")

    def section(self, name: str) -> tuple[int, int]:
        """Offset and size of a section."""
        offset = self._unpack("Q" if self.wide else "I", self.head, 40 if self.wide else 32)[0]
        size, count, index = self._unpack("HHH", self.head, 58 if self.wide else 46)
        rows = list(self._table(offset, size, count)) if offset else []
        if not rows:
            raise Blind("no section table")
        form, skip = ("QQ", 24) if self.wide else ("II", 16)
        names = self._unpack(form, rows[index], skip)[0]
        for row in rows:
            if self._string(names + self._unpack("I", row)[0]) == name:
                start, length = self._unpack(form, row, skip)
                return start, length
        raise Blind(f"no section {name}")


def _scan(fd: int, start: int, size: int, pieces: list[bytes]) -> list[str]:
    # Read in pieces, not mapped: a file that shrinks meanwhile is then short instead of a bus error.
    found: dict[int, bytes] = {}
    at, end = start, start + size
    while at < end and len(found) < _STRINGS:
        data = os.pread(fd, min(_CHUNK, end - at), at)
        for piece in pieces:
            _hits(data, piece, at, found, overlap=_LONGEST if at > start else 0)
        # The next piece overlaps this one by the longest string.
        at += max(len(data) - _LONGEST, 1) if at + len(data) < end and data else size
    return [found[place].decode("utf-8", "backslashreplace") for place in sorted(found)[:_STRINGS]]


def _hits(data: bytes, piece: bytes, base: int, found: dict[int, bytes], overlap: int) -> None:
    at = data.find(piece)
    while at >= 0 and len(found) < _STRINGS:
        begin = data.rfind(b"\0", max(at - _LONGEST, 0), at) + 1 or max(at - _LONGEST, 0)
        stop = data.find(b"\0", at, at + _LONGEST)
        stop = stop if stop >= 0 else min(at + _LONGEST, len(data))
        known = found.get(base + begin, b"")
        seen_whole = begin == 0 and at < overlap  # it began in the previous piece, which has it
        if stop - begin > len(known) and not seen_whole:
            found[base + begin] = data[begin:stop]
        at = data.find(piece, stop)
