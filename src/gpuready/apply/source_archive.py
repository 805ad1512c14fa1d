"""What the archive of a source distribution says of its build. Nothing of it is executed or unpacked to disk."""

from __future__ import annotations

import tarfile
import zipfile

from gpuready.apply.uv_config import parse_toml

LEGACY_BACKEND = ("setuptools>=40.8.0", "wheel")
"""What PEP 517 takes where pyproject.toml names nothing; wheel is asked for by old setup.py files."""

_MAX_PROJECT_BYTES = 1 << 20


def read_build_requirements(path: str) -> tuple[str, ...]:
    """Return the build requirements of a source archive: those of its pyproject.toml, and setuptools where it names none."""
    system = parse_toml(_read_project_file(path)).get("build-system")
    requires = system.get("requires") if isinstance(system, dict) else None
    named = tuple(one for one in requires if isinstance(one, str)) if isinstance(requires, list) else ()
    return named or LEGACY_BACKEND


def _read_project_file(path: str) -> str:
    """Return pyproject.toml of the archive's top folder; empty where it has none."""
    if path.endswith(".zip"):
        return _read_from_zip(path)
    with tarfile.open(path, "r:gz") as archive:
        for member in archive:
            if member.isfile() and _is_project_file(member.name) and member.size <= _MAX_PROJECT_BYTES:
                file = archive.extractfile(member)
                return file.read().decode("utf-8", "replace") if file else ""
    return ""


def _read_from_zip(path: str) -> str:
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if _is_project_file(member.filename) and member.file_size <= _MAX_PROJECT_BYTES:
                return archive.read(member).decode("utf-8", "replace")
    return ""


def _is_project_file(name: str) -> bool:
    return name.removeprefix("./").count("/") == 1 and name.endswith("/pyproject.toml")
