"""Would the dynamic loader load a library? Its machine, its size and the libraries it needs, found as the loader does.

An RPATH is searched before LD_LIBRARY_PATH and applies to what a library loads in turn; a RUNPATH is searched after it
and is for the library's own needs. The RPATH of the interpreter is searched for all.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from gpuready.model import Record
from gpuready.system import dynamic_loader, elf
from gpuready.system.dynamic_loader import Library
from gpuready.system.elf import find_undefined, list_undefined_symbols
from gpuready.system.host_access import AccessError
from gpuready.system.imports.search_path import SearchPath
from gpuready.system.imports.watched_files import note_path, open_regular, path_exists, resolve_path

DRIVER_LIBRARIES = ("libcuda.so", "libnvidia-ml.so", "libhsa-runtime64.so", "libze_loader.so")
"""Libraries that come with a driver: whether there is one is another question."""
TORCH_LIBRARIES = ("libtorch", "libc10")
TORCH_SYMBOLS = ("_ZN3c10", "_ZNK3c10", "_ZN2at", "_ZNK2at", "_ZN5torch", "_ZNK5torch")
CUDA_LIBRARIES = ("libcudart.so", "libcublas.so", "libcublasLt.so", "libnvrtc.so", "libcufft.so", "libnvJitLink.so")
"""Libraries whose number is that of a CUDA: an extension that wants another one than torch brings is a variant."""


class LibraryFault(Record):
    """Why a file is not loaded: the kind of the row that reports it, what is said of it, and the library that is missing."""

    kind: str  # damaged, machine, library, old-library, other-torch
    detail: str
    missing: str = ""
    path: str = ""  # the library that cannot be loaded, where it is another than the one that was asked for


class Loader:
    """Follows the needs of libraries; what was once loaded serves everybody who needs its name."""

    def __init__(self, path: SearchPath, machine: str, library_path: str, interpreter: str):
        self.path, self.machine = path, machine
        self.variable = dynamic_loader.split_search_path(library_path)
        self.headers: dict[str, dict[str, Any] | LibraryFault] = {}
        self.loaded: dict[str, str] = {}
        self._system: dict[str, str | None] = {}
        self._versions: dict[str, frozenset[str]] = {}
        self._cache: dict[str, str] | None = None
        self.interpreter = self._open_interpreter(interpreter)

    def _open_interpreter(self, interpreter: str) -> Library | None:
        header = self.read_header(resolve_path(interpreter))
        library = None if isinstance(header, LibraryFault) else Library(resolve_path(interpreter), header)
        for name in library.needed if library else ():
            self.loaded[name] = ""
        return library

    def read_header(self, path: str) -> dict[str, Any] | LibraryFault:
        """The needs of a file, or why the loader refuses it."""
        found = self.headers.get(path)
        if found is None:
            note_path(path)
            found = self.headers[path] = self._read_needs(path)
        return found

    def _read_needs(self, path: str) -> dict[str, Any] | LibraryFault:
        try:
            found = elf.read_load_needs(path)
        except AccessError as error:
            return LibraryFault("damaged", str(error))
        if not found:
            return LibraryFault("damaged", "there is no such file")
        if self.machine and found["machine"] != self.machine:
            return LibraryFault("machine", f"it is for {found['machine']}, and this machine is {self.machine}")
        return found

    def find_fault(self, path: str, siblings: Iterable[str] = ()) -> LibraryFault | None:
        """Why loading a file fails; None where it would load. ``siblings`` are files that its package may load first."""
        header = self.read_header(path)
        if isinstance(header, LibraryFault):
            return header
        beside = {os.path.basename(name): name for name in siblings}
        queue = [Library(path, header, self.interpreter)]
        loaded: dict[str, str] = {}  # a load that fails leaves nothing behind
        while queue:
            library = queue.pop(0)
            for name in library.needed:
                if name in self.loaded or name in loaded or name.startswith(DRIVER_LIBRARIES):
                    continue
                found = self._find(name, library) or beside.get(name)
                if found is None:
                    return LibraryFault("library", f"it needs {name}{_by(library, path)}, which is not found", name)
                fault = self.read_header(found)
                if isinstance(fault, LibraryFault):
                    return fault.replace(path=found)
                loaded[name] = found
                queue.append(Library(found, fault, library))
            if lacking := self._find_lacking_version(library, self.loaded | loaded):
                return LibraryFault("old-library", f"it needs {lacking}{_by(library, path)}")
        if undefined := self._find_undefined(path, header, [*loaded.values(), *beside.values()]):
            return LibraryFault("other-torch", f"it needs {undefined}, which torch does not have")
        self.loaded |= loaded
        return None

    def is_of_other_cuda(self, fault: LibraryFault) -> bool:
        """Whether a file only wants the libraries of another CUDA than the one that is loaded: ``libcudart.so.12`` beside 13."""
        stem = next((name for name in CUDA_LIBRARIES if fault.missing.startswith(f"{name}.")), "")
        return bool(stem) and any(name.startswith(f"{stem}.") for name in self.loaded)

    def _find_undefined(self, path: str, header: dict[str, Any], others: list[str]) -> str:
        """A symbol of torch that an extension needs, and that neither torch nor its own libraries define."""
        if not any(name.startswith(TORCH_LIBRARIES) for name in header["needed"]):
            return ""
        folder = next((f"{site}/torch/lib" for site in self.path.folders if "torch" in self.path.list_folder(site)), "")
        if not folder or path.startswith(folder.removesuffix("lib")):
            return ""
        own = [name for name in self.path.list_folder(folder) if name.startswith(TORCH_LIBRARIES)]
        libraries = dict.fromkeys([*(f"{folder}/{name}" for name in sorted(own)), *others, *self.loaded.values()])
        try:
            there = [library for library in libraries if library and note_path(library)]
            return find_undefined(list_undefined_symbols(path, TORCH_SYMBOLS), there)
        except AccessError:
            return ""

    def _find_lacking_version(self, library: Library, loaded: dict[str, str]) -> str:
        """``GLIBCXX_3.4.32, which /usr/lib/libstdc++.so.6 does not have``; empty where every version is there."""
        for name, versions in library.versions.items():
            at = loaded.get(name) or self._find_in_system(name) or ""
            defined = self._read_versions(at) if at else frozenset()
            lacking = next((version for version in versions if defined and version not in defined), "")
            if lacking:
                return f"{lacking}, which {at} does not have"
        return ""

    def _read_versions(self, path: str) -> frozenset[str]:
        if path not in self._versions:
            note_path(path)
            try:
                self._versions[path] = elf.read_defined_versions(path)
            except AccessError:
                self._versions[path] = frozenset()
        return self._versions[path]

    def _find(self, name: str, by: Library) -> str | None:
        own = by.folders if not by.has_rpath else ()
        skipped = None
        for folder in (*by.search_before_variable(), *self.variable, *own):
            if name in self.path.list_folder(folder):
                header = self.read_header(f"{folder}/{name}")
                if not isinstance(header, LibraryFault) or header.kind != "machine":
                    return f"{folder}/{name}"
                skipped = (
                    skipped or f"{folder}/{name}"
                )  # the loader passes over a file of another machine, and no other
        return self._find_in_system(name) or self._find_beside_torch(name) or skipped

    def _find_in_system(self, name: str) -> str | None:
        if name not in self._system:
            tries = (f"{folder}/{name}" for folder in (*dynamic_loader.default_folders(self.machine), "/usr/local/lib"))
            self._system[name] = next((path for path in tries if path_exists(path)), None) or self._find_in_cache(name)
        return self._system[name]

    def _find_in_cache(self, name: str) -> str | None:
        if self._cache is None:
            try:
                with open(dynamic_loader.CACHE_PATH, "rb", opener=open_regular) as file:
                    self._cache = dynamic_loader.parse_loader_cache(file.read(16 << 20), self.machine)
            except OSError:
                self._cache = {}
        return self._cache.get(name)

    def _find_beside_torch(self, name: str) -> str | None:
        """NVIDIA's wheels below any folder of sys.path: torch loads them by path where its RPATH does not lead there."""
        for site in self.path.folders:
            if "nvidia" not in self.path.list_folder(site):
                continue
            for part in self.path.list_folder(f"{site}/nvidia"):
                if name in self.path.list_folder(f"{site}/nvidia/{part}/lib"):
                    return f"{site}/nvidia/{part}/lib/{name}"
        return None


def _by(library: Library, path: str) -> str:
    return "" if library.path == path else f" (for {os.path.basename(library.path)})"
