"""Judge a version or package that has no known requirements: by what the catalogue has of its release, or by its metadata."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuready.catalog import catalog_date
from gpuready.catalog.packages import find_package, find_releases_around, linked_cuda_major
from gpuready.catalog.releases import find_release, list_releases
from gpuready.contracts import covers_version, is_borrowed
from gpuready.contracts.pins import loosen_pin, merge_metadata_pins, normalize_specifier, soften_borrowed_needs
from gpuready.model import Capability, Contract, Requirement
from gpuready.model.versions import satisfies_specifier

NEED_WORDS = {"python.version": "Python", "package.torch": "torch", "gpu.capability": "compute capability"}
WHEEL_FACTS = {"os.system", "os.arch", "os.glibc"}


def judge_by_catalogue(contract: Contract) -> Contract:
    """Return a borrowed contract as advice, with what the catalogue has of the asked version's own release."""
    advised, unknown = soften_borrowed_needs(contract), describe_unknown_release(contract)
    return advised.replace(says=f"{advised.says}; {unknown}") if unknown else add_catalogued_needs(advised)


def add_catalogued_needs(advised: Contract, is_installed: bool = False) -> Contract:
    """Return a borrowed contract with what the catalogue has of its version's own release: its GPUs, wheels, and torch behind an extra.

    ``is_installed``: its GPUs alone, since it may have been built, and its metadata tells the rest.
    """
    name = advised.distribution or advised.framework
    version, row = find_release(name, advised.version) or ("", {})
    if not row:
        return advised
    cite, own = f"METADATA of {name} {version}", _capability_floor(name, version)
    replaced = {need.key for need in own}
    if not is_installed:
        stated = [*_stated_needs(row, cite), *_gap_needs(row, cite), *_wheel_needs(row, name, version)]
        own = _join_needs(stated) + own
        replaced |= {need.key for need in own} | ({"torch.cuda"} if "torch" in row else set())
        replaced |= set() if row.get("source_only") else WHEEL_FACTS
    kept = [need for need in advised.needs if _is_kept(need, replaced)]
    wanted = [f"{NEED_WORDS[need.key]} {need.want}" for need in own if need.key in NEED_WORDS]
    says = f"{advised.says}; of its own: {', '.join(wanted)} ({cite})" if wanted else advised.says
    says += "; its project has withdrawn this release" if row.get("withdrawn") else ""
    return advised.replace(needs=(*own, *kept), says=says)


def _is_kept(need: Requirement, replaced: set[str]) -> bool:
    """Whether a need still counts beside what the release itself says."""
    return need.key not in replaced or (bool(need.when) and (need.level == "required" or need.key not in WHEEL_FACTS))


def describe_unknown_release(contract: Contract) -> str:
    """Return why nothing is known of the asked version: it is not among the releases; empty where it is, or none are listed."""
    name = contract.distribution or contract.framework
    if not is_borrowed(contract) or not (known := list_releases(name)) or find_release(name, contract.version):
        return ""
    return (
        f"{name} {contract.version} is not among its releases of {catalog_date()}, of which the newest is {known[-1]}"
    )


def _stated_needs(row: Mapping[str, Any], cite: str) -> list[Requirement]:
    wants = {"python.version": row.get("requires_python"), "package.torch": row.get("torch")}
    needs = [Requirement(key, normalize_specifier(want), "", "required", cite) for key, want in wants.items() if want]
    is_loose = row.get("torch_extra") == "torch"
    return [one for need in needs for one in (loosen_pin(need) if is_loose and need.key == "package.torch" else [need])]


def _join_needs(needs: Iterable[Requirement]) -> list[Requirement]:
    """Return needs with one for Python, whose clauses hold together."""
    found: dict[tuple[str, str], Requirement] = {}
    for need in needs:
        key = need.key, "" if need.key == "python.version" else need.want + need.level
        known = found.get(key)
        joined = need.replace(want=f"{known.want},{need.want}", cite=f"{known.cite}; {need.cite}") if known else need
        found[key] = joined
    return list(found.values())


def _gap_needs(row: Mapping[str, Any], cite: str) -> list[Requirement]:
    """Return where a required package cannot be installed: ``3.14 tokenizers>=0.14,<0.19``, ``windows sgl-kernel==0.2.4``."""
    gaps: dict[tuple[str, str], list[str]] = {}
    for text in row.get("unavailable", ()):
        where, _, requirement = text.partition(" ")
        key = "os.system" if where == "windows" else "os.arch" if where == "aarch64" else "python.version"
        gaps.setdefault((key, requirement), []).append(where)
    return [
        Requirement(key, _everything_but(key, places), "", "required", _gap_text(cite, requirement, places))
        for (key, requirement), places in gaps.items()
    ]


def _everything_but(key: str, places: Sequence[str]) -> str:
    others = {"os.system": "linux|darwin", "os.arch": "x86_64"}
    return others.get(key) or ",".join(f"!={python}.*" for python in places)


def _gap_text(cite: str, requirement: str, places: Sequence[str]) -> str:
    words = [f"Python {place}" if place[0].isdigit() else place for place in places]
    return f"{cite}: {requirement}, which has no wheel for {' and '.join(words)}"


