"""Packages of the target environment, from the names of dist-info folders: one listing per site folder."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

from gpuready.catalog.packages import canonical_package_name
from gpuready.model import Fact, Record
from gpuready.model.metadata import parse_metadata, split_metadata_name
from gpuready.probe.environment_choice import choose_environment
from gpuready.probe.fact_helpers import PACKAGES as KEYS
from gpuready.probe.fact_helpers import read_fact, read_if_present
from gpuready.probe.target_environment import TargetEnvironment, skips_current_folder
from gpuready.system import AccessError, HostAccess

__all__ = ["KEYS", "TargetEnvironment", "probe_packages", "read_package_metadata", "scan_site_folders"]

FRAMEWORKS = (
    "axolotl", "colossalai", "deepspeed", "llamafactory", "roll", "sglang", "transformers", "trl", "unsloth", "verl",
    "vllm",
)  # fmt: skip
"""Distributions whose metadata is always read: a version without a contract takes its pins from there."""

METADATA_SUFFIXES = (".dist-info", ".egg-info", ".egg")
CONTRACT_GROUP = "[gpuready.contracts]"
MAX_METADATA_BYTES = 262144
"""How much of a METADATA file is read; its headers come first."""


class SitePackages(Record):
    """Version and folder by distribution name, and what is broken."""

    versions: dict[str, str]
    places: dict[str, str]
    half: tuple[str, ...]
    twice: dict[str, tuple[str, ...]]
    whole: tuple[str, ...] = ()  # of those in ``twice``, the metadata whose files are there


def probe_packages(host: HostAccess, target: TargetEnvironment, extra_names: Iterable[str] = ()) -> list[Fact]:
    """Return the target environment, its packages, and leftovers of failed installs.

    ``extra_names`` are distributions whose metadata is read in addition to that of the frameworks.
    """
    facts = [
        Fact("python.version", target.version, target.version_source, gap=target.gap),
        Fact("python.path", target.path, target.source),
        Fact("python.prefix", target.prefix, target.source),
        Fact("python.kind", target.kind, target.prefix),
        Fact("python.chosen_by", target.chosen_by, target.source),
        Fact("python.site", target.site, target.prefix),
        _managed_fact(host, target),
        read_fact("python.disk_free", target.prefix, _free_disk_space, host, target.prefix),
        *([Fact("python.made_with", target.made_with, f"{target.prefix}/pyvenv.cfg")] if target.made_with else ()),
        *([Fact("python.made_for", target.made_for, f"{target.prefix}/pyvenv.cfg")] if target.made_for else ()),
    ]
    rest = ("python.packages", "python.half_installed", "python.duplicates", "python.shadowed", "python.requires")
    if not target.site and target.version is None:
        return [
            *facts,
            *(Fact(key, None, target.prefix, gap=f"no site folder was found: {target.gap}") for key in rest),
        ]
    try:
        installed = scan_site_folders(host, target.site)
    except AccessError as error:
        return [*facts, *(Fact(key, None, ", ".join(target.site), gap=str(error)) for key in rest)]
    return [*facts, *_package_list_facts(host, target, installed, extra_names), *_package_facts(installed)]


def _managed_fact(host: HostAccess, target: TargetEnvironment) -> Fact:
    """Whether the marker of PEP 668 lies in the standard library; a virtual environment is never managed."""
    if target.kind == "venv":
        return Fact("python.managed", False, f"{target.prefix}/pyvenv.cfg")
    if not target.version:
        return Fact("python.managed", None, target.prefix, gap=target.gap or "its version is not known")
    minor = ".".join(target.version.split(".")[:2])
    path = f"{target.prefix}/lib/python{minor}/EXTERNALLY-MANAGED"
    return read_fact("python.managed", path, lambda: host.stat_path(path) is not None)


def _free_disk_space(host: HostAccess, prefix: str) -> int | None:
    return (host.get_disk_space(prefix) or {}).get("free")


def _package_list_facts(
    host: HostAccess, target: TargetEnvironment, installed: SitePackages, extra_names: Iterable[str]
) -> list[Fact]:
    source = ", ".join(target.site) or target.prefix
    twice = tuple({"name": name, "versions": versions} for name, versions in installed.twice.items())
    return [
        Fact("python.packages", len(installed.versions), source),
        Fact("python.half_installed", installed.half, source),
        Fact("python.duplicates", twice, source),
        _shadowed_modules_fact(host, target, installed),
        Fact("python.requires", _framework_metadata(host, installed, extra_names), source),
    ]


def _package_facts(installed: SitePackages) -> list[Fact]:
    facts = []
    broken = set(installed.half)
    for name, version in installed.versions.items():
        place = installed.places[name]
        gap = ""
        if name in installed.twice and place not in installed.whole:
            gap = f"listed twice: {', '.join(installed.twice[name])}"
        elif place.rpartition("/")[2] in broken:
            gap = "half-installed: its metadata is missing"
        elif not version:
            gap = "its folder's name carries no version"
        facts.append(Fact(f"package.{name}", None if gap else version, place, gap=gap))
    return facts


# -- the listing --------------------------------------------------------------------------------------


def scan_site_folders(host: HostAccess, site: tuple[str, ...]) -> SitePackages:
    """List every distribution in the site folders; the first folder wins, as for an import."""
    installed = SitePackages({}, {}, (), {})
    half: list[str] = []
    whole: list[str] = []
    for folder in site:
        by_name: dict[str, list[tuple[str, str]]] = {}
        for entry in host.list_directory(folder) or ():
            if entry.startswith("~"):
                half.append(entry)  # pip renames what it removes, and an interrupted pip leaves it
            elif entry.endswith(METADATA_SUFFIXES):
                name, version = split_metadata_name(entry)
                by_name.setdefault(name, []).append((version, f"{folder}/{entry}"))
        for name, copies in by_name.items():
            if name in installed.versions:
                continue
            present = find_present_copy(host, [place for _, place in copies]) if len(copies) > 1 else ""
            version, place = next((copy for copy in copies if copy[1] == present), copies[-1])
            whole += [present] if present else []
            installed.versions[name], installed.places[name] = (version or _read_metadata_version(host, place), place)
            if len(copies) > 1:
                installed.twice[name] = tuple(v for v, _ in copies)
            half += [p.rpartition("/")[2] for _, p in copies if _is_half_installed(host, p)]
    return installed.replace(half=tuple(half), whole=tuple(whole))


def _is_half_installed(host: HostAccess, place: str) -> bool:
    if place.endswith(".dist-info"):
        return read_if_present(host.stat_path, f"{place}/METADATA", default=True) is None
    status = read_if_present(host.stat_path, place) or {}
    start = f"{place}/EGG-INFO" if place.endswith(".egg") else place
    return status.get("kind") == "dir" and read_if_present(host.stat_path, f"{start}/PKG-INFO", default=True) is None


def _read_metadata_version(host: HostAccess, place: str) -> str:
    return str(parse_metadata(_read_metadata_text(host, place))["version"] or "")


# -- metadata -----------------------------------------------------------------------------------------


def read_package_metadata(
    host: HostAccess, name: str, target: TargetEnvironment | None = None
) -> dict[str, Any] | None:
    """Return requires_dist, requires_python and version of a distribution; None if not installed."""
    environment = target or choose_environment(host)
    place = scan_site_folders(host, environment.site).places.get(canonical_package_name(name))
    return _read_metadata(host, place) if place else None


def _read_metadata(host: HostAccess, place: str) -> dict[str, Any] | None:
    text = _read_metadata_text(host, place)
    return {**parse_metadata(text), **_read_own_contract(host, place)} if text else None


def _read_metadata_text(host: HostAccess, place: str) -> str:
    files = (
        ("METADATA",)
        if place.endswith(".dist-info")
        else ("EGG-INFO/PKG-INFO",)
        if place.endswith(".egg")
        else ("PKG-INFO", "")
    )
    texts = (read_if_present(host.read_text, f"{place}/{file}".rstrip("/"), MAX_METADATA_BYTES) for file in files)
    return next((text for text in texts if text), "")


def _framework_metadata(host: HostAccess, installed: SitePackages, extra_names: Iterable[str]) -> dict[str, Any]:
    names = dict.fromkeys([*FRAMEWORKS, *map(canonical_package_name, extra_names)])
    by_name = {name: _read_metadata(host, installed.places[name]) for name in names if name in installed.places}
    return {name: data for name, data in by_name.items() if data is not None}


def _read_own_contract(host: HostAccess, place: str) -> dict[str, str]:
    """Return the requirements that a distribution ships: a file that its entry point names, of which nothing is imported.

    ``kite = kite_ml.data`` under ``[gpuready.contracts]`` names kite_ml/data/gpuready.toml, beside the metadata.
    """
    _, found, section = (read_if_present(host.read_text, f"{place}/entry_points.txt") or "").partition(CONTRACT_GROUP)
    lines = section.strip().partition("[")[0].splitlines() if found else []
    module = lines[0].partition("=")[2].strip() if lines else ""
    if not module or not all(part.isidentifier() for part in module.split(".")):
        return {"contract": "", "contract_file": f"{place}/entry_points.txt"} if found else {}
    path = f"{place.rpartition('/')[0]}/{module.replace('.', '/')}/gpuready.toml"
    text = read_if_present(host.read_text, path, MAX_METADATA_BYTES)
    return {"contract": text or "", "contract_file": path}


# -- the current folder -------------------------------------------------------------------------------


def _shadowed_modules_fact(host: HostAccess, target: TargetEnvironment, installed: SitePackages) -> Fact:
    """Files in the current folder with the name of an installed or standard module."""
    try:
        current_folder = host.get_cwd()
        names = host.list_directory(current_folder) or ()
    except AccessError as error:
        return Fact("python.shadowed", None, "the current folder", gap=str(error))
    if current_folder in target.site or skips_current_folder(host, target):
        return Fact("python.shadowed", (), current_folder)
    known = {name.replace("-", "_") for name in installed.versions} | set(sys.stdlib_module_names)
    files = [f"{current_folder}/{n}" for n in names if n.endswith(".py") and n[:-3] in known]
    folders = [
        f"{current_folder}/{n}"
        for n in names
        if n in known and read_if_present(host.stat_path, f"{current_folder}/{n}/__init__.py")
    ]
    return Fact("python.shadowed", (*files, *folders), current_folder)


MAX_RECORD_BYTES = 1 << 24
MAX_SAMPLED = 40
WHOLE, PARTLY = 0.95, 0.75
"""The share of files as recorded in the copy that is there, and in one that was replaced."""


def find_present_copy(host: HostAccess, places: Sequence[str]) -> str:
    """Return the metadata folder whose recorded files are there, where it is the only one of several; else an empty text."""
    shares = {place: _share_present(host, place) for place in places}
    whole = [place for place, share in shares.items() if share >= WHOLE]
    others = [share for place, share in shares.items() if place not in whole]
    return whole[0] if len(whole) == 1 and all(share <= PARTLY for share in others) else ""


def _share_present(host: HostAccess, place: str) -> float:
    """The share of sources that have their recorded size; 0 where nothing is recorded, or the RECORD is of another folder."""
    site, _, folder = place.rpartition("/")
    every = _read_rows(host, place)
    rows = [row for row in every if row[0].endswith(".py") and row[2].isdecimal()]
    if not any(name.startswith(f"{folder}/") for name, _, _ in every):
        return 0.0
    sample = rows[:: max(len(rows) // MAX_SAMPLED, 1)]
    sizes = [((read_if_present(host.stat_path, f"{site}/{name}") or {}).get("size"), size) for name, _, size in sample]
    return sum(found == int(size) for found, size in sizes) / len(sizes) if sizes else 0.0


def is_as_recorded(host: HostAccess, place: str, name: str, text: str) -> bool | None:
    """Return whether a text file has the hash of its RECORD; None where that does not tell."""
    from base64 import urlsafe_b64encode
    from hashlib import sha256

    digest = next((digest for one, digest, _ in _read_rows(host, place) if one == name), "")
    if not digest.startswith("sha256="):
        return None
    return urlsafe_b64encode(sha256(text.encode()).digest()).decode().rstrip("=") == digest.removeprefix("sha256=")


def _read_rows(host: HostAccess, place: str) -> list[tuple[str, str, str]]:
    text = read_if_present(host.read_text, f"{place}/RECORD", MAX_RECORD_BYTES) or ""
    parts = (line.rsplit(",", 2) for line in text.splitlines())
    return [(row[0].strip('"'), row[1], row[2].strip()) for row in parts if len(row) == 3]
