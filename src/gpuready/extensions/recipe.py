"""An extension, its compile commands and the cache key of the result. Pure, except for reading sources."""

from __future__ import annotations

from gpuready import versions
from gpuready.model import Noun
from gpuready.system import contents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from gpuready.extensions.judging import Ground, Outlook

SCHEMA = 1
THREADS_SINCE = (11, 2)
"""First nvcc with ``--threads``, which compiles for several GPUs at once."""


class CannotBuild(ValueError):
    """An extension cannot be built or loaded; the message says why and what to do."""


class Extension(Noun):
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


def checked(extension: Extension) -> Extension:
    """Return the extension unchanged; CannotBuild if its name could be a path or a source is missing."""
    name = extension.name
    if not (name.isascii() and name.replace("_", "").replace("-", "").isalnum() and len(name) < 65):
        raise CannotBuild(f"{name!r} is no name of an extension: letters, digits, - and _ only")
    if not extension.sources:
        raise CannotBuild(f"the extension {name} has no sources")
    for path in (*extension.sources, *extension.depends):
        if (contents.size(path) or -1) < 0 or path.startswith("-"):
            raise CannotBuild(
                f"the extension {name} names the source {path}, which is no file with anything in it"
            )
    return extension


def commands(extension: Extension, ground: Ground, view: Outlook, out: str) -> list[list[str]]:
    """Return command lines to try in order: with OpenMP if wanted, then without."""
    build = _nvcc if extension.kind == "cuda" else _cxx
    tries = [("-fopenmp",), ()] if extension.openmp else [()]
    return [build(extension, ground, view, (*extension.flags, *more), out) for more in tries]


def _cxx(extension: Extension, ground: Ground, view: Outlook, flags: Iterable[str], out: str) -> list[str]:
    words = [*ground.compiler, "-O3", "-std=c++17", "-fPIC", "-shared", *flags]
    return [*words, *_included(extension), *extension.sources, *_linked(extension), "-o", out]


def _nvcc(extension: Extension, ground: Ground, view: Outlook, flags: Iterable[str], out: str) -> list[str]:
    assert view.targets is not None
    words = [ground.nvcc, "-O3", "-std=c++17", "-shared"]
    if not ground.variables.get("NVCC_CCBIN"):
        words += ["-ccbin", ground.compiler[0]]
    for flag in ("-fPIC", *flags):
        words += ["-Xcompiler", flag]
    many = view.jobs > 1 and (len(view.targets.entries) > 1 or len(extension.sources) > 1)
    if many and versions.minor(ground.cuda) >= THREADS_SINCE:
        words += ["--threads", str(view.jobs)]
    words += [
        *view.targets.flags(),
        *extension.cuda_flags,
        f"-L{ground.home}/lib",
    ]  # nvcc from a wheel does not search its own lib folder
    return [*words, *_included(extension), *extension.sources, *_linked(extension), "-o", out]


def _included(extension: Extension) -> list[str]:
    return [f"-I{folder}" for folder in extension.includes]


def _linked(extension: Extension) -> list[str]:
    return [f"-l{name}" for name in extension.libraries]


def inputs(extension: Extension, ground: Ground, view: Outlook) -> dict[str, Any]:
    """Return everything that determines the result of a build."""
    cuda = extension.kind == "cuda"
    kept = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN")
    return {
        "schema": SCHEMA,
        "name": extension.name,
        "sources": source_digest(extension),
        "flags": [
            *extension.flags,
            "|",
            *extension.cuda_flags,
            "|",
            *extension.includes,
            "|",
            *extension.libraries,
        ],
        "openmp": extension.openmp,
        "machine": ground.machine,
        "libc": ground.libc,
        "compiler": [*ground.compiler, ground.compiler_version],
        "torch": ground.torch,
        "abi": ground.abi,
        "cuda": [ground.cuda, ground.torch_cuda] if cuda else [],
        "arch": list(view.targets.entries) if view.targets else [],
        "environment": {n: ground.variables[n] for n in kept if cuda and n in ground.variables},
    }


def source_digest(extension: Extension) -> str:
    """Return one hash over the sources and their headers, by name and content."""
    from hashlib import sha256

    told = sha256()
    for path in (*extension.sources, *extension.depends):
        told.update(f"{path.rpartition('/')[2]}\0{contents.digest(path)}\0".encode())
    return told.hexdigest()


def key(told: dict[str, Any]) -> str:
    """Return the cache key for these inputs."""
    import json
    from hashlib import sha256

    return sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:24]
