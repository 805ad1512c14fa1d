"""Packages that depend on torch: which releases fit a build, and which builds they rule out."""

from __future__ import annotations

from gpuready import contracts, versions
from gpuready.catalog import indexes, load, remembered
from gpuready.catalog import packages as catalogue
from gpuready.catalog import torch as torches
from gpuready.contracts import want as wanting
from gpuready.model import Need
from gpuready.plan.ground import CHOSEN, Limit, axes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from gpuready.catalog.torch import Build
    from gpuready.model import Contract
    from gpuready.plan.ground import Ground

COMPILED = ("cuda-extension", "cuda-library", "jit-extension")
DOES_WITHOUT = ("torchao",)
"""Packages that work with any torch, without their kernels if these do not fit."""

BITS = ("bnb-4bit", "bnb-8bit", "4bit", "8bit", "nf4", "int8", "qlora")
NEAREST_SINCE = "0.50.0"
"""From this bitsandbytes on, a library of another minor of the same CUDA is accepted."""


def limits(ground: Ground, contract: Contract) -> Iterator[Limit]:
    """Yield what the contract's required packages demand of torch, its CUDA and Python."""
    for package, needs in _required(contract).items():
        # The catalogue lists few releases of pure-Python packages, so only exact pins can be checked.
        pinned = any(need.want.startswith("==") for need in needs)
        if pinned or (catalogue.package(package) or {}).get("kind") in COMPILED:
            yield _fit(ground, contract, package, needs)
        if pinned:
            yield _pythons(ground, package, needs)
        if package == "bitsandbytes" and _bits(ground):
            yield _libraries(ground, package, needs)
    if not ground.cpu:
        yield from _own(contract)
        yield from _apart(contract)
    yield from _known(ground, contract)


def _required(contract: Contract) -> dict[str, list[Need]]:
    """Return the required needs by package, for packages whose torch the catalogue knows."""
    found: dict[str, list[Need]] = {}
    for need in contract.wants("package.*"):
        name = need.key.removeprefix("package.")
        tied = need.key not in CHOSEN and name not in DOES_WITHOUT and catalogue.package(name)
        if need.level == "required" and tied:
            found.setdefault(name, []).append(need)
    return found


def releases(
    ground: Ground, package: str, needs: list[Need], build: Build, python: str
) -> list[dict[str, Any]] | None:
    """List the catalogued releases that the active needs accept; None if no need is active."""
    wants = tuple(need.want for need in needs if ground.applies(need.when, build, python))
    return _taken(package, wants) if wants else None


@remembered
def _taken(package: str, wants: tuple[str, ...]) -> list[dict[str, Any]]:
    rows = (catalogue.package(package) or {}).get("version", ())
    return [row for row in rows if all(w == "*" or versions.satisfies(row["version"], w) for w in wants)]


def fitting(rows: list[dict[str, Any]], build: Build) -> list[dict[str, Any]]:
    """Keep the releases that are made for this torch, or do not say."""
    pins = [(row, row.get("for_torch", row.get("torch")) or "") for row in rows]
    return [row for row, pin in pins if not pin or _inside(build.version, pin)]


@remembered
def _inside(version: str, pin: str) -> bool:
    return versions.satisfies(version, pin)


def _fit(ground: Ground, contract: Contract, package: str, needs: list[Need]) -> Limit:
    def fails(build: Build, python: str) -> str:
        rows = releases(ground, package, needs, build, python)
        if not rows or fitting(rows, build):
            return ""
        newest = rows[-1]
        pin = newest.get("for_torch", newest.get("torch"))
        return f"{package} {newest['version']} is made for torch {pin}"

    wants = " and ".join(dict.fromkeys(need.want for need in needs))
    says = f"{contract.name} asks for {package} {wants}, whose releases take certain torches"
    by = "both" if any("python" in need.when for need in needs) else "torch"
    return Limit(f"torch for {package}", says, fails, (), tuple(needs), _source(package), by)


def _pythons(ground: Ground, package: str, needs: list[Need]) -> Limit:
    def fails(build: Build, python: str) -> str:
        rows = releases(ground, package, needs, build, python) or []
        asks = [row.get("requires_python") or "" for row in rows]
        if not asks or any(not ask or versions.satisfies(python, ask) for ask in asks):
            return ""
        return f"{package} {rows[-1]['version']} takes Python {asks[-1]}"

    by = axes("python.version", *(need.when for need in needs))
    says = f"{package} takes certain Pythons"
    return Limit(f"python of {package}", says, fails, (), tuple(needs), _source(package), by)


def _bits(ground: Ground) -> bool:
    return bool({str(w).casefold() for w in ground.facts.known("job.wants") or ()} & set(BITS))


def _libraries(ground: Ground, package: str, needs: list[Need]) -> Limit:
    """bitsandbytes has a library for each CUDA; a 4-bit or 8-bit job needs the one of torch's CUDA."""

    def fails(build: Build, python: str) -> str:
        rows = fitting(releases(ground, package, needs, build, python) or [], build)
        known = [row for row in rows if row.get("cuda_libs")]
        if (
            not build.cuda
            or not known
            or any(_carries(row, build.cuda) for row in known)
            or len(known) < len(rows)
        ):
            return ""
        return f"{package} {known[-1]['version']} has no library for CUDA {build.cuda}"

    says = f"the job needs {package} with a library for torch's CUDA"
    job = (ground.facts.fact("job.wants"),)
    return Limit(f"libraries of {package}", says, fails, job, tuple(needs), _source(package))


def _carries(row: dict[str, Any], cuda: str) -> bool:
    if any(versions.minor(one) == versions.minor(cuda) for one in row["cuda_libs"]):
        return True
    near = any(versions.major(one) == versions.major(cuda) for one in row["cuda_libs"])
    return near and versions.compare(row["version"], NEAREST_SINCE) >= 0


