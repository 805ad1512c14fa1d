"""Write the table of the releases of every framework that has a contract, from an index of packages.

Of each release: its Python, its torch, the systems of its wheels, and the Pythons for which a package that it requires
has neither a wheel nor a source. Releases in a row that say the same share an entry. Metadata is read by range
requests; no wheel is downloaded. Run tools/compile_catalog.py afterwards.
"""

import argparse
import dataclasses
import functools
import itertools
import json
import re
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

HERE = Path(__file__).resolve().parent
sys.path[:0] = [path for path in (str(HERE), str(HERE.parent / "src")) if path not in sys.path]

from packaging.requirements import Requirement  # noqa: E402
from packaging.specifiers import SpecifierSet  # noqa: E402
from packaging.utils import canonicalize_name  # noqa: E402
from packaging.version import Version  # noqa: E402
from refresh.index import File, Index, Metadata, best, configured  # noqa: E402
from refresh.wheel import Missing, Trouble  # noqa: E402

from gpuready import contracts  # noqa: E402
from gpuready.catalog import catalog_date  # noqa: E402
from gpuready.plan.candidates import PYTHONS  # noqa: E402

TABLE = HERE.parent / "src" / "gpuready" / "catalog" / "releases.toml"
HEAD = "# Read from an index by tools/list_releases.py; do not edit by hand.\n"
READERS = 8
PAUSES = (1.0, 4.0, 15.0)
Answer = TypeVar("Answer")
FIRST_DAY = "2023-01-01"
NOT_ON_PYPI = ("roll",)
"""Frameworks whose name on PyPI is another project's."""
PYO3 = ("tokenizers", "tiktoken", "outlines-core")
"""Packages whose sources refuse each Python that is newer than the pyo3 they were locked with."""
EXTRA = re.compile(r'extra == "([\w.-]+)"')
USUAL_PYTHONS = ("3.12", "3.11", "3.10", "3.9", "3.8", "3.13", "3.14")
LINUX_TAGS = {"os_name": "posix", "sys_platform": "linux", "platform_system": "Linux"}
CPYTHON = {"implementation_name": "cpython", "platform_python_implementation": "CPython", "platform_release": ""}
PLATFORMS = {
    "linux": ("linux.*x86_64|^any", {**CPYTHON, **LINUX_TAGS, "platform_machine": "x86_64"}),
    "aarch64": ("linux.*aarch64|^any", {**CPYTHON, **LINUX_TAGS, "platform_machine": "aarch64"}),
    "windows": (
        "win_amd64|^any",
        {
            **CPYTHON,
            "os_name": "nt",
            "sys_platform": "win32",
            "platform_system": "Windows",
            "platform_machine": "AMD64",
        },
    ),
}
"""Platforms by the tags of their wheels and the values of their markers."""
USUAL_PLATFORM, *OTHER_PLATFORMS = PLATFORMS
SYSTEM_TAGS = {"linux": "linux", "win": "windows", "macosx": "darwin"}


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="list_releases", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--index", metavar="URL", default="", help="a simple index; else that of pip or uv")
    parser.add_argument("--only", metavar="NAME", action="append", default=[], help="these distributions alone")
    parser.add_argument("-o", "--output", type=Path, default=TABLE)
    asked = parser.parse_args(words)
    try:
        reader = ReleaseReader(Index(asked.index or configured()))
        rows = []
        for name in asked.only or list_distributions():
            rows += reader.read_project(name)
            print(f"{name}: {len(reader.index.releases(name))} releases", file=sys.stderr)
    except Trouble as bad:
        print(f"list_releases: {bad}; nothing was written", file=sys.stderr)
        return 2
    asked.output.write_text(render_table(rows, catalog_date()), encoding="utf-8")
    print(f"wrote {sum(len(row['versions']) for row in rows)} releases in {len(rows)} rows")
    return 0


def list_distributions() -> list[str]:
    """The distributions of all frameworks; transformers first, since the others' requirements lead to it."""
    names = {contracts.distribution_name(name) for name in contracts.list_frameworks() if name not in NOT_ON_PYPI}
    return sorted(names, key=lambda name: (name != "transformers", name))


