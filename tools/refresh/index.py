"""Projects of an index: their files (PEP 691 JSON or PEP 503 pages) and the metadata of a wheel."""

from __future__ import annotations

import email.parser
import hashlib
import html.parser
import json
import re
import threading
import urllib.parse
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag
from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from refresh.web import Missing, Trouble, Web, shown
from refresh.wheel import Wheel

ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.5, text/html;q=0.1"
# The machine that rows describe; the Python is the one of the wheel that is read.
LINUX = {
    "os_name": "posix", "sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64",
    "implementation_name": "cpython", "platform_python_implementation": "CPython", "extra": "",
}  # fmt: skip
DAY = re.compile(r"\d{4}-\d\d-\d\d")


@dataclass(frozen=True)
class File:
    """One file that the index offers."""

    name: str
    address: str
    version: Version
    tags: frozenset[Tag]  # empty: a source distribution
    requires_python: str
    day: str  # of the upload; empty where the index does not say
    metadata: str  # sha256 of the PEP 658 file, "any" where it is offered without one, "" where it is not
    withdrawn: bool = False  # yanked (PEP 592): an exact pin still takes it

    def linux(self, machine: str) -> bool:
        return any("linux" in tag.platform and tag.platform.endswith("_" + machine) for tag in self.tags)

    @property
    def pure(self) -> bool:
        return any(tag.platform == "any" for tag in self.tags)

    @property
    def pythons(self) -> set[str]:
        """``cp314-cp314t`` -> ``3.14t``; wheels for any Python name none."""
        return {_python(tag) for tag in self.tags} - {""}


@dataclass(frozen=True)
class Metadata:
    """What a wheel declares, and the file in which it was read."""

    file: str
    requires: tuple[Requirement, ...]
    requires_python: str

    def wants(self, python: str = "3.12") -> list[Requirement]:
        """The requirements that hold on Linux x86_64 without an extra."""
        here = LINUX | {"python_version": python, "python_full_version": python + ".0"}
        return [one for one in self.requires if _holds(one, here)]


class Index:
    """An index that answers every question once."""

    def __init__(self, web: Web, note: Callable[[str], None] = lambda name: None) -> None:
        self.web = web
        self._note = note  # is told the name of each project and wheel before it is read
        self._files: dict[str, list[File]] = {}
        self._wheels: dict[str, Wheel] = {}
        self._one_at_a_time = threading.Lock()
        self.opened: dict[str, int] = {}  # name and size of each wheel that was looked into

    def files(self, project: str) -> list[File]:
        """The files of a project's final releases, without those that were withdrawn."""
        return [file for file in self._list_files(project) if not file.withdrawn]

    def _list_files(self, project: str) -> list[File]:
        if project not in self._files:
            self._note(project)
            address = urllib.parse.urljoin(self.web.index, project + "/")
            body, kind, found_at = self.web.page(address, ACCEPT)
            rows = _from_json(body, project) if "json" in kind else _from_page(body, project, kind)
            read = (_file(row, found_at, project) for row in rows)
            self._files[project] = [f for f in read if f and not f.version.is_prerelease and not f.version.local]
        return self._files[project]

    def releases(self, project: str) -> dict[Version, list[File]]:
        """The files by release, the oldest release first."""
        return _by_release(self.files(project))

    def withdrawn_releases(self, project: str) -> dict[Version, list[File]]:
        """The releases of which every file was withdrawn, the oldest first."""
        kept = {file.version for file in self.files(project)}
        return _by_release(file for file in self._list_files(project) if file.version not in kept)

    def wheel(self, file: File) -> Wheel:
        with self._one_at_a_time:
            if file.address not in self._wheels:
                self._note(file.name)
                if len(self._wheels) > 7:  # a wheel that was opened holds a few megabytes
                    del self._wheels[next(iter(self._wheels))]
                self._wheels[file.address] = Wheel(self.web, file.address)
                self.opened[file.name] = self._wheels[file.address].size
            return self._wheels[file.address]

    def metadata(self, file: File) -> Metadata:
        """The metadata of a wheel: its PEP 658 file where that is offered, else out of the wheel itself."""
        text = self._offered(file) if file.metadata else None
        if text is None:
            wheel = self.wheel(file)
            inside = [m for m in wheel.members if m.count("/") == 1 and m.endswith(".dist-info/METADATA")]
            text = wheel.text(inside[0]) if len(inside) == 1 else None
        if text is None:
            raise Trouble(f"{file.name}: no METADATA in it")
        return _parsed(text, file)

    def _offered(self, file: File) -> str | None:
        try:
            body, _, _ = self.web.page(file.address + ".metadata", "*/*", 4 << 20)
        except Missing:
            return None  # promised and not there: the wheel has it too
        if file.metadata != "any" and hashlib.sha256(body).hexdigest() != file.metadata:
            raise Trouble(f"{file.name}.metadata: its hash is not the one that the index gives")
        return body.decode("utf-8", "replace")


