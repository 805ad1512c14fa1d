"""tools/list_releases.py on an index made up here: what it says of releases, and where they cannot be installed."""

from __future__ import annotations

import dataclasses

import list_releases
import pytest
from packaging.requirements import Requirement
from packaging.tags import Tag
from packaging.version import Version
from refresh.index import File, Metadata
from refresh.wheel import Missing

PURE = frozenset([Tag("py3", "none", "any")])


def wheel(version: str, *tags: str, python: str = "") -> File:
    parsed = frozenset(Tag(*tag.split("-")) for tag in tags) or PURE
    return File(f"x-{version}.whl", "", Version(version), parsed, python, "2025-01-01", "")


def source(version: str, python: str = "") -> File:
    return File(f"x-{version}.tar.gz", "", Version(version), frozenset(), python, "2025-01-01", "")


class MadeUpIndex:
    """Projects with their files, and the requirements of the wheels that are read."""

    def __init__(self, files: dict[str, list[File]], requires: dict[str, list[str]]) -> None:
        self._files, self._requires = files, requires

    def releases(self, project: str) -> dict[Version, list[File]]:
        if project not in self._files:
            raise Missing(f"{project}: there is none")
        found: dict[Version, list[File]] = {}
        for file in self._files[project]:
            found.setdefault(file.version, []).append(file)
        return found

    def withdrawn_releases(self, project: str) -> dict[Version, list[File]]:
        return {file.version: [file] for file in self._files[project] if file.withdrawn}

    def metadata(self, file: File) -> Metadata:
        lines = self._requires.get(str(file.version), [])
        return Metadata(file.name, tuple(map(Requirement, lines)), file.requires_python)


def read(files: dict[str, list[File]], requires: dict[str, list[str]], name: str = "kite") -> list[dict]:
    return list_releases.ReleaseReader(MadeUpIndex(files, requires)).read_project(name)


def test_releases_that_say_the_same_share_a_row():
    files = [wheel("1.0", python=">=3.9"), wheel("1.1", python=">=3.9"), wheel("1.2", python=">=3.10")]
    rows = read({"kite": files}, {"1.0": ["torch>=2"], "1.1": ["torch>=2"], "1.2": ["torch>=2"]})
    assert [(row["versions"], row["requires_python"], row["torch"]) for row in rows] == [
        (["1.0", "1.1"], ">=3.9", ">=2"),
        (["1.2"], ">=3.10", ">=2"),
    ]


@pytest.mark.parametrize(
    ("requires", "pin"),
    [
        (["torch==2.6.0; sys_platform == 'linux'", "torch==2.5; sys_platform == 'darwin'"], "==2.6.0"),
        (["torch==2.7.1; extra == 'srt'", "torch==2.7.1; extra == 'new'", "torch; extra == 'hip'"], "==2.7.1"),
        (["torch>=2.4; extra == 'torch'", "torch>=2.6; extra == 'dev'"], ">=2.4"),
        (["torch==2.6; extra == 'a'", "torch==2.7; extra == 'b'"], None),
        (["numpy"], None),
    ],
)
def test_the_torch_of_a_release(requires, pin):
    (row,) = read({"kite": [wheel("1.0")]}, {"1.0": requires})
    assert row.get("torch") == pin


def test_a_requirement_without_a_wheel_for_a_python():
    """A package with sources can be built; one of pyo3, whose wheels end, cannot, nor one without sources."""
    cells = ["cp311-cp311-manylinux_2_17_x86_64", "cp311-cp311-manylinux_2_17_aarch64", "cp311-cp311-win_amd64"]
    files = {
        "kite": [wheel("1.0", python=">=3.11,<3.14")],
        "tokenizers": [wheel("0.13", *cells), source("0.13"), wheel("0.21", "cp39-abi3-manylinux_2_17_x86_64")],
        "sail": [wheel("2.0", *cells), source("2.0")],
    }
    requires = {"1.0": ["tokenizers<0.14", "sail"]}
    (row,) = read(files, requires)
    assert row["unavailable"] == ["3.12 tokenizers<0.14", "3.13 tokenizers<0.14"]
    (row,) = read(files, {"1.0": ["tokenizers>=0.14", "sail"]})
    assert row["unavailable"] == ["aarch64 tokenizers>=0.14", "windows tokenizers>=0.14"]


def test_a_requirement_that_was_withdrawn_says_nothing():
    files = {"kite": [wheel("1.0")], "sail": [wheel("2.0")]}
    (row,) = read(files, {"1.0": ["sail==1.5"]})
    assert "unavailable" not in row


def test_requirements_behind_the_extra_of_torch_count_with_those_that_it_names():
    files = {"kite": [wheel("1.0", python=">=3.11,<3.12")], "keel": [wheel("1", "cp39-abi3-manylinux2014_x86_64")]}
    requires = {"1.0": ["kite[common]; extra == 'srt'", "torch==2; extra == 'srt'", "keel; extra == 'common'"]}
    (row,) = read(files, requires)
    assert row["unavailable"] == ["aarch64 keel", "windows keel"]


def test_what_another_framework_lacks_counts_for_those_that_require_it():
    files = {
        "transformers": [wheel("4.0", python=">=3.11,<3.13")],
        "kite": [wheel("1.0", python=">=3.11,<3.13")],
        "tokenizers": [wheel("0.13", "cp311-cp311-manylinux_2_17_x86_64")],
    }
    index = MadeUpIndex(files, {"4.0": ["tokenizers"], "1.0": ["transformers"]})
    reader = list_releases.ReleaseReader(index)
    reader.read_project("transformers")
    assert "3.12 transformers" in reader.read_project("kite")[0]["unavailable"]


def test_wheels_for_some_machines_and_releases_of_sources_alone():
    files = [
        source("0.9", python=">=3.8"),
        wheel("1.0", "cp38-abi3-manylinux1_x86_64"),
        source("1.0"),
        wheel("1.1", "cp38-abi3-manylinux_2_28_x86_64", "cp38-abi3-manylinux_2_28_aarch64"),
    ]
    first, second, third = read({"kite": files}, {})
    assert first["source_only"] and first["requires_python"] == ">=3.8"
    assert (second["systems"], second["machines"], second["has_source"]) == (["linux"], ["x86_64"], True)
    assert (third["machines"], third["linux_glibc"]) == (["aarch64", "x86_64"], "2.28") and "has_source" not in third


def test_the_table_is_toml():
    (row,) = read({"kite": [wheel("1.0", python=">=3.9")]}, {"1.0": ['torch>=2; python_version >= "3"']})
    from refresh.text import loads

    assert loads(list_releases.render_table([row], "2026-11-15"))["release"] == [row]


def test_a_release_that_was_withdrawn_has_a_row_of_its_own():
    gone = dataclasses.replace(wheel("1.1"), withdrawn=True)
    rows = read({"kite": [wheel("1.0"), gone, wheel("1.2")]}, {})
    assert [(row["versions"], row.get("withdrawn", False)) for row in rows] == [
        (["1.0"], False),
        (["1.1"], True),
        (["1.2"], False),
    ]
