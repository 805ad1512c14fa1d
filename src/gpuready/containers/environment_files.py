"""What a file of packages asks for: requirements.txt, environment.yml, pyproject.toml, uv.lock, pylock.toml. Nothing is run."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any

from gpuready.catalog.packages import find_package
from gpuready.containers import installs
from gpuready.containers.base_image import BaseImage
from gpuready.containers.dockerfile_facts import pinned_torch_facts
from gpuready.containers.installs import Install, PackagePin
from gpuready.containers.stages import ReadFile
from gpuready.jobs.job_files import decode_mapping
from gpuready.model import Fact, Record, Requirement
from gpuready.model.metadata import Marker
from gpuready.model.versions import compare_versions, parse_plain_release

MAX_INCLUDED_FILES = 20
LAST_CHANNEL_TORCH, TORCH_CHANNELS = "2.5.1", {"pytorch", "nvidia", "defaults", "nodefaults"}
"""PyTorch stopped publishing to its conda channel with 2.5 (pytorch/pytorch issue 138506); conda-forge has its own builds."""


class EnvironmentFile(Record):
    """The packages that a file names, each with what it asks of it, and the Python."""

    path: str
    pins: tuple[PackagePin, ...] = ()
    python: str = ""  # a specifier
    lacks: str = ""  # what its own channels are known not to have
    words: tuple[str, ...] = ()  # its requirements as written, for a resolver; none of a lock, which is resolved

    def to_facts(self, arch: str) -> list[Fact]:
        """Return the exact versions, and the Python where it is one."""
        facts: list[Fact] = []
        for pin in self.pins:
            if pin.name == "torch":
                facts += pinned_torch_facts(pin, self.path, arch, BaseImage(""))
            elif pin.version and pin.sure:
                facts.append(Fact(f"package.{pin.name}", pin.version, self.path, "stated"))
        exact = self.python.removeprefix("==").removesuffix(".*")
        if parse_plain_release(exact):
            facts.append(Fact("python.version", exact, self.path, "stated"))
        return facts

    def to_needs(self) -> tuple[Requirement, ...]:
        """Return the ranges that it asks for."""
        ranges = {f"package.{pin.name}": pin.spec for pin in self.pins if pin.spec not in ("", "<0") and pin.sure}
        ranges |= {"python.version": self.python} if self.python else {}
        return tuple(Requirement(key, want, cite=self.path) for key, want in ranges.items())


def read_environment_file(read: ReadFile, path: str, text: str, environment: Mapping[str, str]) -> EnvironmentFile:
    """Read a file by its name; ValueError, in a sentence, where it is none. ``environment``: for the markers of a lock."""
    name = path.rpartition("/")[2].lower()
    if name.endswith((".yml", ".yaml")):
        return _read_conda_file(path, text)
    if name.endswith((".toml", ".lock")):
        return _read_toml_file(path, text, environment)
    found = list(_read_requirements(read, path, text, "", [path]))
    pins = tuple(pin.replace(build=pin.build or one.build) for one in found for pin in one.pins)
    return EnvironmentFile(path, pins, words=tuple(word for one in found for word in one.words))


def _read_requirements(read: ReadFile, path: str, text: str, build: str, opened: list[str]) -> Iterator[Install]:
    yield (found := installs.parse_requirements_file(text, build))
    for name in found.files:
        inner = name if name.startswith("/") else path[: path.rfind("/") + 1] + name
        if inner not in opened and len(opened) < MAX_INCLUDED_FILES:
            opened.append(inner)
            if (more := read(inner)) is None:
                raise ValueError(f"it includes {name}, which cannot be read")
            yield from _read_requirements(read, inner, more, found.build, opened)


def _read_conda_file(path: str, text: str) -> EnvironmentFile:
    decoded = decode_mapping(text, path)
    rows = decoded.get("dependencies")
    if not isinstance(rows, list):
        raise ValueError("it has no list of dependencies")
    named = [row.replace(" ", "") for row in rows if isinstance(row, str)]
    ranges = ["torch" + word.removeprefix("pytorch") if word.startswith("pytorch") else word for word in named]
    pip = [str(one) for row in rows if isinstance(row, dict) for one in row.get("pip") or ()]
    pip += [word for word in ranges if set(word) & set("<>!~")]
    conda = installs.parse_conda_words([word for word in named if not set(word) & set("<>!~")])
    by_pip = installs.parse_requirements_file("\n".join(pip), "")
    known = [pin for pin in conda.pins if pin.version and (pin.name == "torch" or find_package(pin.name))]
    words = tuple(f"{pin.name}=={pin.version}{'.*' if str(pin.version).count('.') == 1 else ''}" for pin in known)
    python = f"=={conda.python}.*" if conda.python else ""
    lacks = _find_lacking(conda.pins, decoded.get("channels"))
    return EnvironmentFile(path, (*conda.pins, *by_pip.pins), python, lacks, (*words, *by_pip.words))


def _find_lacking(pins: Iterable[PackagePin], channels: object) -> str:
    """Say where a torch is newer than the last one of PyTorch's own channel, and no other channel of the file has one."""
    torch = next((pin.version for pin in pins if pin.name == "torch" and pin.version), "")
    named = [str(one) for one in channels] if isinstance(channels, list) else []
    is_closed = bool(torch) and "pytorch" in named and set(named) <= TORCH_CHANNELS
    if not is_closed or compare_versions(torch, LAST_CHANNEL_TORCH) <= 0:
        return ""
    return f"the channel pytorch ends with {LAST_CHANNEL_TORCH}, and has no pytorch {torch}: the channel conda-forge, or pip, has it"


