"""The version of a Python interpreter, by its files. Starting it would run whatever somebody put in its place."""

from __future__ import annotations

from collections.abc import Iterator

from gpuready.probe.fact_helpers import leading_version, read_if_present
from gpuready.system import HostAccess

LETTERS = "abcdefghijklmnopqrstuvwxyz-"


def read_exact_version(host: HostAccess, prefix: str, path: str) -> tuple[str, str]:
    """Return the version with its patch level, and the file that has it; two empty texts where no file has."""
    real = read_if_present(host.resolve_path, path, default=path)
    minor = read_minor_version(host, prefix, path)[0]
    for base in dict.fromkeys((prefix, _prefix_of(real))) if minor else ():
        header = f"{base}/include/python{minor}/patchlevel.h"
        # #define PY_VERSION              "3.11.7"
        text = read_if_present(host.read_text, header) or ""
        version = leading_version(text.partition("define PY_VERSION ")[2].lstrip(' \t"'))
        if version and _is_of_minor(version, minor):
            return version, header
    for file in _code_files(host, real) if minor else ():
        texts = read_if_present(host.find_elf_strings, file, ".rodata", (f"{minor}.",)) or ()
        found = {text for text in texts if leading_version(text) == text and _is_of_minor(text, minor)}
        if len(found) == 1:
            return found.pop(), f"the version string in {file}"
    return "", ""


def read_minor_version(host: HostAccess, prefix: str, path: str) -> tuple[str, str]:
    """Return ``3.11`` by the name of the program, of its library or of ``lib/python3.11``, and which of them it was."""
    real = read_if_present(host.resolve_path, path, default=path)
    for file in (real, *(name for name in _linked_libraries(host, real) if name.startswith("libpython"))):
        minor = read_named_minor(file)
        if minor:
            return minor, real
    for base in dict.fromkeys((prefix, _prefix_of(real))):
        minors = list_python_minors(host, base)
        if len(minors) == 1:
            return minors[0], f"{base}/lib/python{minors[0]}"
    return "", ""


def read_named_minor(path: str) -> str:
    """``3.11`` of /usr/bin/python3.11 or libpython3.11.so; empty where the name does not tell."""
    return _leading_minor(path.rpartition("/")[2].lstrip(LETTERS))


def list_python_minors(host: HostAccess, prefix: str) -> list[str]:
    """List the versions that have a folder of packages in a prefix, such as ``lib/python3.11``."""
    names = read_if_present(host.list_directory, f"{prefix}/lib") or ()
    return [name[6:] for name in names if name.startswith("python3.")]


def _prefix_of(program: str) -> str:
    return program.rpartition("/")[0].rpartition("/")[0]


def _leading_minor(text: str) -> str:
    parts = (leading_version(text) or "").split(".")
    return ".".join(parts[:2]) if len(parts) > 1 and parts[0] in ("2", "3") else ""


def _is_of_minor(version: str, minor: str) -> bool:
    return version.startswith(f"{minor}.") and len(version.split(".")) == 3


def _linked_libraries(host: HostAccess, real: str) -> list[str]:
    return [str(name) for name in (read_if_present(host.read_elf_headers, real) or {}).get("needed", ())]


def is_linked_to_python(host: HostAccess, real: str) -> bool:
    return any(name.startswith("libpython") for name in _linked_libraries(host, real))


def _code_files(host: HostAccess, real: str) -> Iterator[str]:
    """The shared library with the interpreter's code where it is linked to one, else the program itself."""
    shared = [name for name in _linked_libraries(host, real) if name.startswith("libpython")]
    yield from (f"{_prefix_of(real)}/lib/{name}" for name in shared)
    if not shared:
        yield real
