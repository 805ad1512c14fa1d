"""The CUDA libraries that torch would load, found by following dependencies as the loader does.

A library names what it needs and may name folders: an RPATH is searched before LD_LIBRARY_PATH, a RUNPATH after
it. torch's wheels have RPATHs and NVIDIA's mostly RUNPATHs, so a toolkit on LD_LIBRARY_PATH can override
libraries of the wheels: cuSPARSE from the wheel, nvJitLink from the toolkit.
"""

from __future__ import annotations

from gpuready.model import Fact
from gpuready.probe.fact_helpers import LIBRARIES as KEYS
from gpuready.probe.fact_helpers import gap_facts, read_if_present
from gpuready.system import AccessError, HostAccess
from gpuready.system.dynamic_loader import Library, split_search_path

__all__ = ["KEYS", "LibrarySearch", "probe_cuda_libraries"]

TORCH_LIBRARIES = ("libtorch_global_deps.so", "libtorch_cuda.so")
"""What torch loads, in order; every CUDA library is a dependency of these."""

LIBRARY_PREFIXES = {"libcudnn.path": "libcudnn.so.", "libnccl.path": "libnccl.so."}
VENDOR_PREFIXES = ("libcu", "libnv", "libnccl")
MAX_LIBRARIES = 64
"""How many libraries are followed."""


def probe_cuda_libraries(host: HostAccess, facts: list[Fact]) -> list[Fact]:
    """Return cuDNN, NCCL, and every library that overrides one from the wheels."""
    torch = next((fact for fact in facts if fact.key == "torch.path"), None)
    if torch is None or torch.value is None:
        return gap_facts(KEYS, (torch.gap if torch else "") or "the folder of torch is not known", "torch.path")
    folder = f"{torch.value}/lib"
    try:
        search = LibrarySearch(host)
        search.follow_dependencies(folder, deep=bool(search.search_path or search.preloaded))
        bundled = _list_bundled_libraries(host, folder)
    except AccessError as error:
        return gap_facts(KEYS, str(error), folder)
    paths = [_library_path_fact(search, key, start, folder) for key, start in LIBRARY_PREFIXES.items()]
    source = "LD_LIBRARY_PATH, LD_PRELOAD" if search.search_path or search.preloaded else "LD_LIBRARY_PATH is not set"
    return [*paths, Fact("library.shadowed", _shadowed_libraries(search, bundled), source)]


def _library_path_fact(search: LibrarySearch, key: str, start: str, folder: str) -> Fact:
    if not search.loaded:
        return Fact(key, None, folder, gap=f"there is no {TORCH_LIBRARIES[1]}")
    library = next((one for name, one in search.loaded.items() if name.startswith(start)), None)
    if library is not None:
        return Fact(key, library.path, search.explain_choice(library))
    missing = next((name for name in search.missing if name.startswith(start)), None)
    gap = f"{missing} is needed and was not found" if missing else ""
    return Fact(key, None, f"{folder}/{TORCH_LIBRARIES[1]} does not need it", gap=gap)


# -- search -------------------------------------------------------------------------------------------


class LibrarySearch:
    """Breadth-first search through libraries, as the loader does it; each name is searched once."""

    def __init__(self, host: HostAccess):
        self.host = host
        self.search_path = split_search_path(host.get_env_var("LD_LIBRARY_PATH"))
        self.preloaded = {path.rpartition("/")[2]: path for path in _split_preloads(host.get_env_var("LD_PRELOAD"))}
        self.loaded: dict[str, Library] = {}
        self.missing: list[str] = []
        self._folder_listings: dict[str, tuple[str, ...]] = {}

    def follow_dependencies(self, folder: str, deep: bool) -> None:
        """Load torch's libraries and their dependencies; ``deep``: also theirs in turn."""
        for first in TORCH_LIBRARIES:
            torch_library = self._read_library(f"{folder}/{first}", None)
            queue = [torch_library] if torch_library else []
            while queue and len(self.loaded) < MAX_LIBRARIES:
                current = queue.pop(0)
                for name in (n for n in current.needed if _is_followed(n) and n not in self.loaded):
                    library = self._find_library(name, current, deep)
                    if library is None:
                        self.missing.append(name)
                        continue
                    self.loaded[name] = library
                    queue += [library] if deep or name.startswith("libtorch") else []

    def _find_library(self, name: str, by: Library, deep: bool) -> Library | None:
        own = () if by.has_rpath else by.folders
        folders = (*by.search_before_variable(), *self.search_path, *own)
        path = self.preloaded.get(name) or self._find_in_folders(folders, name)
        path = path or read_if_present(self.host.find_library, name)
        if path is None:
            return None
        return (
            read_if_present(self._read_library, path, by) if deep or name.startswith("libtorch") else None
        ) or Library(path, {}, by)

    def _find_in_folders(self, folders: tuple[str, ...], name: str) -> str | None:
        for folder in folders:
            if folder not in self._folder_listings:
                self._folder_listings[folder] = read_if_present(self.host.list_directory, folder) or ()
            if name in self._folder_listings[folder]:
                return f"{folder}/{name}"
        return None

    def _read_library(self, path: str, by: Library | None) -> Library | None:
        header = self.host.read_elf_headers(path)
        return None if header is None else Library(path, header, by)

    def explain_choice(self, library: Library) -> str:
        """Describe what led to a library."""
        requirer = library.parent.file_name if library.parent else "torch"
        if library.path in self.preloaded.values():
            return "LD_PRELOAD"
        if library.path.rpartition("/")[0] in self.search_path:
            return f"LD_LIBRARY_PATH, for {requirer}"
        return f"needed by {requirer}"


def _split_preloads(words: str | None) -> list[str]:
    return [path for path in (words or "").replace(":", " ").split() if path.startswith("/")]


def _is_followed(name: str) -> bool:
    return name.startswith((*VENDOR_PREFIXES, "libtorch", "libc10"))


# -- overridden libraries -----------------------------------------------------------------------------


def _list_bundled_libraries(host: HostAccess, folder: str) -> dict[str, str]:
    """List the libraries from the wheels: beside torch and in NVIDIA's folders."""
    site = folder.rpartition("/torch/")[0]
    places = [f"{site}/nvidia/{name}/lib" for name in host.list_directory(f"{site}/nvidia") or ()]
    bundled: dict[str, str] = {}
    for place in (*places, folder):
        for name in host.list_directory(place) or ():
            if name.startswith(VENDOR_PREFIXES) and ".so." in name:
                bundled.setdefault(name, f"{place}/{name}")
    return bundled


def _shadowed_libraries(search: LibrarySearch, bundled: dict[str, str]) -> dict[str, dict[str, str]]:
    rows = {}
    for name, one in search.loaded.items():
        bundled_path = bundled.get(name)
        if bundled_path is None or one.path in bundled.values():
            continue
        if read_if_present(search.host.resolve_path, one.path) != read_if_present(
            search.host.resolve_path, bundled_path
        ):
            rows[name] = {"taken": one.path, "instead_of": bundled_path, "because": search.explain_choice(one)}
    return rows