def _by_release(files: Iterable[File]) -> dict[Version, list[File]]:
    found: dict[Version, list[File]] = {}
    for file in files:
        found.setdefault(file.version, []).append(file)
    return dict(sorted(found.items()))


def _from_json(body: bytes, project: str) -> list[dict[str, Any]]:
    try:
        rows = json.loads(body)["files"]
        return [_plain(row) for row in rows]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Trouble(f"{project}: the answer says it is JSON, and it is no list of files") from None


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """One file of a JSON answer, with the keys of a page's attributes."""
    offered = row.get("core-metadata", row.get("dist-info-metadata"))
    hashed = offered.get("sha256", "any") if isinstance(offered, dict) else ("any" if offered else "")
    return {
        "name": row["filename"],
        "href": row["url"],
        "requires-python": row.get("requires-python") or "",
        "upload-time": row.get("upload-time") or "",
        "yanked": bool(row.get("yanked")),
        "metadata": hashed,
    }


class _Links(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.rows: list[dict[str, Any]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = dict(attrs)
        if tag != "a" or not has.get("href"):
            return
        offered = has.get("data-core-metadata") or has.get("data-dist-info-metadata") or ""
        self.rows.append({
            "name": shown(str(has["href"])),
            "href": has["href"],
            "requires-python": has.get("data-requires-python") or "",
            "upload-time": has.get("data-upload-time") or "",
            "yanked": "data-yanked" in has,
            "metadata": offered.partition("=")[2] or ("any" if offered == "true" else ""),
        })  # fmt: skip


def _from_page(body: bytes, project: str, kind: str) -> list[dict[str, Any]]:
    if "html" not in kind:
        raise Trouble(f"{project}: the answer is {kind or 'of no kind'}, neither a simple page nor JSON")
    page = _Links()
    page.feed(body.decode("utf-8", "replace"))
    if not page.rows:
        raise Trouble(f"{project}: the page lists no files")
    return page.rows


def _file(row: dict[str, Any], base: str, project: str) -> File | None:
    """A row as a File; None for what is of another project, or no package at all."""
    name, tags = str(row["name"]), frozenset[Tag]()
    try:
        if name.endswith(".whl"):
            owner, version, _, tags = parse_wheel_filename(name)
        else:
            owner, version = parse_sdist_filename(name)
    except (InvalidWheelFilename, InvalidSdistFilename):
        return None
    if owner != project:
        return None
    try:
        address = urllib.parse.urljoin(base, str(row["href"])).partition("#")[0]
    except ValueError:
        return None
    day = str(row["upload-time"])[:10]
    return File(
        name,
        address,
        version,
        tags,
        _specifier(str(row["requires-python"])),
        day if DAY.fullmatch(day) else "",
        str(row["metadata"]),
        bool(row["yanked"]),
    )


def _parsed(text: str, file: File) -> Metadata:
    head = email.parser.HeaderParser().parsestr(text)
    requires = []
    for line in head.get_all("Requires-Dist", []):
        try:
            requires.append(Requirement(" ".join(str(line).split())))
        except InvalidRequirement:
            continue  # names of the very old; pip skips them too
    result = str(head.get("Version", "")).strip()
    if not _same(result, file.version):
        raise Trouble(f"{file.name}: its METADATA is of version {result[:40] or 'none'}")
    return Metadata(file.name, tuple(requires), _specifier(str(head.get("Requires-Python", "") or "")))


def _specifier(text: str) -> str:
    """What an index says of the Python, unless it makes no sense."""
    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        return ""
    return text.strip()


def _same(reported: str, version: Version) -> bool:
    try:
        return Version(reported) == version
    except InvalidVersion:
        return False


def _holds(requirement: Requirement, here: dict[str, str]) -> bool:
    try:
        return requirement.marker is None or requirement.marker.evaluate(here)
    except (UndefinedComparison, UndefinedEnvironmentName):
        return False


def _python(tag: Tag) -> str:
    if not re.fullmatch(r"cp3\d+", tag.interpreter) or not re.fullmatch(r"cp3\d+[mt]?", tag.abi):
        return ""
    return f"3.{tag.interpreter[3:]}" + ("t" if tag.abi.endswith("t") else "")


def in_order(pythons: Iterable[str]) -> list[str]:
    return sorted(set(pythons), key=lambda p: (int(p.rstrip("t").partition(".")[2]), p))


def best(files: list[File]) -> File | None:
    """The wheel that is read: for Linux x86_64 (for Python 3.11 where there are several), else for any machine."""
    linux = sorted((f for f in files if f.linux("x86_64")), key=lambda f: ("3.11" not in f.pythons, f.name))
    return next(iter(linux), None) or next((f for f in files if f.pure), None)
