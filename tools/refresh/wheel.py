"""What stands inside a wheel that stays where it is: members, libraries and strings, by range reads."""

from __future__ import annotations

import io
import re
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from tempfile import NamedTemporaryFile

from gpuready.system import AccessError, elf
from refresh.web import Trouble, Web, shown

TAIL = 1 << 16  # the end of a zip: its directory, in one read for most wheels
AHEAD = 1 << 16
DIRECTORY_LIMIT = 32 << 20
TEXT_LIMIT = 4 << 20
NUMBER = re.compile(rb"\d+")


class Distant(io.RawIOBase):
    """A file on a server as a seekable file; keeps its end and the window that was read last."""

    def __init__(self, web: Web, address: str) -> None:
        self.web, self.address = web, address
        body, first, self.size = web.piece(address, f"-{TAIL}")
        self._tail = self._window = (first, body)
        self._at = 0
        self.ahead = AHEAD

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self.size if size is None or size < 0 else min(self._at + size, self.size)
        if end <= self._at:
            return b""
        if end - self._at > DIRECTORY_LIMIT:
            raise Trouble(
                f"{shown(self.address)}: it asks for {end - self._at} bytes at once, which no honest wheel needs"
            )
        for first, body in (self._window, self._tail):
            if first <= self._at and end <= first + len(body):
                return self._take(first, body, end)
        last = min(max(end, self._at + self.ahead), self.size) - 1
        body, first, size_now = self.web.piece(self.address, f"{self._at}-{last}")
        if size_now != self.size:
            raise Trouble(f"{shown(self.address)}: the file changed while it was read")
        self._window = (first, body)
        return self._take(first, body, end)

    def _take(self, first: int, body: bytes, end: int) -> bytes:
        piece = body[self._at - first : end - first]
        self._at = end
        return piece


class Wheel:
    """An opened wheel: its members by name, and looks into them that stop as soon as they know."""

    def __init__(self, web: Web, address: str) -> None:
        self.name = shown(address)
        with self._calm():
            self._file = Distant(web, address)
            self._zip = zipfile.ZipFile(self._file)
        self.size = self._file.size
        self.members = {info.filename: info for info in self._zip.infolist()}

    @contextmanager
    def _calm(self) -> Iterator[None]:
        try:
            yield
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, struct.error) as bad:
            raise Trouble(f"{self.name}: not a zip file that can be read ({bad})") from None
        except (IndexError, OverflowError, UnicodeError, OSError, ValueError) as bad:
            raise Trouble(f"{self.name}: its contents make no sense ({bad})") from None

    def text(self, member: str, limit: int = TEXT_LIMIT) -> str | None:
        """A whole text member; None where there is none."""
        if member not in self.members:
            return None
        with self._calm(), self._zip.open(member) as stream:
            body = stream.read(limit + 1)
        if len(body) > limit:
            raise Trouble(f"{self.name}: {member} is larger than {limit} bytes")
        return body.decode("utf-8", "replace")

    def texts(self, members: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Text members in the order in which they are stored, read in large pieces."""
        self._file.ahead = 4 << 20
        for member in sorted(members, key=lambda name: self.members[name].header_offset):
            if self.members[member].file_size <= TEXT_LIMIT:
                yield member, self.text(member) or ""
        self._file.ahead = AHEAD

    def find(self, member: str, pattern: re.Pattern[bytes], limit: int = 256 << 20) -> re.Match[bytes] | None:
        """The first match in a member, which is read from its start and no further than that."""
        if member not in self.members:
            return None
        with self._calm(), self._reading(member), self._zip.open(member) as stream:
            kept, seen = b"", 0
            while seen < limit and (more := stream.read(1 << 20)):
                seen += len(more)
                kept = kept[-4096:] + more
                found = pattern.search(kept)
                if found:
                    return found
        return None

    def needed(self, member: str, limit: int = 64 << 20) -> list[str] | None:
        """The libraries that an ELF member loads (DT_NEEDED); None where it is no ELF or larger than the limit."""
        with self._calm(), self._reading(member), self._zip.open(member) as stream, NamedTemporaryFile() as file:
            file.write(stream.read(limit))
            file.flush()
            try:
                found = elf.read_load_needs(file.name)
            except AccessError:
                return None
        return list(found["needed"]) if found else None

    @contextmanager
    def _reading(self, member: str) -> Iterator[None]:
        """Read a member in large pieces, but not far beyond its end."""
        self._file.ahead = min(1 << 20, self.members[member].compress_size + 4096)
        try:
            yield
        finally:
            self._file.ahead = AHEAD
