"""GPU architectures a compiled library has code for: read from its fat binaries, as cuobjdump does."""

from __future__ import annotations

import os

from gpuready.system import elf
from gpuready.system.door import Blind
from gpuready.system.files import why

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

SECTION = ".nv_fatbin"
MAGIC = 0xBA55ED50
PTX, MACHINE_CODE = 1, 2
SPECIFIC, FAMILY = 0x100000, 0x200000
"""Flags of code for one architecture only (``sm_90a``) and for one family (``sm_100f``), seen in CUDA 13.0."""

LARGEST = 4 << 30


def targets(path: str) -> tuple[str, ...]:
    """``("sm_80", "sm_90a", "compute_90")``: embedded targets, oldest first; empty where there is no GPU code.

    AccessError where the file cannot be read, or is not a library.
    """
    data = _section(path)
    found = {_name(*entry) for entry in _entries(data)}
    return tuple(sorted(found, key=_order))


def _section(path: str) -> bytes:
    found = elf.place(path, SECTION)
    if found is None:
        return b""
    start, size = found
    if size > LARGEST:
        raise Blind(f"{SECTION} has {size} bytes")
    try:
        with open(path, "rb", buffering=0) as file:
            # The size comes from the file and is not trusted: allocate no more than the file has.
            there = max(os.fstat(file.fileno()).st_size - start, 0)
            return os.pread(file.fileno(), min(size, there), start) if there else b""
    except OSError as error:
        raise Blind(why(error)) from None


def _entries(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Kind, architecture and flags of every piece. Lengths come from the file and are not trusted."""
    import struct

    at = 0
    while (at := data.find(struct.pack("<I", MAGIC), at)) >= 0:
        if at + 16 > len(data):
            return
        _, _, header, size = struct.unpack_from("<IHHQ", data, at)
        piece, end = at + header, min(at + header + size, len(data))
        while header >= 16 and piece + 64 <= end:
            kind, _, length, body = struct.unpack_from("<HHIQ", data, piece)
            (arch,) = struct.unpack_from("<I", data, piece + 28)
            (flags,) = struct.unpack_from("<Q", data, piece + 40)
            if kind not in (PTX, MACHINE_CODE) or length < 48 or not 10 <= arch < 1000:
                break
            yield kind, arch, flags
            piece += length + body
        at = max(at + 16, end if header >= 16 else 0)


def _name(kind: int, arch: int, flags: int) -> str:
    suffix = "a" if flags & SPECIFIC else "f" if flags & FAMILY else ""
    return f"{'compute' if kind == PTX else 'sm'}_{arch}{suffix}"


def _order(name: str) -> tuple[bool, int, str]:
    kind, _, arch = name.partition("_")
    return kind == "compute", int(arch.rstrip("af")), arch
