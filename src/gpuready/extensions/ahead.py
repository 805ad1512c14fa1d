"""Build extensions ahead of time into a folder, with a manifest of the inputs beside each library."""

from __future__ import annotations

from gpuready.extensions import jit, recipe, sight, store
from gpuready.extensions.judging import outlook, truth
from gpuready.extensions.recipe import CannotBuild
from gpuready.system import Live, durable, scratch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from gpuready.extensions.recipe import Extension
    from gpuready.extensions.store import Entry
    from gpuready.system import Door

INSIDE = f"{__file__.rpartition('/')[0]}/prebuilt"
"""Folder in which an installed gpuready looks for prebuilt libraries."""


def asked(variables: Mapping[str, str]) -> bool:
    """Whether BUILD_EXT asks for a build. ValueError if it is neither yes nor no."""
    return truth("BUILD_EXT", variables.get("BUILD_EXT"))


def build(
    extensions: Sequence[Extension], into: str, arch: str = "", torch: Any = None, door: Door | None = None
) -> tuple[list[Entry], dict[str, str]]:
    """Build what can be built here; return the libraries, and the reason for each one skipped.

    CannotBuild if a compiler fails or nothing can be built.
    """
    door = door or Live()
    made: list[Entry] = []
    left: dict[str, str] = {}
    for extension in extensions:
        ground = sight.look(door, recipe.checked(extension).kind, torch)
        view = outlook(extension.kind, ground, arch)
        if not view.possible:
            left[extension.name] = "; ".join(view.errors) or view.why
            continue
        told = recipe.inputs(extension, ground, view)
        durable.folder(into)
        with scratch.Scratch({"TMPDIR": into}) as draft:
            entry = jit.compile_into(door, extension, ground, view, draft, told)
            made.append(_placed(entry, into, extension.name))
    if not made:
        raise CannotBuild(
            "no extension can be built here: " + "; ".join(f"{n}: {why}" for n, why in left.items())
        )
    return made, left


def _placed(entry: Entry, into: str, name: str) -> Entry:
    """Move a library and its manifest into place. The library goes first, so a manifest never names a missing file."""
    import json

    placed = entry.but(path=f"{into}/{name}.so")
    durable.remove(f"{into}/{name}.json")
    durable.move(entry.path, placed.path)
    plain = placed.but(path=f"{name}.so", argv=_portable(entry, name))
    durable.write(f"{into}/{name}.json", json.dumps(plain.to_json(), indent=1, sort_keys=True))
    return placed


def _portable(entry: Entry, name: str) -> tuple[str, ...]:
    """Return the compile command without the paths of the machine that built it."""
    folder = entry.path.rpartition("/")[0]
    return tuple(word.replace(folder, ".").replace(store.LIBRARY, f"{name}.so") for word in entry.argv)
