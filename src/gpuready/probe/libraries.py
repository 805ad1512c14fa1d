"""The CUDA libraries that torch would load, found by following dependencies as the loader does.

A library names what it needs and may name folders: an RPATH is searched before LD_LIBRARY_PATH, a RUNPATH after
it. torch's wheels have RPATHs and NVIDIA's mostly RUNPATHs, so a toolkit on LD_LIBRARY_PATH can override
libraries of the wheels: cuSPARSE from the wheel, nvJitLink from the toolkit.
"""

from __future__ import annotations

from gpuready.model import Fact, Noun
from gpuready.probe.keys import LIBRARIES as KEYS
from gpuready.probe.sight import gaps, glimpse
from gpuready.system import Blind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuready.system import Door

__all__ = ["KEYS", "Search", "look"]

FIRST = ("libtorch_global_deps.so", "libtorch_cuda.so")
"""What torch loads, in order; every CUDA library is a dependency of these."""

PATHS = {"libcudnn.path": "libcudnn.so.", "libnccl.path": "libnccl.so."}
VENDOR = ("libcu", "libnv", "libnccl")
MOST = 64
"""How many libraries are followed."""


class Loaded(Noun):
    """One library: its path, the library that needs it (``by``), and its ELF header data."""

    path: str
    by: Loaded | None = None
    needed: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    rpath: bool = False

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


def look(door: Door, facts: list[Fact]) -> list[Fact]:
    """Return cuDNN, NCCL, and every library that overrides one from the wheels."""
    torch = next((fact for fact in facts if fact.key == "torch.path"), None)
    if torch is None or torch.value is None:
        return gaps(KEYS, (torch.gap if torch else "") or "the folder of torch is not known", "torch.path")
    folder = f"{torch.value}/lib"
    try:
        search = Search(door)
        search.follow(folder, deep=bool(search.own or search.preloaded))
        bundled = _bundled(door, folder)
    except Blind as blind:
        return gaps(KEYS, str(blind), folder)
    paths = [_path(search, key, start, folder) for key, start in PATHS.items()]
    source = "LD_LIBRARY_PATH, LD_PRELOAD" if search.own or search.preloaded else "LD_LIBRARY_PATH is not set"
    return [*paths, Fact("library.shadowed", _shadowed(search, bundled), source)]


def _path(search: Search, key: str, start: str, folder: str) -> Fact:
    if not search.loaded:
        return Fact(key, None, folder, gap=f"there is no {FIRST[1]}")
    found = next((one for name, one in search.loaded.items() if name.startswith(start)), None)
    if found is not None:
        return Fact(key, found.path, search.why(found))
    missing = next((name for name in search.missing if name.startswith(start)), None)
    gap = f"{missing} is needed and was not found" if missing else ""
    return Fact(key, None, f"{folder}/{FIRST[1]} does not need it", gap=gap)


# -- search -------------------------------------------------------------------------------------------


class Search:
    """Breadth-first search through libraries, as the loader does it; each name is searched once."""

    def __init__(self, door: Door):
        self.door = door
        self.own = _folders(door.env("LD_LIBRARY_PATH"))
        self.preloaded = {path.rpartition("/")[2]: path for path in _preloads(door.env("LD_PRELOAD"))}
        self.loaded: dict[str, Loaded] = {}
        self.missing: list[str] = []
        self._listed: dict[str, tuple[str, ...]] = {}

    def follow(self, folder: str, deep: bool) -> None:
        """Load torch's libraries and their dependencies; ``deep``: also theirs in turn."""
        for first in FIRST:
            about = self._about(f"{folder}/{first}", None)
            queue = [about] if about else []
            while queue and len(self.loaded) < MOST:
                one = queue.pop(0)
                for name in (n for n in one.needed if _matters(n) and n not in self.loaded):
                    found = self._find(name, one, deep)
                    if found is None:
                        self.missing.append(name)
                        continue
                    self.loaded[name] = found
                    queue += [found] if deep or name.startswith("libtorch") else []

    def _find(self, name: str, by: Loaded, deep: bool) -> Loaded | None:
        path = self.preloaded.get(name) or self._early(name, by) or self._in(self.own, name)
        path = path or (None if by.rpath else self._in(by.folders, name)) or glimpse(self.door.library, name)
        if path is None:
            return None
        return (glimpse(self._about, path, by) if deep or name.startswith("libtorch") else None) or Loaded(
            path, by
        )

    def _early(self, name: str, by: Loaded) -> str | None:
        """Search the RPATHs of the requiring library and its loaders; its own RUNPATH disables them all."""
        if by.folders and not by.rpath:
            return None
        one: Loaded | None = by
        while one is not None:
            if one.rpath and (path := self._in(one.folders, name)):
                return path
            one = one.by
        return None

    def _in(self, folders: tuple[str, ...], name: str) -> str | None:
        for folder in folders:
            if folder not in self._listed:
                self._listed[folder] = glimpse(self.door.list, folder) or ()
            if name in self._listed[folder]:
                return f"{folder}/{name}"
        return None

    def _about(self, path: str, by: Loaded | None) -> Loaded | None:
        header = self.door.elf(path)
        return None if header is None else read(path, header, by)

    def why(self, found: Loaded) -> str:
        """Describe what led to a library."""
        asks = found.by.name if found.by else "torch"
        if found.path in self.preloaded.values():
            return "LD_PRELOAD"
        if found.path.rpartition("/")[0] in self.own:
            return f"LD_LIBRARY_PATH, for {asks}"
        return f"needed by {asks}"


def read(path: str, header: dict[str, Any], by: Loaded | None = None) -> Loaded:
    """Parse a library's header, with $ORIGIN replaced by its folder."""
    here = path.rpartition("/")[0]
    words = str(header.get("runpath") or "").replace("${ORIGIN}", here).replace("$ORIGIN", here)
    needed = tuple(str(name) for name in header.get("needed") or ())
    return Loaded(path, by, needed, _folders(words), bool(header.get("rpath")))


def _folders(words: str | None) -> tuple[str, ...]:
    import posixpath

    plain = (words or "").replace(";", ":").split(":")
    return tuple(posixpath.normpath(folder) for folder in plain if folder.startswith("/"))


def _preloads(words: str | None) -> list[str]:
    return [path for path in (words or "").replace(":", " ").split() if path.startswith("/")]


def _matters(name: str) -> bool:
    return name.startswith((*VENDOR, "libtorch", "libc10"))


# -- overridden libraries -----------------------------------------------------------------------------


def _bundled(door: Door, folder: str) -> dict[str, str]:
    """List the libraries from the wheels: beside torch and in NVIDIA's folders."""
    site = folder.rpartition("/torch/")[0]
    places = [f"{site}/nvidia/{name}/lib" for name in door.list(f"{site}/nvidia") or ()]
    found: dict[str, str] = {}
    for place in (*places, folder):
        for name in door.list(place) or ():
            if name.startswith(VENDOR) and ".so." in name:
                found.setdefault(name, f"{place}/{name}")
    return found


def _shadowed(search: Search, bundled: dict[str, str]) -> dict[str, dict[str, str]]:
    rows = {}
    for name, one in search.loaded.items():
        own = bundled.get(name)
        if own is None or one.path in bundled.values():
            continue
        if glimpse(search.door.real, one.path) != glimpse(search.door.real, own):
            rows[name] = {"taken": one.path, "instead_of": own, "because": search.why(one)}
    return rows
