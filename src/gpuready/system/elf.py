"""ELF files: name, dependencies, strings and symbols of a library, read from its headers without loading it."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from stat import S_ISREG
from typing import Any, TypeVar

from gpuready.system.files import error_reason
from gpuready.system.host_access import AccessError

T = TypeVar("T")


_MACHINES = {3: "i386", 21: "ppc64", 22: "s390x", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64"}
_DYNAMIC, _LOAD = 2, 1
_NEEDED, _STRTAB, _SONAME, _RPATH, _RUNPATH = 1, 5, 14, 15, 29
_MAX_TABLE_BYTES = 1 << 16
"""Tables are read up to this many bytes; no sane file has longer ones."""

_CHUNK_BYTES, _MAX_STRING_BYTES, _MAX_STRINGS = 1 << 20, 4096, 256
"""Bytes of a section read at once, longest string, and number of strings kept."""


def read_elf_headers(path: str) -> dict[str, Any] | None:
    """needed, soname, runpath, rpath and machine; None where there is no such file."""
    return read_elf(path, lambda elf: elf.read_headers())


class MissingSection(AccessError):
    """The file has sections, and not this one."""


def find_section_strings(path: str, section: str, pieces: Sequence[str]) -> list[str]:
    """The C strings of one section that contain any of the pieces, in order of their offset."""
    wanted = [piece.encode() for piece in pieces if piece]
    return read_elf(path, lambda elf: _scan_strings(elf.fd, *elf.find_section(section), wanted)) or []


def locate_section(path: str, section: str) -> tuple[int, int] | None:
    """Offset and size of a section; None where the file has no such section."""
    try:
        found = read_elf(path, lambda elf: elf.find_section(section))
    except MissingSection:
        return None
    if found is None:
        raise AccessError("there is no such file")
    return found


def read_elf(path: str, read: Callable[[ElfFile], T]) -> T | None:
    """Apply a function to an opened ELF file; None where there is no such file."""
    fd = _open_elf(path)
    if fd is None:
        return None
    try:
        return read(ElfFile(fd))
    except (OSError, ValueError, IndexError, OverflowError) as error:
        raise AccessError(error_reason(error) if isinstance(error, OSError) else "a damaged ELF file") from None
    finally:
        os.close(fd)


def _open_elf(path: str) -> int | None:
    try:
        if not S_ISREG(os.stat(path).st_mode):
            raise AccessError("not a regular file")
        return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise AccessError(error_reason(error)) from None
    except ValueError:
        raise AccessError("not a path") from None


class ElfFile:
    """Tables of one open file. Offsets depend on 32 or 64 bits and on the byte order."""

    def __init__(self, fd: int):
        self.fd = fd
        head = os.pread(fd, 64, 0)
        if len(head) < 52 or head[:4] != b"\x7fELF" or head[4] not in (1, 2):
            raise AccessError("not an ELF file")
        self.is_64bit = head[4] == 2
        self.byte_order = ">" if head[5] == 2 else "<"
        self.head = head
        self.machine = self.unpack_at("H", head, 18)[0]

    def unpack_at(self, form: str, data: bytes, at: int = 0) -> tuple[int, ...]:
        try:
            return struct.unpack_from(self.byte_order + form, data, at)
        except struct.error:
            raise ValueError("short") from None

    def _unpack_table(self, form: str, offset: int, size: int, count: int) -> list[tuple[int, ...]]:
        """The rows of a table, as far as the file has them; a row may be longer than what is taken of it."""
        padding = size - struct.calcsize(self.byte_order + form)
        if padding < 0:
            raise ValueError("short")
        data = os.pread(self.fd, min(size * count, _MAX_TABLE_BYTES), offset)
        return list(struct.iter_unpack(f"{self.byte_order}{form}{padding}x", data[: len(data) // size * size]))

    def read_segments(self) -> list[tuple[int, int, int, int]]:
        """Kind, offset, address and size of each segment."""
        offset = self.unpack_at("Q" if self.is_64bit else "I", self.head, 32 if self.is_64bit else 28)[0]
        size, count = self.unpack_at("HH", self.head, 54 if self.is_64bit else 42)
        rows = self._unpack_table("I4xQQ8xQ" if self.is_64bit else "III4xI", offset, size, count)
        return [(kind, at, address, length) for kind, at, address, length in rows]

    def read_headers(self) -> dict[str, Any]:
        segments = self.read_segments()
        return self.describe_headers(segments, list(self.list_dynamic_entries(segments)))

    def describe_headers(
        self, segments: list[tuple[int, int, int, int]], tags: list[tuple[int, int]]
    ) -> dict[str, Any]:
        place = next((self.address_to_offset(segments, v) for t, v in tags if t == _STRTAB), 0)

        texts: dict[int, list[str]] = {_NEEDED: [], _SONAME: [], _RPATH: [], _RUNPATH: []}
        for tag, value in tags:
            if tag in texts:
                texts[tag].append(self._read_string(place + value))
        return {
            "needed": texts[_NEEDED],
            "soname": next(iter(texts[_SONAME]), None),
            "runpath": next(iter(texts[_RUNPATH] or texts[_RPATH]), None),
            "rpath": bool(texts[_RPATH]) and not texts[_RUNPATH],
            "machine": _MACHINES.get(self.machine, str(self.machine)),
        }

    def list_dynamic_entries(self, segments: list[tuple[int, int, int, int]]) -> Iterator[tuple[int, int]]:
        form, size = ("QQ", 16) if self.is_64bit else ("II", 8)
        for kind, at, _, length in segments:
            if kind != _DYNAMIC:
                continue
            for tag, value in self._unpack_table(form, at, size, length // size):
                if tag == 0:
                    return
                yield tag, value

    @staticmethod
    def address_to_offset(segments: list[tuple[int, int, int, int]], address: int) -> int:
        for kind, at, start, length in segments:
            if kind == _LOAD and start <= address < start + length:
                return at + address - start
        raise ValueError("an address outside the file")

    def _read_string(self, offset: int) -> str:
        return os.pread(self.fd, _MAX_STRING_BYTES, offset).partition(b"\0")[0].decode("utf-8", "backslashreplace")

    def find_section(self, name: str) -> tuple[int, int]:
        """Offset and size of a section."""
        offset = self.unpack_at("Q" if self.is_64bit else "I", self.head, 40 if self.is_64bit else 32)[0]
        size, count, index = self.unpack_at("HHH", self.head, 58 if self.is_64bit else 46)
        form = "I20xQQ" if self.is_64bit else "I12xII"
        rows = self._unpack_table(form, offset, size, count) if offset else []
        if not rows:
            raise AccessError("no section table")
        _, start, length = rows[index]
        names, wanted = os.pread(self.fd, min(length, _MAX_TABLE_BYTES), start), name.encode() + b"\0"
        for at, start, length in rows:
            if names.startswith(wanted, at):
                return start, length
        raise MissingSection(f"no section {name}")


def _scan_strings(fd: int, start: int, size: int, pieces: list[bytes]) -> list[str]:
    # Read in pieces, not mapped: a file that shrinks meanwhile is then short instead of a bus error.
    found: dict[int, bytes] = {}
    at, end = start, start + size
    while at < end and len(found) < _MAX_STRINGS:
        data = os.pread(fd, min(_CHUNK_BYTES, end - at), at)
        for piece in pieces:
            _collect_strings(data, piece, at, found, overlap=_MAX_STRING_BYTES if at > start else 0)
        # The next piece overlaps this one by the longest string.
        at += max(len(data) - _MAX_STRING_BYTES, 1) if at + len(data) < end and data else size
    return [found[place].decode("utf-8", "backslashreplace") for place in sorted(found)[:_MAX_STRINGS]]


def _collect_strings(data: bytes, piece: bytes, base: int, found: dict[int, bytes], overlap: int) -> None:
    at = data.find(piece)
    while at >= 0 and len(found) < _MAX_STRINGS:
        begin = data.rfind(b"\0", max(at - _MAX_STRING_BYTES, 0), at) + 1 or max(at - _MAX_STRING_BYTES, 0)
        stop = data.find(b"\0", at, at + _MAX_STRING_BYTES)
        stop = stop if stop >= 0 else min(at + _MAX_STRING_BYTES, len(data))
        known = found.get(base + begin, b"")
        seen_whole = begin == 0 and at < overlap  # it began in the previous piece, which has it
        if stop - begin > len(known) and not seen_whole:
            found[base + begin] = data[begin:stop]
        at = data.find(piece, stop)


# -- what the loader asks of a file -------------------------------------------------------------------

_STRSZ, _VERDEF, _VERNEED = 10, 0x6FFFFFFC, 0x6FFFFFFE
_WEAK = 2
_MAX_NAMES_BYTES, _MAX_VERSION_BYTES = 1 << 18, 1 << 14


def read_load_needs(path: str) -> dict[str, Any] | None:
    """machine, needed, runpath and rpath, and the symbol versions it needs of each library; None where there is no such file.

    AccessError for a file that the loader refuses: another format, or shorter than its segments.
    """
    return read_elf(path, _collect_load_needs)


def read_defined_versions(path: str) -> frozenset[str]:
    """The symbol versions that a library defines: GLIBC_2.34, GLIBCXX_3.4.30."""
    return read_elf(path, lambda elf: frozenset(_iterate_versions(elf, _VERDEF))) or frozenset()


def _collect_load_needs(elf: ElfFile) -> dict[str, Any]:
    segments = elf.read_segments()
    size, end = os.fstat(elf.fd).st_size, max((at + length for _, at, _, length in segments), default=0)
    if not segments or end > size:
        raise AccessError(f"it is cut off: {size} bytes of at least {end}")
    tags = list(elf.list_dynamic_entries(segments))
    found = elf.describe_headers(segments, tags)
    versions: dict[str, list[str]] = {}
    for pair in _iterate_versions(elf, _VERNEED, segments, dict(tags)):
        library, _, version = pair.partition("\0")
        versions.setdefault(library, []).append(version)
    return found | {"versions": versions}


def _iterate_versions(
    elf: ElfFile,
    table: int,
    segments: list[tuple[int, int, int, int]] | None = None,
    known: dict[int, int] | None = None,
) -> Iterator[str]:
    """Yield the versions of a table: of what is defined the names, of what is needed ``libc.so.6\\0GLIBC_2.34``."""
    parts = segments or elf.read_segments()
    tags = known or dict(elf.list_dynamic_entries(parts))
    if table not in tags or _STRTAB not in tags:
        return
    start = elf.address_to_offset(parts, tags[table])
    data = os.pread(elf.fd, _MAX_VERSION_BYTES, start)
    names = os.pread(
        elf.fd, min(tags.get(_STRSZ, 0), _MAX_NAMES_BYTES), place := elf.address_to_offset(parts, tags[_STRTAB])
    )
    at = 0
    while at + 20 <= len(data):
        if table == _VERDEF:
            _, flags, _, _, _, aux, following = elf.unpack_at("HHHHIII", data, at)
            yield _name_at(elf, names, place, elf.unpack_at("I", data, at + aux)[0])
        else:
            _, count, file, aux, following = elf.unpack_at("HHIII", data, at)
            library, entry = _name_at(elf, names, place, file), at + aux
            for _ in range(count):
                _, flags, _, name, step = elf.unpack_at("IHHII", data, entry)
                if not flags & _WEAK:
                    yield f"{library}\0{_name_at(elf, names, place, name)}"
                entry += step
        if not following:
            return
        at += following


def _name_at(elf: ElfFile, names: bytes, place: int, offset: int) -> str:
    if offset < len(names) and (end := names.find(b"\0", offset)) >= 0:
        return names[offset:end].decode("utf-8", "backslashreplace")
    return elf._read_string(place + offset)


_GNU_HASH = 0x6FFFFEF5
_GLOBAL = 1
_MAX_SYMBOL_BYTES, _MAX_NAME_BYTES = 48 << 20, 256 << 20
_MAX_CHAIN = 4096


def list_undefined_symbols(path: str, prefixes: tuple[str, ...]) -> list[str]:
    """The symbols of these prefixes that a 64-bit library needs and does not define; weak ones may be absent, and are left out."""
    starts = tuple(prefix.encode() for prefix in prefixes)
    return read_elf(path, lambda elf: list(_iterate_undefined(elf, starts))) or []


def _iterate_undefined(elf: ElfFile, starts: tuple[bytes, ...]) -> Iterator[str]:
    if not elf.is_64bit:
        return
    at, size = elf.find_section(".dynsym")
    names_at, names_size = elf.find_section(".dynstr")
    symbols = os.pread(elf.fd, min(size, _MAX_SYMBOL_BYTES), at)
    names = os.pread(elf.fd, min(names_size, _MAX_NAME_BYTES), names_at)
    for place in range(0, len(symbols) - 23, 24):
        name, info, _, section = elf.unpack_at("IBBH", symbols, place)
        if section == 0 and info >> 4 == _GLOBAL and names.startswith(starts, name):
            yield names[name : names.index(b"\0", name)].decode("ascii", "replace")


def find_undefined(symbols: Iterable[str], libraries: Iterable[str]) -> str:
    """The first of these symbols that no library defines; empty where all are defined, or a library has no hash table."""
    wanted = list(dict.fromkeys(symbols))
    for path in libraries:
        if not wanted:
            break
        found = read_elf(path, lambda elf, rest=wanted: _list_lacking(elf, rest))  # type: ignore[misc]
        if found is None:
            return ""
        wanted = found
    return wanted[0] if wanted else ""


def _list_lacking(elf: ElfFile, symbols: list[str]) -> list[str] | None:
    """Those symbols that a library does not define; None where it has no hash table."""
    segments = elf.read_segments()
    tags = dict(elf.list_dynamic_entries(segments))
    if _GNU_HASH not in tags or not elf.is_64bit:
        return None
    table = _HashTable(elf, elf.address_to_offset(segments, tags[_GNU_HASH]))
    return [symbol for symbol in symbols if not table.defines(symbol.encode())]


class _HashTable:
    """Counts, a Bloom filter of 64-bit words, the buckets, and a chain of hashes whose last has its lowest bit set."""

    def __init__(self, elf: ElfFile, at: int):
        self.elf = elf
        self.buckets, self.first, self.words, self.shift = elf.unpack_at("IIII", os.pread(elf.fd, 16, at))
        self.filter_at = at + 16
        self.buckets_at = self.filter_at + 8 * self.words
        self.chain_at = self.buckets_at + 4 * self.buckets

    def defines(self, name: bytes) -> bool:
        code = _hash_name(name)
        word = self._read("Q", self.filter_at + 8 * (code // 64 % self.words))
        mask = 1 << code % 64 | 1 << (code >> self.shift) % 64
        if word & mask != mask:
            return False
        index = self._read("I", self.buckets_at + 4 * (code % self.buckets))
        for place in range(index - self.first, index - self.first + _MAX_CHAIN) if index >= self.first else ():
            found = self._read("I", self.chain_at + 4 * place)
            if found | 1 == code | 1:
                return True
            if found & 1:
                return False
        return False

    def _read(self, form: str, at: int) -> int:
        return self.elf.unpack_at(form, os.pread(self.elf.fd, 8, at))[0]


def _hash_name(name: bytes) -> int:
    code = 5381
    for sign in name:
        code = code * 33 + sign & 0xFFFFFFFF
    return code
