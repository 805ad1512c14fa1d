"""Build extensions ahead of time into a folder, with a manifest of the inputs beside each library."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gpuready.extensions import build_cache, build_environment, loader, recipe
from gpuready.extensions.assessment import assess_build, parse_env_switch
from gpuready.extensions.build_cache import BuiltLibrary
from gpuready.extensions.recipe import CannotBuild, Extension
from gpuready.system import HostAccess, LiveHost, durable_files, own_folders

PREBUILT_FOLDER = f"{__file__.rpartition('/')[0]}/prebuilt"
"""Folder in which an installed gpuready looks for prebuilt libraries."""


def is_build_requested(variables: Mapping[str, str]) -> bool:
    """Whether BUILD_EXT asks for a build. ValueError if it is neither yes nor no."""
    return parse_env_switch("BUILD_EXT", variables.get("BUILD_EXT"))


def build_extensions(
    extensions: Sequence[Extension], into: str, arch: str = "", torch: Any = None, host: HostAccess | None = None
) -> tuple[list[BuiltLibrary], dict[str, str]]:
    """Build what can be built here; return the libraries, and the reason for each one skipped.

    CannotBuild if a compiler fails or nothing can be built.
    """
    host = host or LiveHost()
    made: list[BuiltLibrary] = []
    skipped: dict[str, str] = {}
    for extension in extensions:
        environment = build_environment.read_build_environment(host, recipe.validate_extension(extension).kind, torch)
        assessment = assess_build(extension.kind, environment, arch)
        if not assessment.is_possible:
            skipped[extension.name] = "; ".join(assessment.errors) or assessment.why
            continue
        inputs = recipe.build_inputs(extension, environment, assessment)
        durable_files.make_folder(into)
        with own_folders.TemporaryFolder({}, into) as draft:
            entry = loader.compile_extension(host, extension, environment, assessment, draft, inputs)
            made.append(_install_library(entry, into, extension.name))
    if not made:
        raise CannotBuild("no extension can be built here: " + "; ".join(f"{n}: {why}" for n, why in skipped.items()))
    return made, skipped


def _install_library(entry: BuiltLibrary, into: str, name: str) -> BuiltLibrary:
    """Move a library and its manifest into place. The library goes first, so a manifest never names a missing file."""
    placed = entry.replace(path=f"{into}/{name}.so")
    durable_files.remove_file(f"{into}/{name}.json")
    durable_files.rename_path(entry.path, placed.path)
    plain = placed.replace(path=f"{name}.so", argv=_portable_command(entry, name))
    durable_files.replace_file(f"{into}/{name}.json", json.dumps(plain.to_json(), indent=1, sort_keys=True))
    return placed


def _portable_command(entry: BuiltLibrary, name: str) -> tuple[str, ...]:
    """Return the compile command without the paths of the machine that built it."""
    folder = entry.path.rpartition("/")[0]
    return tuple(word.replace(folder, ".").replace(build_cache.LIBRARY_NAME, f"{name}.so") for word in entry.argv)
