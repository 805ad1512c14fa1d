"""Packages of the target environment, from the names of dist-info folders: one listing per site folder."""

from __future__ import annotations

from gpuready.model import Fact, Noun
from gpuready.probe.patient import Patient, patient
from gpuready.probe.sight import gaps, glimpse, seen
from gpuready.system import Blind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from gpuready.system import Door

__all__ = ["KEYS", "Patient", "look", "metadata", "patient", "scan"]

KEYS = (
    "python.version", "python.path", "python.prefix", "python.kind", "python.site", "python.packages",
    "python.half_installed", "python.duplicates", "python.shadowed", "python.requires", "python.disk_free",
)  # fmt: skip
FRAMEWORKS = (
    "axolotl", "colossalai", "deepspeed", "llamafactory", "roll", "sglang", "transformers", "trl", "unsloth", "verl",
    "vllm",
)  # fmt: skip
"""Distributions whose metadata is always read: a version without a contract takes its pins from there."""

SUFFIXES = (".dist-info", ".egg-info")
METADATA = 262144
"""How much of a METADATA file is read; its headers come first."""


class Found(Noun):
    """Version and folder by distribution name, and what is broken."""

    versions: dict[str, str]
    places: dict[str, str]
    half: tuple[str, ...]
    twice: dict[str, tuple[str, ...]]


def look(door: Door, who: Patient, asked: Iterable[str] = ()) -> list[Fact]:
    """Return the target environment, its packages, and leftovers of failed installs.

    ``extra_names`` are distributions whose metadata is read in addition to that of the frameworks.
    """
    if not who.prefix:
        return gaps(KEYS, who.gap, who.source)
    facts = [
        Fact("python.version", who.version, who.version_source, gap=who.gap),
        Fact("python.path", who.path, who.source),
        Fact("python.prefix", who.prefix, who.source),
        Fact("python.kind", who.kind, who.prefix),
        Fact("python.site", who.site, who.prefix),
        seen("python.disk_free", who.prefix, _room, door, who.prefix),
    ]
    rest = (
        "python.packages",
        "python.half_installed",
        "python.duplicates",
        "python.shadowed",
        "python.requires",
    )
    if not who.site and who.version is None:
        return [
            *facts,
            *(Fact(key, None, who.prefix, gap=f"no site folder was found: {who.gap}") for key in rest),
        ]
    try:
        found = scan(door, who.site)
    except Blind as blind:
        return [*facts, *(Fact(key, None, ", ".join(who.site), gap=str(blind)) for key in rest)]
    return [*facts, *_listing(door, who, found, asked), *_packages(found)]


def _room(door: Door, prefix: str) -> int | None:
    return (door.disk(prefix) or {}).get("free")


def _listing(door: Door, who: Patient, found: Found, asked: Iterable[str]) -> list[Fact]:
    source = ", ".join(who.site) or who.prefix
    twice = tuple({"name": name, "versions": versions} for name, versions in found.twice.items())
    return [
        Fact("python.packages", len(found.versions), source),
        Fact("python.half_installed", found.half, source),
        Fact("python.duplicates", twice, source),
        _shadowed(door, who, found),
        Fact("python.requires", _requires(door, found, asked), source),
    ]


def _packages(found: Found) -> list[Fact]:
    facts = []
    broken = set(found.half)
    for name, version in found.versions.items():
        place = found.places[name]
        gap = ""
        if name in found.twice:
            gap = f"listed twice: {', '.join(found.twice[name])}"
        elif place.rpartition("/")[2] in broken:
            gap = "half-installed: its metadata is missing"
        elif not version:
            gap = "its folder's name carries no version"
        facts.append(Fact(f"package.{name}", None if gap else version, place, gap=gap))
    return facts


# -- the listing --------------------------------------------------------------------------------------


