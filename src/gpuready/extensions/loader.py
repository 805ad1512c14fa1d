"""Load an extension: prebuilt, from the cache, or compiled now."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

from gpuready.catalog import torch
from gpuready.extensions import build_cache, build_environment, recipe
from gpuready.extensions.assessment import BuildAssessment, BuildEnvironment, assess_build
from gpuready.extensions.build_cache import BuiltLibrary
from gpuready.extensions.recipe import CannotBuild, Extension
from gpuready.model import Record, versions
from gpuready.system import AccessError, HostAccess, LiveHost, file_contents, native_library

PREBUILT_VARIABLE = "GPUREADY_EXTENSIONS_PREBUILT"
COMPILE_TIMEOUT = 900.0
ROOT_UID = 0
_loaded_extensions: dict[str, LoadedExtension] = {}


class LoadedExtension(Record):
    """A library in this process: how it was obtained (prebuilt, cached, built), in how many seconds, and from where."""

    library: native_library.NativeLibrary
    entry: BuiltLibrary
    how: str
    seconds: float
    why: str = ""

    def function(self, name: str, takes: str, gives: str = "i") -> Callable[..., Any]:
        """Return one of its functions. Letters: i int, q 64-bit integer, d double, f float, p address, s text."""
        return self.library.bind_function(name, takes, gives)


def load_extension(
    extension: Extension, torch: Any = None, arch: str = "", host: HostAccess | None = None, prebuilt: bool = True
) -> LoadedExtension:
    """Load the extension into this process: prebuilt, cached, or built now. CannotBuild says why it failed.

    ``torch`` is the module if the caller has imported it; ``arch`` replaces TORCH_CUDA_ARCH_LIST.
    """
    host = host or LiveHost()
    started = host.get_monotonic_time()
    recipe.validate_extension(extension)
    environment = build_environment.read_build_environment(host, extension.kind, torch)
    identity = (
        extension,
        recipe.source_digest(extension),
        arch,
        prebuilt,
        environment.torch,
        environment.capabilities,
        environment.variables,
    )
    name = repr(identity)
    if name in _loaded_extensions:
        return _loaded_extensions[name]
    refused: list[str] = []
    for folder in _prebuilt_folders(host) if prebuilt else ():
        prebuilt_entry = _find_prebuilt(folder, extension, environment)
        if isinstance(prebuilt_entry, str):
            refused.append(prebuilt_entry)
            continue
        try:
            opened = _open_library(prebuilt_entry, (native_library.effective_uid(), ROOT_UID))
        except CannotBuild as error:  # a dependency is missing, or its disk forbids loading
            refused.append(str(error))
            continue
        _loaded_extensions[name] = LoadedExtension(
            opened, prebuilt_entry, "prebuilt", host.get_monotonic_time() - started, folder
        )
        return _loaded_extensions[name]
    entry, how = _get_or_build(host, extension, environment, arch, [one for one in refused if one])
    _loaded_extensions[name] = LoadedExtension(
        _open_library(entry, (native_library.effective_uid(),)), entry, how, host.get_monotonic_time() - started
    )
    return _loaded_extensions[name]


def _open_library(entry: BuiltLibrary, owners: tuple[int, ...]) -> native_library.NativeLibrary:
    try:
        return native_library.load_checked_library(entry.path, entry.digest, owners)
    except AccessError as error:
        raise CannotBuild(f"{entry.path} is not loaded: {error}") from None


# -- built now --------------------------------------------------------------------------------------------


def _get_or_build(
    host: HostAccess, extension: Extension, environment: BuildEnvironment, arch: str, refused: list[str]
) -> tuple[BuiltLibrary, str]:
    assessment = assess_build(extension.kind, environment, arch)
    if not assessment.is_possible:
        raise CannotBuild(_cannot_build_message(extension, assessment, refused))
    inputs = recipe.build_inputs(extension, environment, assessment)
    home = build_cache.cache_folder(_cache_variables(host))
    entry, how = build_cache.get_or_build(
        home,
        recipe.build_key(inputs),
        inputs,
        lambda draft: compile_extension(host, extension, environment, assessment, draft, inputs),
    )
    if how == "built":
        _issue_warnings(assessment.warnings)
    return entry, how


def _cannot_build_message(extension: Extension, assessment: BuildAssessment, refused: list[str]) -> str:
    reasons = "; ".join(assessment.errors) or assessment.why
    more = f" (prebuilt: {'; '.join(refused)})" if refused else ""
    return f"the extension {extension.name} cannot be built: {reasons}{more}"


def _cache_variables(host: HostAccess) -> Mapping[str, str]:
    values = {name: host.get_env_var(name) for name in (build_cache.FOLDER_VARIABLE, "XDG_CACHE_HOME", "HOME")}
    return {name: value for name, value in values.items() if value}


def compile_extension(
    host: HostAccess,
    extension: Extension,
    environment: BuildEnvironment,
    assessment: BuildAssessment,
    draft: str,
    inputs: Mapping[str, Any],
) -> BuiltLibrary:
    """Compile into a private folder. CannotBuild carries the compiler's output."""
    started, path = host.get_monotonic_time(), f"{draft}/{build_cache.LIBRARY_NAME}"
    tries = recipe.compile_commands(extension, environment, assessment, path)
    for words in tries:
        # The compiler's temporary files go into the draft folder: private, and removed with it.
        ran = host.run(words, COMPILE_TIMEOUT, 1 << 20, {"TMPDIR": draft})
        if ran.rc == 0 and (file_contents.file_size(path) or 0) > 0:
            return build_cache.describe_library(path, inputs, tuple(words), host.get_monotonic_time() - started)
    output = (ran.err or ran.out).strip()[-3000:]
    how = ran.end or f"exit status {ran.rc}"
    raise CannotBuild(f"compiling {extension.name} failed ({how}): {' '.join(tries[-1])}\n{output}")


