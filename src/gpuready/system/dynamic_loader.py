"""Which file the dynamic loader uses: LD_LIBRARY_PATH, then its cache, then its default folders."""

from __future__ import annotations

import posixpath
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any

CACHE_PATH = "/etc/ld.so.cache"
_MAGIC = b"glibc-ld.so.cache1.1"
_HEADER, _ENTRY = 48, "=iIIIQ"
_LIBC6 = 3
_ARCH = {
    "x86_64": (0x0300, 62),
    "aarch64": (0x0A00, 183),
    "ppc64le": (0x0500, 21),
    "s390x": (0x0400, 22),
    "riscv64": (0x1000, 243),
}
"""For each machine: its flag in the cache, and its number in an ELF header. Both are for 64 bits."""


class Library:
    """One file as the loader sees it, and the one that needs it."""

    def __init__(self, path: str, header: dict[str, Any], parent: Library | None = None):
        here, _, self.file_name = path.rpartition("/")
        words = str(header.get("runpath") or "").replace("${ORIGIN}", here).replace("$ORIGIN", here)
        self.path, self.parent = path, parent
        self.needed = tuple(map(str, header.get("needed") or ()))
        self.folders = split_search_path(words)
        self.has_rpath = bool(header.get("rpath"))
        self.versions: dict[str, list[str]] = header.get("versions") or {}

    def search_before_variable(self) -> Iterator[str]:
        """The RPATHs of the library and of those that led to it; its own RUNPATH disables them all."""
        if self.folders and not self.has_rpath:
            return
        at: Library | None = self
        while at is not None:
            if at.has_rpath:
                yield from at.folders
            at = at.parent


def split_search_path(words: str | None) -> tuple[str, ...]:
    """The folders of LD_LIBRARY_PATH, a RUNPATH or an RPATH; relative ones are not followed."""
    folders = (words or "").replace(";", ":").split(":")
    return tuple(posixpath.normpath(folder) for folder in folders if folder.startswith("/"))


def default_folders(machine: str) -> tuple[str, ...]:
    """The loader's default folders, and the one where WSL puts the driver's libraries."""
    multi = f"{machine}-linux-gnu"
    return (f"/lib/{multi}", f"/usr/lib/{multi}", "/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/lib/wsl/lib")


def parse_loader_cache(data: bytes, machine: str, prefix: str = "") -> dict[str, str]:
    """Name and path of this machine's libraries in an ld.so.cache; empty when it is not one."""
    plain: dict[str, str] = {}
    special: dict[str, str] = {}
    for name, path, hwcap in _iterate_cache_entries(data, machine, prefix.encode("utf-8", "surrogateescape")):
        # An entry with a hwcap is for some CPUs only; the plain one works everywhere.
        (special if hwcap else plain).setdefault(name, path)
    return {**special, **plain}


def _iterate_cache_entries(data: bytes, machine: str, prefix: bytes) -> Iterator[tuple[str, str, int]]:
    start = data.find(_MAGIC)  # an older cache format may precede it
    if start < 0 or len(data) < start + _HEADER or prefix not in data:
        return  # without a driver none of its libraries is listed: skip the import of struct
    count = int.from_bytes(data[start + 20 : start + 24], sys.byteorder)
    first, size = start + _HEADER, struct.calcsize(_ENTRY)
    last = min(first + count * size, first + (len(data) - first) // size * size)
    wanted = _ARCH.get(machine, (None, 0))[0]
    for flags, key, value, _, hwcap in struct.iter_unpack(_ENTRY, data[first:last]):
        if not data.startswith(prefix, start + key):  # skip most entries without decoding them
            continue
        if flags & 0xFF == _LIBC6 and wanted in (None, flags & 0xFF00):
            yield _read_string_at(data, start + key), _read_string_at(data, start + value), hwcap


def _read_string_at(data: bytes, at: int) -> str:
    end = data.find(b"\0", at, at + 4096)
    return data[at:end].decode("utf-8", "backslashreplace") if end > at else ""


def find_library_file(
    name: str, machine: str, library_path: str, cache: dict[str, str], head: Callable[[str], bytes | None]
) -> str | None:
    """The first usable file. `head` returns the first bytes of a file, or None where there is none."""
    if "/" in name:
        return name if head(name) is not None else None
    tries = [f"{folder}/{name}" for folder in split_search_path(library_path)]
    if name in cache:
        tries.append(cache[name])
    tries += [f"{d}/{name}" for d in default_folders(machine)]
    return next((path for path in tries if is_library_for(head(path), machine)), None)


def is_library_for(start: bytes | None, machine: str) -> bool:
    """Whether a file begins as a 64-bit library for this machine; the loader skips all others."""
    if not start or start[:4] != b"\x7fELF" or len(start) < 20:
        return False
    wanted = _ARCH.get(machine, (None, 0))[1]
    number = int.from_bytes(start[18:20], "big" if start[5] == 2 else "little")
    return not wanted or (start[4] == 2 and number == wanted)