def _own(contract: Contract) -> Iterator[Limit]:
    """Limit torch to the CUDA major of the framework's own compiled wheel."""
    name = contract.distribution or contract.framework
    majors = {catalogue.cuda_linked(row) for row in _own_rows(contract)}
    if len(majors) != 1 or None in majors:
        return
    major = majors.pop()
    version = _own_rows(contract)[-1]["version"]
    says = f"the wheel of {name} {version} loads the runtime of CUDA {major}"

    def fails(build: Build, python: str) -> str:
        return "" if versions.major(build.cuda) == major else says

    need = Need("torch.cuda", f">={major},<{(major or 0) + 1}", cite=_source(name))
    yield Limit(f"cuda of {name}", says, fails, (), (need,))


def _apart(contract: Contract) -> Iterator[Limit]:
    """Limit torch to the CUDA of an index that one package comes from."""
    for package, index in indexes.apart(contract.framework, contract.variant).items():
        _, variant = torches.parse(f"0+{index.rpartition('-')[2]}")
        if not variant or not variant[2:].isdigit():
            continue
        major = int(variant[2:-1])
        says = f"{package} of the index {index} is built for CUDA {major}"

        def fails(build: Build, python: str, major: int = major, says: str = says) -> str:
            return "" if versions.major(build.cuda) == major else says

        need = Need(
            "torch.cuda", f">={major},<{major + 1}", cite=str(indexes.index(index).get("source", index))
        )
        yield Limit(f"cuda of {package}", says, fails, (), (need,))


def _own_rows(contract: Contract) -> list[dict[str, Any]]:
    rows = (catalogue.package(contract.distribution or contract.framework) or {}).get("version", ())
    return [row for row in rows if contracts.covers(contract.version, row["version"])]


def strangers(ground: Ground, contract: Contract, build: Build, python: str) -> dict[str, int]:
    """Return required packages whose fitting wheels all need another CUDA major, with that major."""
    found = {}
    elsewhere = indexes.apart(contract.framework, contract.variant)
    for package, needs in _required(contract).items() if build.cuda else ():
        if (
            package in elsewhere
        ):  # its wheels come from an index of its own, not the catalogued one
            continue
        rows = fitting(releases(ground, package, needs, build, python) or [], build)
        majors = {catalogue.cuda_linked(row) for row in rows}
        other = [major for major in majors if major is not None]
        if rows and None not in majors and versions.major(build.cuda) not in majors:
            found[package] = max(other)
    return found


def unfit(ground: Ground, contract: Contract, build: Build, python: str) -> dict[str, str]:
    """Return what does not fit this build but may be installed with it: wheels of another CUDA, unmet advice."""
    found = {name: f"CUDA {major}" for name, major in strangers(ground, contract, build, python).items()}
    for need in contract.needs:
        if need.level != "recommended" or need.key not in CHOSEN or need.want == "*":
            continue
        value = ground.value(need.key, build, python)
        advised = need.key != "python.version" and ground.applies(need.when, build, python)
        if advised and value is not ground.open and not holds(need.want, value):
            found[need.key] = need.want
    return found


def holds(want: str, value: Any) -> bool:
    """Whether a value meets a want; True if the two cannot be compared."""
    try:
        return wanting.holds(want, value)
    except ValueError:
        return True


def _known(ground: Ground, contract: Contract) -> Iterator[Limit]:
    """Yield the catalogue's known conflicts between torch and the contract's exact pins."""
    pinned = exact(contract)
    rows = [row for row in _against_torch() if any(name in pinned for name in row[0])]
    for names, row in rows:

        def fails(build: Build, python: str, row: dict[str, Any] = row, names: Any = names) -> str:
            asked = {n: pinned[n] for n in names if n in pinned}
            here = {n: pin for n, (pin, when) in asked.items() if ground.applies(when, build, python)}
            if row not in catalogue.conflicts(here | {"torch": build.version}):
                return ""
            return f"{row['a']} and {' or '.join(row['b'])}: {row['why']}"

        need = Need("package.torch", "what goes with the contract's pins", cite=str(row["source"]))
        yield Limit("known conflicts", f"{row['a']}: {row['why']}", fails, (), (need,))


@remembered
def _against_torch() -> list[tuple[set[str], dict[str, Any]]]:
    """List the unconditional catalogue conflicts that involve torch, with the other packages."""
    found = []
    for row in load("packages")["conflict"]:
        names = {catalogue.split(text)[0] for text in (row["a"], *row["b"])}
        if "torch" in names and "when" not in row:
            found.append((names - {"torch"}, row))
    return found


def exact(contract: Contract) -> dict[str, tuple[str, str]]:
    """Return the packages that a contract pins to one version, with the condition: ``trl`` -> ``1.8.0``."""
    found: dict[str, tuple[str, str]] = {}
    for need in contract.wants("package.*"):
        one = need.want.removeprefix("==")
        if need.level == "required" and need.want.startswith("==") and versions.is_version(one):
            found.setdefault(need.key.removeprefix("package."), (one, need.when))
    return found


def wanted(ground: Ground, contract: Contract) -> list[str]:
    """Return the job's wants, plus the framework itself if it is compiled."""
    job = [str(word) for word in ground.facts.known("job.wants") or ()]
    own = contract.distribution or contract.framework
    compiled = (catalogue.package(own) or {}).get("kind") in COMPILED
    return [*job, *([own] if compiled or own == "colossalai" else [])]


def _source(package: str) -> str:
    said = (catalogue.package(package) or {}).get("source", "")
    return str(said[0] if isinstance(said, (list, tuple)) and said else said)
