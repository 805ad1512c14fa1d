"""The sources of a release (a wheel, an archive or a checkout) and the environment variables they name. Nothing is imported or run."""

from __future__ import annotations

import os
import re
import tarfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping

from gpuready.model import Record
from gpuready.model.metadata import parse_metadata, parse_requires_file
from gpuready.system.archive_members import list_tar_members

MAX_SOURCE_BYTES = 4 << 20
_ASIDE = r"(?:^|/)(?:tests?|docs?[\w-]*|examples?|benchmarks?|scripts|cicd|\.github|build|third_party|applications)/|(?:^|/)(?:setup|conftest)\.py$"
_METADATA = r"[^/]+\.dist-info/METADATA|PKG-INFO"


class PackageSource(Record):
    """A release as its files have it: sources by path, and what its metadata requires."""

    name: str
    version: str
    requires_dist: tuple[str, ...]
    requires_python: str
    is_dynamic: bool  # its requirements are worked out anew by each build
    files: dict[str, str]


def read_package_source(path: str) -> PackageSource:
    """Read a wheel, a source archive (tar.gz) or the folder of a checkout."""
    if os.path.isdir(path):
        return make_package_source(_folder_files(path), is_wheel=False)
    return make_package_source(
        _wheel_files(path) if path.endswith(".whl") else _archive_files(path), path.endswith(".whl")
    )


def make_package_source(members: Iterable[tuple[str, str]], is_wheel: bool) -> PackageSource:
    """Make the source of a release of its members; those of an archive stand below ``src`` or beside its metadata."""
    files = dict(members)
    head = next((text for name, text in files.items() if re.fullmatch(_METADATA, name)), "")
    metadata = parse_metadata(head)
    listed = next((text for name, text in files.items() if name.endswith(".egg-info/requires.txt")), "")
    sources = {name.removeprefix("src/"): text for name, text in files.items() if _is_source(name, is_wheel)}
    return PackageSource(
        name=_field(head, "Name"),
        version=_field(head, "Version"),
        requires_dist=tuple(metadata["requires_dist"] or parse_requires_file(listed)),
        requires_python=metadata["requires_python"] or "",
        is_dynamic=not is_wheel and re.search(r"^Dynamic: requires-dist$", head, re.M | re.I) is not None,
        files=sources,
    )


def _field(head: str, name: str) -> str:
    found = re.search(rf"^{name}: (\S+)", head, re.M)
    return found[1] if found else ""


def _is_source(name: str, is_wheel: bool) -> bool:
    return name.endswith(".py") and ".dist-info/" not in name and (is_wheel or re.search(_ASIDE, name) is None)


def is_wanted_member(name: str) -> bool:
    """Whether a member of a wheel tells anything: a source, or the metadata."""
    return name.endswith((".py", ".dist-info/METADATA"))


def _wheel_files(path: str) -> Iterator[tuple[str, str]]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if is_wanted_member(info.filename) and info.file_size <= MAX_SOURCE_BYTES:
                yield info.filename, archive.read(info).decode("utf-8", "replace")


def _archive_files(path: str) -> Iterator[tuple[str, str]]:
    with tarfile.open(path) as archive:
        for entry in list_tar_members(archive):
            name = entry.name.removeprefix("./").partition("/")[2]
            if entry.isfile() and entry.size <= MAX_SOURCE_BYTES and _is_readable_member(name):
                stream = archive.extractfile(entry)
                yield name, stream.read().decode("utf-8", "replace") if stream else ""


def _is_readable_member(name: str) -> bool:
    return name.endswith((".py", ".egg-info/requires.txt")) or name == "PKG-INFO"


def _folder_files(folder: str) -> Iterator[tuple[str, str]]:
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(one for one in folders if not one.startswith("."))
        for name in sorted(names):
            path = os.path.join(where, name)
            relative = os.path.relpath(path, folder)
            if _is_readable_member(relative) and os.path.isfile(path) and os.path.getsize(path) <= MAX_SOURCE_BYTES:
                with open(path, encoding="utf-8", errors="replace") as file:
                    yield relative, file.read()


_NAME = r"(?P<quote>['\"])(?P<name>[A-Z_][A-Za-z0-9_]{0,80}[A-Z0-9][A-Za-z0-9_]{0,80}|[a-z]{1,9}_proxy)(?P=quote)"
_VARIABLE = re.compile(
    rf"\b(?:environ(?:\.(?P<method>get|pop|setdefault))?\s*[\[(]|getenv\s*\()\s*{_NAME}"
    r"(?P<set>\s*\]\s*=(?!=))?(?:\s*,\s*(?P<mark>['\"])(?P<value>[^'\"\n]{0,80})(?P=mark))?"
    r"|(?P<sign>['\"])(?P<asked>[A-Z_][A-Z0-9_]{2,80})(?P=sign)\s+(?:not\s+)?in\s+(?:os\.)?environ\b"
)


def list_variable_uses(files: Mapping[str, str]) -> list[str]:
    """One text for each variable that sources name: ``NAME read,set-if-unset path:line value``, at the first place that sets it, else reads it."""
    found: dict[str, list[tuple[str, str, str]]] = {}
    for path, text in files.items():
        for match in _VARIABLE.finditer(text):
            keeps = match["method"] == "setdefault"
            place = f"{path}:{text.count(chr(10), 0, match.start()) + 1}"
            use = ("set-if-unset" if keeps else "set" if match["set"] else "read", place, match["value"] or "")
            found.setdefault(match["name"] or match["asked"], []).append(use)
    return [_summarize_uses(name, found[name]) for name in sorted(found)]


def _summarize_uses(name: str, uses: list[tuple[str, str, str]]) -> str:
    sets = [use for use in uses if use[0] != "read"]
    words = ["read"] if any(use[0] != "set" for use in uses) else []
    words += [min(access for access, _, _ in sets)] if sets else []
    _, place, value = (sets or uses)[0]
    return " ".join(part for part in (name, ",".join(words), place, value if "set-if-unset" in words else "") if part)