def _wheel_needs(row: Mapping[str, Any], name: str, version: str) -> Iterable[Requirement]:
    """Yield the systems of a release whose wheels are not for every machine: elsewhere an install would compile it."""
    if not (row.get("systems") and row.get("machines")):  # of deepspeed 0.16 all but Windows take the source
        return
    cite = f"wheels of {name} {version} on PyPI"
    yield Requirement("os.system", "|".join(row["systems"]), "", "required", cite)
    yield Requirement("os.arch", "|".join(row["machines"]), "", "required", cite)
    if glibc := row.get("linux_glibc"):
        yield Requirement("os.glibc", f">={glibc}", "os.system=linux", "required", cite)


def _capability_floor(name: str, version: str) -> list[Requirement]:
    """Return the oldest GPU of a release, where the catalogue has it."""
    floors = (find_package(name) or {}).get("floors", ())
    found = [row for row in floors if satisfies_specifier(version, row["versions"])]
    return [Requirement("gpu.capability", row["capability"], "", "required", row["source"]) for row in found]


METADATA_ONLY_NOTE = "no requirements of its own: judged by the pins of its metadata alone"
OWN_CUDA = "needs no torch: its CUDA is its own"
"""What the contract of a package that computes on GPUs by itself says."""
TORCH_EXTRAS = ("torch", "pytorch", "pt")
"""Extras by which packages that can do without torch ask for it."""


def contract_from_metadata(
    name: str,
    version: str,
    requires_dist: Sequence[str],
    requires_python: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Contract:
    """Return the contract of a distribution; markers are evaluated as in ``pins.merge_metadata_pins``."""
    bare = Contract(name, version, distribution=name, title=name, origin=f"METADATA of {name} {version}")
    pinned = merge_metadata_pins(bare, version, requires_dist, requires_python, environment)
    if not any(not need.when for need in pinned.requirements_for("package.torch")):
        return pinned.replace(says=METADATA_ONLY_NOTE, platforms=("cpu",))
    return make_for_gpus(pinned)


def make_for_gpus(contract: Contract, why: str = "") -> Contract:
    """A package that requires torch, or brings it (``why``), is ready once torch works on the GPU."""
    works = Capability("cuda", "required", cite=why or f"{contract.origin} requires torch")
    own = (Requirement("package.torch", "*", cite=why),) if why else ()
    needs, platforms = (*contract.needs, *own), _list_gpu_platforms(contract)
    return contract.replace(says=METADATA_ONLY_NOTE, platforms=platforms, capabilities=(works,), needs=needs)


def _list_gpu_platforms(contract: Contract) -> tuple[str, ...]:
    """Return what torch computes on, for a package that brings compiled code only where its wheels have it for that."""
    row = find_package(contract.distribution or contract.framework) or {}
    has_rocm = (
        "kind" not in row or row["kind"] == "python" or satisfies_specifier(contract.version, row.get("rocm", "<0"))
    )
    return ("cuda", "rocm") if has_rocm else ("cuda",)


def make_torch_contract(version: str, origin: str) -> Contract:
    """Return the contract of torch itself: it runs where its build fits the GPU and the driver."""
    bare = Contract("torch", version, distribution="torch", title="torch", origin=origin)
    return make_for_gpus(bare, origin).replace(says="")


def with_torch_extra(contract: Contract) -> Contract | None:
    """Return the contract with what its extra for torch requires: ``diffusers[torch]``, or the only one that brings it.

    None where it has none, or several that say nothing by their names.
    """
    extras = list_torch_extras(contract)
    chosen = [name for name in TORCH_EXTRAS if name in extras] or (extras if len(extras) == 1 else [])
    if not chosen:
        return None
    needs = tuple(need.replace(when="") if need.when == f"wants={chosen[0]}" else need for need in contract.needs)
    return make_for_gpus(contract.replace(needs=needs))


def list_torch_extras(contract: Contract) -> list[str]:
    """Return the extras of a package that bring torch."""
    conditions = (need.when for need in contract.requirements_for("package.torch"))
    return list(dict.fromkeys(when.removeprefix("wants=") for when in conditions if when.startswith("wants=")))


def find_wheel_cuda(contract: Contract) -> int | None:
    """Return the CUDA major whose runtime the framework's own compiled wheel loads; None if unknown."""
    majors = {linked_cuda_major(row) for row in list_covered_releases(contract)}
    return majors.pop() if len(majors) == 1 else None


def list_covered_releases(contract: Contract) -> list[dict[str, Any]]:
    """Return the releases of a contract's version; those before and after it where the catalogue has none of its own."""
    name = contract.distribution or contract.framework
    rows = (find_package(name) or {}).get("version", ())
    own = [row for row in rows if covers_version(contract.version, row["version"])]
    return own or _nearest_releases(name, contract.version)


def _nearest_releases(name: str, version: str) -> list[dict[str, Any]]:
    """Return the releases before and after one; of two with different torches those that pin the same as it."""
    around = find_releases_around(name, version)
    _, release = find_release(name, version) or ("", {})
    return [row for row in around if row.get("torch") and row["torch"] == release.get("torch")] or around