class ReleaseReader:
    """Reads releases of an index, and remembers which Pythons each of them is impossible on."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.blocked: dict[str, dict[Version, set[str]]] = {}
        self._places: dict[str, dict[Version, frozenset[tuple[str, str]]]] = {}
        self._cells: dict[tuple[str, str], set[tuple[str, str]] | None] = {}

    def read_project(self, name: str) -> list[dict[str, Any]]:
        """Rows of a project, the oldest release first; neighbours that say the same are one row."""
        withdrawn = self.index.withdrawn_releases(name)
        every = sorted({**self.index.releases(name), **withdrawn}.items())
        releases = {version: files for version, files in every if max(file.day for file in files) >= FIRST_DAY}
        with ThreadPoolExecutor(READERS) as pool:
            metadata = dict(zip(releases, pool.map(self.read_metadata, releases.values()), strict=True))
        described = [
            (v, self.read_release(name, v, files, metadata[v]) | ({"withdrawn": True} if v in withdrawn else {}))
            for v, files in releases.items()
        ]
        rows = []
        for facts, group in itertools.groupby(described, key=lambda one: json.dumps(one[1])):
            found = [str(version) for version, _ in group]
            source = f"files and METADATA of {name} {found[0]} to {found[-1]} on PyPI"
            rows.append({"name": name, "versions": found, **json.loads(facts), "confirmed": True, "source": source})
        return rows

    def read_metadata(self, files: list[File]) -> Metadata | None:
        """The metadata of a release's wheel, as a file of its own where the index has it; None without a wheel."""
        wheel = best(files) or next((f for f in files if f.tags), None)
        offered = dataclasses.replace(wheel, metadata=wheel.metadata or "any") if wheel else None
        return retry(lambda: self.index.metadata(offered)) if offered else None

    def read_release(self, name: str, version: Version, files: list[File], metadata: Metadata | None) -> dict[str, Any]:
        """What one release says; of a source archive alone only its Python is known."""
        python = (metadata.requires_python if metadata else "") or next((f.requires_python for f in files), "")
        row: dict[str, Any] = {"requires_python": python} if python else {}
        if metadata is None:
            return row | {"source_only": True}
        torch, extra = find_torch_pin(metadata)
        if torch:
            row |= {"torch": torch} | ({"torch_extra": extra} if extra == "torch" and "<" in torch else {})
        if not any(file.pure for file in files):
            row |= read_wheel_systems(files)
        missing = self.find_gaps(metadata, name, extra)
        self.blocked.setdefault(name, {})[version] = missing.keys() & {*PYTHONS}
        return row | ({"unavailable": [f"{where} {text}" for where, text in missing.items()]} if missing else {})

    def find_gaps(self, metadata: Metadata, name: str, extra: str) -> dict[str, str]:
        """The Pythons, systems and machines for which a requirement cannot be had, each with that requirement."""
        wanted = select_requirements(metadata, name, {"", extra})
        pythons = _allowed_pythons(metadata.requires_python)
        found = {python: self.find_blocker(wanted, USUAL_PLATFORM, python) for python in pythons}
        usual = next((python for python in USUAL_PYTHONS if found.get(python) == ""), "")
        if usual:
            found |= {platform: self.find_blocker(wanted, platform, usual) for platform in OTHER_PLATFORMS}
        return {where: text for where, text in found.items() if text}

    def find_blocker(self, wanted: list[tuple[Requirement, str]], platform: str, python: str) -> str:
        """The first requirement that nothing on the index meets on a platform; empty where all are met."""
        here = PLATFORMS[platform][1] | {"python_version": python, "python_full_version": f"{python}.9"}
        held = (one for one, extra in wanted if one.marker is None or one.marker.evaluate(here | {"extra": extra}))
        return next((_requirement_text(one) for one in held if not self.is_available(one, platform, python)), "")

    def is_available(self, wanted: Requirement, platform: str, python: str) -> bool:
        asked = canonicalize_name(wanted.name), str(wanted.specifier)
        if asked not in self._cells:
            self._cells[asked] = self._list_cells(asked[0], wanted.specifier)
        cells = self._cells[asked]
        return cells is None or (platform, python) in cells

    def _list_cells(self, name: str, specifier: SpecifierSet) -> set[tuple[str, str]] | None:
        """The platforms and Pythons on which a requirement can be met; None where the index lists nothing that it allows.

        What was withdrawn since, or has pre-releases alone, is not listed: it says nothing of a Python.
        """
        known, blocked = self.list_places(name), self.blocked.get(name, {})
        allowed = [v for v in known if specifier.contains(v, prereleases=True)]
        return {cell for v in allowed for cell in known[v] if cell[1] not in blocked.get(v, ())} if allowed else None

    def list_places(self, name: str) -> dict[Version, frozenset[tuple[str, str]]]:
        """The platforms and Pythons that each release of a project can be installed on; empty where it is not there."""
        if name not in self._places:
            try:
                releases = retry(lambda: self.index.releases(name))
            except Trouble:
                releases = {}
            self._places[name] = {version: _places(name, files) for version, files in releases.items()}
        return self._places[name]


def retry(ask: Callable[[], Answer]) -> Answer:
    """Ask an index again where it does not answer."""
    for pause in PAUSES:
        try:
            return ask()
        except Missing:
            raise
        except Trouble:
            time.sleep(pause)
    return ask()


