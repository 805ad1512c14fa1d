"""What stands inside a wheel that stays where it is: members, libraries and strings, by range reads."""

import re
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from tempfile import NamedTemporaryFile

from gpuready.system import AccessError, elf
from gpuready.system.archive_members import ARCHIVE_ERRORS
from gpuready.system.release_metadata import RangedFile

AHEAD = 1 << 16
TEXT_LIMIT = 4 << 20
NUMBER = re.compile(rb"\d+")


class Trouble(Exception):
    """An answer from which nothing can be learned; the text is a sentence for the maintainer."""


class Missing(Trouble):
    """The index does not have it."""


class Wheel:
    """An opened wheel: its members by name, and looks into them that stop as soon as they know."""

    def __init__(self, address: str, auth: str = "") -> None:
        self.name = address.rpartition("/")[2]
        with self._calm():
            self._file = RangedFile(address, auth)
            self._zip = zipfile.ZipFile(self._file)  # type: ignore[arg-type]
        self.members = {info.filename: info for info in self._zip.infolist()}

    @contextmanager
    def _calm(self) -> Iterator[None]:
        try:
            yield
        except (*ARCHIVE_ERRORS, HTTPException, AccessError, IndexError, OverflowError, UnicodeError) as bad:
            raise Trouble(f"{self.name}: cannot be read ({str(bad)[:160]})") from None

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
