"""Projects of an index: their files (PEP 691) and the metadata of a wheel."""

import email.parser
import hashlib
import json
import os
import re
import subprocess
import sys
import threading
import urllib.parse
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag
from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from gpuready.system.download import _download_error, _open_url, read_whole
from gpuready.system.host_access import AccessError
from refresh.wheel import Missing, Trouble, Wheel

KIND = "application/vnd.pypi.simple.v1+json"
PAGE_LIMIT = 64 << 20
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


def configured() -> str:
    """The index of the environment: the variables of uv and pip, then pip's files."""
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"):
        if value := os.environ.get(name, ""):
            return value.partition("=")[2] if "=" in value.partition("://")[0] else value  # uv's name=https://…
    words = [sys.executable, "-m", "pip", "config", "list"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    pairs = (line.partition("=") for line in done.stdout.splitlines())
    found = next((value.strip().strip("'\"") for key, _, value in pairs if key.endswith(".index-url")), "")
    if not found:
        raise Trouble("no index is known here: give --index URL, or set PIP_INDEX_URL")
    return found


class Index:
    """An index that answers every question once. A login in its address goes to its own host alone."""

    def __init__(self, address: str) -> None:
        scheme, _, rest = address.partition("://")
        login, _, self.host = rest.partition("/")[0].rpartition("@")
        if scheme not in ("http", "https") or not self.host:
            raise Trouble("the index is no http or https address")
        self.address = f"{scheme}://{self.host}/{rest.partition('/')[2].strip('/')}/"
        self._auth = f"Basic {b64encode(urllib.parse.unquote(login).encode()).decode()}" if login else ""
        self.given = address
        self._files: dict[str, list[File]] = {}
        self._wheels: dict[str, Wheel] = {}
        self._one_at_a_time = threading.Lock()

    def read(self, address: str, limit: int = PAGE_LIMIT, accept: str = "*/*") -> bytes:
        """A whole answer; Trouble in one sentence."""
        try:
            with _open_url(address, self._login_for(address), "", 60, {"Accept": accept}) as stream:
                return read_whole(stream, limit)
        except (AccessError, OSError, ValueError, HTTPException) as bad:
            name = address.rstrip("/").rpartition("/")[2]
            kind = Missing if getattr(bad, "code", 0) in (404, 410) else Trouble
            raise kind(f"{name}: {bad if isinstance(bad, AccessError) else _download_error(bad)}") from None

    def _login_for(self, address: str) -> str:
        scheme, _, rest = address.partition("://")
        if scheme not in ("http", "https"):
            raise Trouble(f"{address.rpartition('/')[2]}: not followed, it is no address of the web")
        return self._auth if rest.partition("/")[0] == self.host else ""

    def files(self, project: str) -> list[File]:
        """The files of a project's final releases, without those that were withdrawn."""
        return [file for file in self._list_files(project) if not file.withdrawn]

    def _list_files(self, project: str) -> list[File]:
        if project not in self._files:
            address = urllib.parse.urljoin(self.address, project + "/")
            body = self.read(address, accept=KIND)
            try:
                read = [_file(row, address, project) for row in json.loads(body)["files"]]
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                raise Trouble(f"{project}: the answer is no list of files") from None
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
                if len(self._wheels) > 7:  # a wheel that was opened holds a few megabytes
                    del self._wheels[next(iter(self._wheels))]
                self._wheels[file.address] = Wheel(file.address, self._login_for(file.address))
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
            body = self.read(file.address + ".metadata", 4 << 20)
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


def _file(row: dict[str, Any], base: str, project: str) -> File | None:
    """A row of a JSON answer as a File; None for what is of another project, or no package at all."""
    name, tags = str(row["filename"]), frozenset[Tag]()
    try:
        if name.endswith(".whl"):
            owner, version, _, tags = parse_wheel_filename(name)
        else:
            owner, version = parse_sdist_filename(name)
        address = urllib.parse.urljoin(base, str(row["url"])).partition("#")[0]
    except (InvalidWheelFilename, InvalidSdistFilename):
        return None
    if owner != project:
        return None
    offered = row.get("core-metadata", row.get("dist-info-metadata"))
    hashed = offered.get("sha256", "any") if isinstance(offered, dict) else ("any" if offered else "")
    day, python = str(row.get("upload-time") or "")[:10], _specifier(str(row.get("requires-python") or ""))
    is_day = DAY.fullmatch(day) is not None
    return File(name, address, version, tags, python, day if is_day else "", str(hashed), bool(row.get("yanked")))


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