def _places(name: str, files: Iterable[File]) -> frozenset[tuple[str, str]]:
    cells = [(platform, python) for platform in PLATFORMS for python in PYTHONS]
    return frozenset(cell for cell in cells if any(_fits(file, name, *cell) for file in files))


def _fits(file: File, name: str, platform: str, python: str) -> bool:
    """Whether a file is a source, or a wheel for this platform that this Python takes."""
    if python not in _allowed_pythons(file.requires_python):
        return False
    if not file.tags:
        return name not in PYO3
    minor = int(python.partition(".")[2])
    pattern = PLATFORMS[platform][0]
    return any(re.search(pattern, tag.platform) and _tag_takes(tag.interpreter, tag.abi, minor) for tag in file.tags)


def select_requirements(metadata: Metadata, name: str, extras: set[str]) -> list[tuple[Requirement, str]]:
    """The requirements of these extras, and of those of its own that they name, each with its extra; torch is judged by itself."""
    known = [(one, _extra_of(one)) for one in metadata.requires if one.url is None]
    found = [(one, extra) for one, extra in known if extra in extras]
    own = {canonicalize_name(word) for one, _ in found if canonicalize_name(one.name) == name for word in one.extras}
    if own - extras:
        return select_requirements(metadata, name, extras | own)
    return [(one, extra) for one, extra in found if canonicalize_name(one.name) not in (name, "torch")]


def _extra_of(one: Requirement) -> str:
    match = EXTRA.search(str(one.marker)) if one.marker else None
    return canonicalize_name(match[1]) if match else ""


def _tag_takes(interpreter: str, abi: str, minor: int) -> bool:
    if interpreter.startswith("py"):
        return interpreter in ("py3", f"py3{minor}") or (interpreter[2:3] == "3" and int(interpreter[3:]) <= minor)
    match = re.fullmatch(r"cp3(\d+)", interpreter)
    return bool(match) and (int(match[1]) <= minor if abi == "abi3" else int(match[1]) == minor)


def find_torch_pin(metadata: Metadata) -> tuple[str, str]:
    """The versions of torch that a release takes, and the extra that says so: none, ``torch``, or one of those that agree."""
    python = next((python for python in USUAL_PYTHONS if python in _allowed_pythons(metadata.requires_python)), "3.12")
    plain = [one for one in metadata.wants(python) if canonicalize_name(one.name) == "torch"]
    if plain:
        return _join_specifiers(plain), ""
    behind = {
        extra: one
        for one in metadata.requires
        if canonicalize_name(one.name) == "torch" and one.specifier and (extra := _extra_of(one))
    }
    own = {extra: one for extra, one in behind.items() if extra == "torch"} or behind
    pins = {str(one.specifier) for one in own.values()}
    if len(pins) != 1:
        return "", ""
    return _join_specifiers(own.values()), next(iter(own))


def _join_specifiers(found: Iterable[Requirement]) -> str:
    clauses = sorted({str(clause) for one in found for clause in one.specifier}, key=lambda c: (c[0] != ">", c))
    return ",".join(clauses)


def read_wheel_systems(files: list[File]) -> dict[str, Any]:
    """Systems, machines and oldest glibc of wheels that are not for every machine; whether there is a source too."""
    platforms = {tag.platform for file in files for tag in file.tags}
    systems = {system for platform in platforms for start, system in SYSTEM_TAGS.items() if _starts(platform, start)}
    machines = {
        m for platform in platforms for m in ("x86_64", "aarch64") if "linux" in platform and platform.endswith(m)
    }
    floors = {"linux_glibc": glibc} if (glibc := _glibc_floor(platforms)) else {}
    source = {"has_source": True} if any(not file.tags for file in files) else {}
    return {"systems": sorted(systems), "machines": sorted(machines)} | floors | source


def _starts(platform: str, start: str) -> bool:
    return platform.startswith((start, "many" + start))


def _glibc_floor(platforms: Iterable[str]) -> str:
    """``manylinux_2_28_x86_64`` -> 2.28; the oldest of several."""
    found = [re.match(r"manylinux_2_(\d+)_", platform) for platform in platforms]
    return f"2.{min(int(match[1]) for match in found if match)}" if any(found) else ""


@functools.cache
def _allowed_pythons(specifier: str) -> tuple[str, ...]:
    return tuple(python for python in PYTHONS if SpecifierSet(specifier).contains(f"{python}.9"))


def _requirement_text(one: Requirement) -> str:
    return f"{canonicalize_name(one.name)}{_join_specifiers([one])}"


def render_table(rows: Iterable[dict[str, Any]], day: str) -> str:
    blocks = [
        "\n".join(["[[release]]", *(f"{key} = {json.dumps(value)}" for key, value in row.items())]) for row in rows
    ]
    return f'{HEAD}schema = 1\nas_of = "{day}"\n\n' + "\n\n".join(blocks) + "\n"


if __name__ == "__main__":
    sys.exit(main())
