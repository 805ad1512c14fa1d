"""An extension, its compile commands and the cache key of the result. Pure, except for reading sources."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from hashlib import sha256
from importlib import import_module
from typing import Any

from gpuready.extensions.assessment import BuildAssessment, BuildEnvironment
from gpuready.model import Record, versions
from gpuready.model.validation import parse_record
from gpuready.system import file_contents

INPUTS_SCHEMA = 1
MAX_RECIPE_BYTES = 1 << 20
NVCC_THREADS_SINCE = (11, 2)
"""First nvcc with ``--threads``, which compiles for several GPUs at once."""


class CannotBuild(ValueError):
    """An extension cannot be built or loaded; the message says why and what to do."""


class Extension(Record):
    """Sources with a plain C interface. With a ``.cu`` file nvcc compiles them, otherwise the C++ compiler."""

    name: str
    sources: tuple[str, ...]
    depends: tuple[str, ...] = ()  # further files that affect the result: headers
    flags: tuple[str, ...] = ()  # for the C++ compiler, also when nvcc calls it
    cuda_flags: tuple[str, ...] = ()
    includes: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    openmp: bool = False  # dropped if the compiler lacks it

    @property
    def kind(self) -> str:
        return "cuda" if any(source.endswith(".cu") for source in self.sources) else "cpu"


def validate_extension(extension: Extension) -> Extension:
    """Return the extension unchanged; CannotBuild if its name could be a path or a source is missing."""
    name = extension.name
    if not (name.isascii() and name.replace("_", "").replace("-", "").isalnum() and len(name) < 65):
        raise CannotBuild(f"{name!r} is not a valid name of an extension: letters, digits, - and _ only")
    if not extension.sources:
        raise CannotBuild(f"the extension {name} has no sources")
    for path in (*extension.sources, *extension.depends):
        if (file_contents.file_size(path) or -1) < 0 or path.startswith("-"):
            raise CannotBuild(f"the extension {name} names the source {path}, which is not a file, or is empty")
    return extension


def read_recipe(path: str) -> Extension:
    """Return the extension that a TOML file describes; CannotBuild says what is wrong with the file.

    Its keys are the fields of Extension; files and folders are relative to it.
    """
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    text = file_contents.read_text_file(path, MAX_RECIPE_BYTES)
    if text is None:
        raise CannotBuild(f"{path} cannot be read: name the recipe of an extension, in TOML")
    try:
        data = toml.loads(text)
        if unknown := ", ".join(sorted(data.keys() - set(Extension._fields))):
            raise ValueError(f"it has unknown keys: {unknown}")
        described = parse_record(Extension, data)
    except (ValueError, RecursionError) as error:
        raise CannotBuild(f"{path} is not the recipe of an extension: {error}") from None
    folder = file_contents.resolve_real_path(path).rpartition("/")[0]
    return described.replace(
        **{
            name: tuple(one if one.startswith("/") else f"{folder}/{one}" for one in getattr(described, name))
            for name in ("sources", "depends", "includes")
        }
    )


def compile_commands(
    extension: Extension, environment: BuildEnvironment, assessment: BuildAssessment, out: str
) -> list[list[str]]:
    """Return command lines to try in order: with OpenMP if wanted, then without."""
    build = _nvcc_command if extension.kind == "cuda" else _cxx_command
    tries = [("-fopenmp",), ()] if extension.openmp else [()]
    return [build(extension, environment, assessment, (*extension.flags, *more), out) for more in tries]


def _cxx_command(
    extension: Extension, environment: BuildEnvironment, assessment: BuildAssessment, flags: Iterable[str], out: str
) -> list[str]:
    words = [*environment.compiler, "-O3", "-std=c++17", "-fPIC", "-shared", *flags]
    return [*words, *_include_flags(extension), *extension.sources, *_library_flags(extension), "-o", out]


def _nvcc_command(
    extension: Extension, environment: BuildEnvironment, assessment: BuildAssessment, flags: Iterable[str], out: str
) -> list[str]:
    assert assessment.targets is not None
    words = [environment.nvcc, "-O3", "-std=c++17", "-shared"]
    if not environment.variables.get("NVCC_CCBIN"):
        words += ["-ccbin", environment.compiler[0]]
    for flag in ("-fPIC", *flags):
        words += ["-Xcompiler", flag]
    many = assessment.jobs > 1 and (len(assessment.targets.entries) > 1 or len(extension.sources) > 1)
    if many and versions.major_minor(environment.cuda) >= NVCC_THREADS_SINCE:
        words += ["--threads", str(assessment.jobs)]
    words += [
        *assessment.targets.nvcc_flags(),
        *extension.cuda_flags,
        f"-L{environment.home}/lib",
    ]  # nvcc from a wheel does not search its own lib folder
    return [*words, *_include_flags(extension), *extension.sources, *_library_flags(extension), "-o", out]


def _include_flags(extension: Extension) -> list[str]:
    return [f"-I{folder}" for folder in extension.includes]


def _library_flags(extension: Extension) -> list[str]:
    return [f"-l{name}" for name in extension.libraries]


def build_inputs(extension: Extension, environment: BuildEnvironment, assessment: BuildAssessment) -> dict[str, Any]:
    """Return everything that determines the result of a build."""
    cuda = extension.kind == "cuda"
    kept = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN")
    return {
        "schema": INPUTS_SCHEMA,
        "name": extension.name,
        "sources": source_digest(extension),
        "flags": [*extension.flags, "|", *extension.cuda_flags, "|", *extension.includes, "|", *extension.libraries],
        "openmp": extension.openmp,
        "machine": environment.machine,
        "libc": environment.libc,
        "compiler": [*environment.compiler, environment.compiler_version],
        "torch": environment.torch,
        "abi": environment.abi,
        "cuda": [environment.cuda, environment.torch_cuda] if cuda else [],
        "arch": list(assessment.targets.entries) if assessment.targets else [],
        "environment": {n: environment.variables[n] for n in kept if cuda and n in environment.variables},
    }


def source_digest(extension: Extension) -> str:
    """Return one hash over the sources and their headers, by name and content."""
    digest = sha256()
    for path in (*extension.sources, *extension.depends):
        digest.update(f"{path.rpartition('/')[2]}\0{file_contents.hash_file_contents(path)}\0".encode())
    return digest.hexdigest()


def build_key(inputs: dict[str, Any]) -> str:
    """Return the cache key for these inputs."""
    return sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:24]