def scan(door: Door, site: tuple[str, ...]) -> Found:
    """List every distribution in the site folders; the first folder wins, as for an import."""
    found = Found({}, {}, (), {})
    half: list[str] = []
    for folder in site:
        here: dict[str, list[tuple[str, str]]] = {}
        for entry in door.list(folder) or ():
            if entry.startswith("~"):
                half.append(entry)  # pip renames what it removes, and an interrupted pip leaves it
            elif entry.endswith(SUFFIXES):
                name, version = parsed(entry)
                here.setdefault(name, []).append((version, f"{folder}/{entry}"))
        for name, copies in here.items():
            if name in found.versions:
                continue
            version, place = copies[-1]
            found.versions[name], found.places[name] = version or _inside(door, place), place
            if len(copies) > 1:
                found.twice[name] = tuple(v for v, _ in copies)
            half += [p.rpartition("/")[2] for _, p in copies if _is_half(door, p)]
    return found.but(half=tuple(half))


def parsed(entry: str) -> tuple[str, str]:
    """Parse ``flash_attn-2.8.3.dist-info`` as ``("flash-attn", "2.8.3")``; the version may be empty."""
    stem = entry.rpartition(".")[0]
    if entry.endswith(".egg-info"):
        parts = stem.split("-")
        return canonical(parts[0]), parts[1] if len(parts) > 1 else ""
    name, dash, version = stem.rpartition("-")
    return (canonical(name), version) if dash else (canonical(stem), "")


def canonical(name: str) -> str:
    plain = name.lower().replace("_", "-").replace(".", "-")
    while "--" in plain:
        plain = plain.replace("--", "-")
    return plain


def _is_half(door: Door, place: str) -> bool:
    if place.endswith(".dist-info"):
        return glimpse(door.stat, f"{place}/METADATA", otherwise=True) is None
    status = glimpse(door.stat, place) or {}
    return status.get("kind") == "dir" and glimpse(door.stat, f"{place}/PKG-INFO", otherwise=True) is None


def _inside(door: Door, place: str) -> str:
    found = _headers(door, place)
    return next((value for name, value in found or () if name == "version"), "")


# -- metadata -----------------------------------------------------------------------------------------


def metadata(door: Door, name: str, who: Patient | None = None) -> dict[str, Any] | None:
    """Return requires_dist, requires_python and version of a distribution; None if not installed."""
    chosen = who or patient(door)
    place = scan(door, chosen.site).places.get(canonical(name))
    return _read(door, place) if place else None


def _read(door: Door, place: str) -> dict[str, Any] | None:
    headers = _headers(door, place)
    if headers is None:
        return None
    of = {
        field: [value for name, value in headers if name == field] for field in ("version", "requires-python")
    }
    return {
        "requires_dist": tuple(value for name, value in headers if name == "requires-dist"),
        "requires_python": next(iter(of["requires-python"]), None),
        "version": next(iter(of["version"]), None),
    }


def _headers(door: Door, place: str) -> list[tuple[str, str]] | None:
    files = ("METADATA",) if place.endswith(".dist-info") else ("PKG-INFO", "")
    for file in files:
        text = glimpse(door.read, f"{place}/{file}".rstrip("/"), METADATA)
        if text:
            return list(_pairs(text))
    return None


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    """Yield the headers up to the empty line; indented lines continue a multi-line licence."""
    for line in text.splitlines():
        if not line:
            return
        name, colon, value = line.partition(":")
        if colon and not line[0].isspace():
            yield name.strip().lower(), value.strip()


def _requires(door: Door, found: Found, asked: Iterable[str]) -> dict[str, Any]:
    names = dict.fromkeys([*FRAMEWORKS, *map(canonical, asked)])
    read = {name: _read(door, found.places[name]) for name in names if name in found.places}
    return {name: data for name, data in read.items() if data is not None}


# -- the current folder -------------------------------------------------------------------------------


def _shadowed(door: Door, who: Patient, found: Found) -> Fact:
    """Files in the current folder with the name of an installed or standard module."""
    import sys

    try:
        here = door.cwd()
        names = door.list(here) or ()
    except Blind as blind:
        return Fact("python.shadowed", None, "the current folder", gap=str(blind))
    if here in who.site:
        return Fact("python.shadowed", (), here)
    known = {name.replace("-", "_") for name in found.versions} | set(sys.stdlib_module_names)
    files = [f"{here}/{n}" for n in names if n.endswith(".py") and n[:-3] in known]
    folders = [f"{here}/{n}" for n in names if n in known and glimpse(door.stat, f"{here}/{n}/__init__.py")]
    return Fact("python.shadowed", (*files, *folders), here)
