"""Load an extension: prebuilt, from the cache, or compiled now."""

from __future__ import annotations

from gpuready.extensions import recipe, sight, store
from gpuready.extensions.judging import outlook
from gpuready.extensions.recipe import CannotBuild
from gpuready.model import Noun
from gpuready.system import Blind, Live, contents, native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from gpuready.extensions.judging import Ground, Outlook
    from gpuready.extensions.recipe import Extension
    from gpuready.extensions.store import Entry
    from gpuready.system import Door

PREBUILT = "GPUREADY_EXTENSIONS_PREBUILT"
DEADLINE = 900.0
ROOT = 0
_loaded: dict[str, Loaded] = {}


class Loaded(Noun):
    """A library in this process: how it was obtained (prebuilt, cached, built), in how many seconds, and from where."""

    library: native.Library
    entry: Entry
    how: str
    seconds: float
    why: str = ""

    def function(self, name: str, takes: str, gives: str = "i") -> Callable[..., Any]:
        """Return one of its functions. Letters: i int, q 64-bit integer, d double, f float, p address, s text."""
        return self.library.function(name, takes, gives)


def load(
    extension: Extension,
    torch: Any = None,
    arch: str = "",
    door: Door | None = None,
    prebuilt: bool = True,
) -> Loaded:
    """Load the extension into this process: prebuilt, cached, or built now. CannotBuild says why it failed.

    ``torch`` is the module if the caller has imported it; ``arch`` replaces TORCH_CUDA_ARCH_LIST.
    """
    door = door or Live()
    begun = door.now()
    recipe.checked(extension)
    ground = sight.look(door, extension.kind, torch)
    about = (
        extension,
        recipe.source_digest(extension),
        arch,
        ground.torch,
        ground.capabilities,
        ground.variables,
    )
    name = repr(about)
    if name in _loaded:
        return _loaded[name]
    refused: list[str] = []
    for folder in _folders(door) if prebuilt else ():
        found = _ahead(folder, extension, ground)
        if isinstance(found, str):
            refused.append(found)
            continue
        try:
            opened = _opened(found, (native.me(), ROOT))
        except CannotBuild as cannot:  # a dependency is missing, or its disk forbids loading
            refused.append(str(cannot))
            continue
        _loaded[name] = Loaded(opened, found, "prebuilt", door.now() - begun, folder)
        return _loaded[name]
    entry, how = _cached(door, extension, ground, arch, [one for one in refused if one])
    _loaded[name] = Loaded(_opened(entry, (native.me(),)), entry, how, door.now() - begun)
    return _loaded[name]


def _opened(entry: Entry, owners: tuple[int, ...]) -> native.Library:
    try:
        return native.load(entry.path, entry.digest, owners)
    except Blind as blind:
        raise CannotBuild(f"{entry.path} is not loaded: {blind}") from None


# -- built now --------------------------------------------------------------------------------------------


def _cached(
    door: Door, extension: Extension, ground: Ground, arch: str, refused: list[str]
) -> tuple[Entry, str]:
    view = outlook(extension.kind, ground, arch)
    if not view.possible:
        raise CannotBuild(_sentence(extension, view, refused))
    told = recipe.inputs(extension, ground, view)
    home = store.folder(_variables(door))
    found, how = store.get(
        home, recipe.key(told), told, lambda draft: compile_into(door, extension, ground, view, draft, told)
    )
    if how == "built":
        _warn(view.warnings)
    return found, how


def _sentence(extension: Extension, view: Outlook, refused: list[str]) -> str:
    reasons = "; ".join(view.errors) or view.why
    more = f" (prebuilt: {'; '.join(refused)})" if refused else ""
    return f"the extension {extension.name} cannot be built: {reasons}{more}"


def _variables(door: Door) -> Mapping[str, str]:
    told = {name: door.env(name) for name in (store.FOLDER, "XDG_CACHE_HOME", "HOME")}
    return {name: value for name, value in told.items() if value}


def compile_into(
    door: Door, extension: Extension, ground: Ground, view: Outlook, draft: str, told: Mapping[str, Any]
) -> Entry:
    """Compile into a private folder. CannotBuild carries the compiler's output."""
    begun, path = door.now(), f"{draft}/{store.LIBRARY}"
    tries = recipe.commands(extension, ground, view, path)
    for words in tries:
        # The compiler's temporary files go into the draft folder: private, and removed with it.
        ran = door.run(words, DEADLINE, 1 << 20, {"TMPDIR": draft})
        if ran.rc == 0 and (contents.size(path) or 0) > 0:
            return store.describe(path, told, tuple(words), door.now() - begun)
    said = (ran.err or ran.out).strip()[-3000:]
    how = ran.end or f"exit status {ran.rc}"
    raise CannotBuild(f"compiling {extension.name} failed ({how}): {' '.join(tries[-1])}\n{said}")


def _warn(sentences: tuple[str, ...]) -> None:
    import warnings

    for one in sentences:
        warnings.warn(one, RuntimeWarning, stacklevel=5)


# -- built ahead of time ----------------------------------------------------------------------------------


def _folders(door: Door) -> list[str]:
    """Return the folders that may hold prebuilt libraries: those of the variable, then this package's."""
    named = (door.env(PREBUILT) or "").split(":")
    return [*(one for one in named if one.startswith("/")), f"{__file__.rpartition('/')[0]}/prebuilt"]


def _ahead(folder: str, extension: Extension, ground: Ground) -> Entry | str:
    """Return the prebuilt library of a folder, or why it is rejected; "" if there is none."""
    if contents.size(f"{folder}/{extension.name}.json") is None:
        return ""
    wrong = native.trusted(folder, (native.me(), ROOT))
    if wrong:
        return wrong
    found = store.read(folder, None, f"{extension.name}.json", f"{extension.name}.so")
    if found is None:
        return f"{folder}/{extension.name}.so is damaged"
    return _unfit(found, extension, ground) or found


def _unfit(found: Entry, extension: Extension, ground: Ground) -> str:
    from gpuready import versions
    from gpuready.catalog import torch

    told = found.inputs
    if told.get("sources") != recipe.source_digest(extension):
        return f"{found.path} is of other sources"
    if told.get("machine") != ground.machine:
        return f"{found.path} is for {told.get('machine')}"
    built = str((told.get("cuda") or [""])[0])
    if (
        extension.kind == "cuda"
        and ground.torch_cuda
        and versions.major(built) != versions.major(ground.torch_cuda)
    ):
        return f"{found.path} is of CUDA {built}, and torch of {ground.torch_cuda}"
    for one in ground.capabilities if extension.kind == "cuda" else ():
        covered, why = torch.covers(found.targets, one, built)
        if not covered:
            return f"{found.path}: {why}"
    return ""
