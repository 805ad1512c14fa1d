"""Import gpuready's own modules with fewer steps than Python's general machinery, which takes a quarter of a check.

A check imports about 190 small modules. Python's finder serves every kind of path and loader; ours are plain files of one package.
Whatever is not plain (no byte-code yet, byte-code of another source, a zip file) is left to Python.
"""

from __future__ import annotations

import marshal
import os
import sys
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import MAGIC_NUMBER, SourceFileLoader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType
    from typing import Any

_PREFIX = "gpuready."
_HEADER_START = MAGIC_NUMBER + b"\0\0\0\0"
"""How byte-code begins that is compared with its source by time and size."""
_CHUNK_BYTES = 1 << 16
_BYTECODE_SUFFIX = f".{sys.implementation.cache_tag}.pyc"


def install_finder() -> None:
    """Look for gpuready's own modules here first; not where byte-code is kept elsewhere, or optimized."""
    is_plain = sys.pycache_prefix is None and not sys.flags.optimize and sys.implementation.cache_tag
    if is_plain and OwnModuleFinder not in sys.meta_path:
        sys.meta_path.insert(0, OwnModuleFinder)


class OwnModuleFinder:
    """A finder for sys.meta_path."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: object = None) -> Any:
        if not path or not name.startswith(_PREFIX):
            return None
        folder, tail = path[0], name.rpartition(".")[2]
        return _make_spec(name, folder, tail) or _make_spec(name, f"{folder}/{tail}", "__init__")


def _make_spec(name: str, folder: str, stem: str) -> Any:
    """The spec of a module whose source is there; None where it is not."""
    source = f"{folder}/{stem}.py"
    try:
        status = os.stat(source)
    except OSError:
        return None
    is_package = stem == "__init__"
    bytecode = f"{folder}/__pycache__/{stem}{_BYTECODE_SUFFIX}"
    loader = OwnModuleLoader(name, source, status, bytecode)
    spec = ModuleSpec(name, loader, origin=source, is_package=is_package)
    if is_package:
        spec.submodule_search_locations = [folder]
    spec.has_location, spec.cached = True, bytecode
    return spec


class OwnModuleLoader(SourceFileLoader):
    """Python's loader of source files, with a short way to byte-code that was made from this source."""

    def __init__(self, name: str, path: str, status: os.stat_result, bytecode: str):
        self.name, self.path, self.bytecode = name, path, bytecode
        times = (int(status.st_mtime) & 0xFFFFFFFF) | (status.st_size & 0xFFFFFFFF) << 32
        self.header = _HEADER_START + times.to_bytes(8, "little")

    def exec_module(self, module: ModuleType) -> None:
        data = _read_file(self.bytecode)
        if data.startswith(self.header):
            exec(marshal.loads(memoryview(data)[16:]), module.__dict__)
        else:
            super().exec_module(module)


def _read_file(path: str) -> bytes:
    """The contents of a file; empty where it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        data = os.read(fd, _CHUNK_BYTES)
        while part := os.read(fd, _CHUNK_BYTES):  # a read may return less than there is
            data += part
        return data
    except OSError:
        return b""
    finally:
        os.close(fd)