def _issue_warnings(sentences: tuple[str, ...]) -> None:
    for one in sentences:
        warnings.warn(one, RuntimeWarning, stacklevel=5)


# -- built ahead of time ----------------------------------------------------------------------------------


def _prebuilt_folders(host: HostAccess) -> list[str]:
    """Return the folders that may hold prebuilt libraries: those of the variable, then this package's."""
    named = (host.get_env_var(PREBUILT_VARIABLE) or "").split(":")
    return [*(one for one in named if one.startswith("/")), f"{__file__.rpartition('/')[0]}/prebuilt"]


def _find_prebuilt(folder: str, extension: Extension, environment: BuildEnvironment) -> BuiltLibrary | str:
    """Return the prebuilt library of a folder, or why it is rejected; "" if there is none."""
    if file_contents.file_size(f"{folder}/{extension.name}.json") is None:
        return ""
    distrust = native_library.untrusted_reason(folder, (native_library.effective_uid(), ROOT_UID))
    if distrust:
        return distrust
    entry = build_cache.read_manifest(folder, None, f"{extension.name}.json", f"{extension.name}.so")
    if entry is None:
        return f"{folder}/{extension.name}.so is damaged"
    return _incompatibility_reason(entry, extension, environment) or entry


def _incompatibility_reason(entry: BuiltLibrary, extension: Extension, environment: BuildEnvironment) -> str:
    inputs = entry.inputs
    if inputs.get("sources") != recipe.source_digest(extension):
        return f"{entry.path} is of other sources"
    if inputs.get("machine") != environment.machine:
        return f"{entry.path} is for {inputs.get('machine')}"
    built = str((inputs.get("cuda") or [""])[0])
    if (
        extension.kind == "cuda"
        and environment.torch_cuda
        and versions.major_version(built) != versions.major_version(environment.torch_cuda)
    ):
        return f"{entry.path} is of CUDA {built}, and torch of {environment.torch_cuda}"
    for one in environment.capabilities if extension.kind == "cuda" else ():
        covered, why = torch.covers_capability(entry.targets, one, built)
        if not covered:
            return f"{entry.path}: {why}"
    return ""
