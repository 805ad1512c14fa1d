"""GPU architectures a compiled library has code for: read from its fat binaries, as cuobjdump does."""

import os
import struct
from collections.abc import Iterator

from gpuready.system import elf
from gpuready.system.files import error_reason, open_regular
from gpuready.system.host_access import AccessError

SECTION = ".nv_fatbin"
MAGIC = 0xBA55ED50
PTX, MACHINE_CODE = 1, 2
ARCH_SPECIFIC, FAMILY_SPECIFIC = 0x100000, 0x200000
"""Flags of code for one architecture only (``sm_90a``) and for one family (``sm_100f``), seen in CUDA 13.0."""

MAX_SECTION_BYTES = 4 << 30


def list_gpu_targets(path: str) -> tuple[str, ...]:
    """``("sm_80", "sm_90a", "compute_90")``: embedded targets, oldest first; empty where there is no GPU code.

    AccessError where the file cannot be read, or is not a library.
    """
    data = _read_fatbin_section(path)
    found = {_target_name(*entry) for entry in _iterate_fatbin_entries(data)}
    return tuple(sorted(found, key=_target_order))


def _read_fatbin_section(path: str) -> bytes:
    found = elf.locate_section(path, SECTION)
    if found is None:
        return b""
    start, size = found
    if size > MAX_SECTION_BYTES:
        raise AccessError(f"{SECTION} has {size} bytes")
    try:
        with open(path, "rb", buffering=0, opener=open_regular) as file:
            # The size comes from the file and is not trusted: allocate no more than the file has.
            there = max(os.fstat(file.fileno()).st_size - start, 0)
            return os.pread(file.fileno(), min(size, there), start) if there else b""
    except OSError as error:
        raise AccessError(error_reason(error)) from None


def _iterate_fatbin_entries(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Kind, architecture and flags of every piece. Lengths come from the file and are not trusted."""
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


def _target_name(kind: int, arch: int, flags: int) -> str:
    suffix = "a" if flags & ARCH_SPECIFIC else "f" if flags & FAMILY_SPECIFIC else ""
    return f"{'compute' if kind == PTX else 'sm'}_{arch}{suffix}"


def _target_order(name: str) -> tuple[bool, int, str]:
    kind, _, arch = name.partition("_")
    return kind == "compute", int(arch.rstrip("af")), arch
