"""Symbols of ELF libraries: which ones a library needs, and whether another one defines them.

A library of torch has hundreds of thousands of symbols; its hash table (DT_GNU_HASH) is asked, as the loader asks it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from gpuready.system.elf import ElfFile, read_elf

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