def _read_toml_file(path: str, text: str, environment: Mapping[str, str]) -> EnvironmentFile:
    try:
        data: Mapping[str, Any] = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli").loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not TOML: {error}") from None
    project, rows, python = (
        data.get("project") or _read_poetry(data),
        data.get("packages", data.get("package")),
        data.get("requires-python"),
    )
    if isinstance(rows, list):
        return EnvironmentFile(path, _parse_words(_list_locked(rows, environment), ""), str(python or ""))
    if not isinstance(project, dict):
        raise ValueError("it has neither a [project], packages of Poetry nor locked packages")
    asked = [str(one) for one in project.get("dependencies") or ()]
    pins, named = _parse_words(asked, _find_uv_build(data)), str(project.get("requires-python") or "")
    return EnvironmentFile(path, pins, named, words=tuple(word for word in asked if "@" not in word))


def _read_poetry(data: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return ``[tool.poetry.dependencies]`` as a ``[project]`` has it; what is optional or has no version is left out."""
    named = ((data.get("tool") or {}).get("poetry") or {}).get("dependencies")
    if not isinstance(named, dict):
        return None
    rows = {name: row if isinstance(row, dict) else {"version": row} for name, row in named.items()}
    taken = {name: str(row["version"]) for name, row in rows.items() if "version" in row and not row.get("optional")}
    ranges = {name: _format_poetry_range(text) for name, text in taken.items() if "|" not in text}
    python = ranges.pop("python", "")
    return {"dependencies": [name + text for name, text in ranges.items()], "requires-python": python}


def _format_poetry_range(text: str) -> str:
    """``^2.1`` -> ``>=2.1,<3``, ``~2.1`` -> ``>=2.1,<2.2``, ``2.1`` -> ``==2.1``; other ranges are as everywhere."""
    parts = text[1:].split(".")
    if text[:1] in ("^", "~") and all(part.isdigit() for part in parts):
        first = next((at for at, part in enumerate(parts) if part != "0"), 0)
        kept = parts[: min(len(parts), 2) if text[0] == "~" else first + 1]
        return f">={text[1:]},<{'.'.join([*kept[:-1], str(int(kept[-1]) + 1)])}"
    return f"=={text}" if text[:1].isdigit() else text.strip("*")


def _parse_words(words: Iterable[str], build: str) -> tuple[PackagePin, ...]:
    pins = ((installs.parse_requirement(word, build), word) for word in words)
    return tuple(pin.replace(sure=";" not in word) for pin, word in pins if pin)


def _list_locked(rows: Iterable[Any], environment: Mapping[str, str]) -> Iterator[str]:
    """Yield ``torch==2.8.0`` for each locked package whose markers may hold; none of which several versions may."""
    kept: dict[str, set[str]] = {}
    for row in (row for row in rows if isinstance(row, dict) and row.get("name") and row.get("version")):
        markers = row.get("resolution-markers") or ([row["marker"]] if "marker" in row else [])
        if not markers or any(_marker_may_hold(str(one), environment) for one in markers):
            kept.setdefault(str(row["name"]), set()).add(str(row["version"]))
    return (f"{name}=={min(found)}" for name, found in kept.items() if len(found) == 1)


def _marker_may_hold(text: str, environment: Mapping[str, str]) -> bool:
    try:
        marker = Marker(text)
        return not marker.list_variables() <= {*environment} or marker.evaluate(environment, frozenset())
    except (ValueError, IndexError):
        return True


def _find_uv_build(data: Mapping[str, Any]) -> str:
    """Return the build of torch's index, where [tool.uv.sources] names one."""
    uv = (data.get("tool") or {}).get("uv") or {}
    source = (uv.get("sources") or {}).get("torch") or {}
    names = [one.get("index") for one in (source if isinstance(source, list) else [source])]
    urls = [str(row.get("url")) for row in uv.get("index") or () if row.get("name") in names]
    return installs.torch_build_of_address(urls[0]) if len(urls) == 1 else ""
