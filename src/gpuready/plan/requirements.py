"""Find versions that satisfy both a request and a contract."""

from collections.abc import Iterable
from typing import Any

from gpuready.catalog import facts as listed
from gpuready.catalog import packages as catalogue
from gpuready.catalog import torch as torches
from gpuready.contracts import want as wants
from gpuready.contracts.when import certainly_applies
from gpuready.model import Contract, Facts, Requirement, versions


def required_needs(contract: Contract, facts: Facts, key: str) -> list[Requirement]:
    """List the contract's required needs on a fact; a need whose condition cannot be decided is skipped."""
    return [
        n
        for n in contract.requirements_for(key)
        if n.level == "required" and n.want != "*" and certainly_applies(n.when, facts)
    ]


def required_package_names(contract: Contract, facts: Facts) -> set[str]:
    """Return the names of the packages that the contract requires here."""
    needs = [
        n for n in contract.requirements_for("package.*") if n.level == "required" and certainly_applies(n.when, facts)
    ]
    return {need.key.removeprefix("package.") for need in needs}


def newest_allowed_version(name: str, spec: str, facts: Facts, contract: Contract) -> str | None:
    """Return the newest known version inside a specifier and the contract's pins, or None."""
    pins = [need.want for need in required_needs(contract, facts, f"package.{name}")]
    known = [*_known_releases(name), *_boundary_versions([spec, *pins])]
    installed = facts.value_if_known(f"package.{name}")
    known += [str(installed)] if installed else []
    fitting = [v for v in known if _is_in_specifier(v, spec) and all(_is_in_specifier(v, pin) for pin in pins)]
    if not fitting and spec in ("", "*") and not pins:
        return "1.0"  # any version will do, and none is known
    return max(fitting, key=_release_key, default=None)


def _known_releases(name: str) -> list[str]:
    rows = (catalogue.find_package(name) or {}).get("version", ())
    pairs = [str((torches.find_torch_release(r) or {}).get(name) or "") for r in torches.list_torch_releases()]
    return [row["version"] for row in rows] + [p for p in pairs if versions.parse_plain_release(p) is not None]


def _is_in_specifier(version: str, spec: str) -> bool:
    try:
        return spec in ("", "*") or versions.satisfies_specifier(version, spec)
    except ValueError:
        return False


def _release_key(version: str) -> tuple[int, ...]:
    return versions.parse_release(version)


def _boundary_versions(specs: Iterable[str]) -> list[str]:
    """Return versions at the edges of specifiers, just inside and just outside."""
    versions_found: list[str] = []
    for clause in (c.strip() for spec in specs for choice in spec.split("|") for c in choice.split(",")):
        if not clause or clause == "*" or clause[0] not in "<>=!~":
            continue
        bound = versions.split_clause(clause)[1].removesuffix(".*")
        if not versions.is_version(bound):
            continue
        versions_found += [bound, f"{bound.partition('+')[0]}.1", *_versions_below(bound)]
    return [v for v in versions_found if versions.is_version(v)]


def _versions_below(bound: str) -> list[str]:
    """Return versions just below a bound: ``<5`` -> 4.999, ``<4.57.5`` -> 4.57.4."""
    release = list(versions.parse_release(bound))
    while release and release[-1] == 0:
        release.pop()
    if not release:
        return []
    lower = [*release[:-1], release[-1] - 1]
    return [".".join(map(str, lower)), ".".join(map(str, [*lower, 999]))]


def pinned_requirement(name: str, spec: str, version: str, facts: Facts, contract: Contract) -> str:
    """Return the requirement for the installer, including the contract's pins."""
    clauses: list[str] = []
    for one in (spec, *(need.want for need in required_needs(contract, facts, f"package.{name}"))):
        choice = next((c for c in one.split("|") if c.strip() not in ("", "*") and _is_in_specifier(version, c)), "")
        clauses += [c.strip() for c in choice.split(",") if c.strip()]
    exact = [c for c in clauses if c.startswith("==") and "*" not in c]
    return name + ",".join(exact[:1] or dict.fromkeys(clauses))


def make_satisfying_value(needs: Iterable[Requirement], key: str, value: Any) -> Any:
    """Make a value of the same type that meets every need on a fact, or None."""
    mine = [need.want for need in needs if need.key == key]
    if not _is_single_value(key):
        return None
    if isinstance(value, (list, tuple)):
        one = make_satisfying_value(needs, key, value[0]) if value else None
        return None if one is None else tuple(one for _ in value)
    for candidate in _candidate_values(mine, value):
        if _is_valid_value(key, candidate) and all(_meets_want(want, candidate) for want in mine):
            return candidate
    return None


def _is_single_value(key: str) -> bool:
    """Whether a fact is a single value, or one value per GPU."""
    kind = str((listed.find_declaration(key) or {}).get("type", "table"))
    return kind != "table" and (key.startswith("gpu.") or kind not in listed.LISTS)


def _is_valid_value(key: str, value: Any) -> bool:
    """Whether a value has the type that the fact (or one GPU's entry of it) declares."""
    kind = str((listed.find_declaration(key) or {}).get("type", ""))
    one = listed.LISTS.get(kind, kind)
    fitting = isinstance(value, listed.KINDS.get(one, ())) and not (isinstance(value, bool) and one != "bool")
    return fitting and (one != "version" or versions.is_version(value))


def _candidate_values(mine: list[str], value: Any) -> list[Any]:
    clauses = [c.strip() for want in mine for choice in want.split("|") for c in choice.split(",")]
    numbers: list[Any] = []
    for clause in clauses:
        bound = clause.lstrip("<>=!~")
        try:
            numbers += [q := wants.parse_quantity(bound), q + 1, q - 1]
        except ValueError:
            continue
    words = [c for c in clauses if c and c[0] not in "<>=!~*"]
    edges = sorted(set(_boundary_versions(mine)), key=_release_key)
    if isinstance(value, bool):
        return [True, False]
    if isinstance(value, (int, float)):
        return numbers
    return [*edges, *words] if value is not None else [*edges, *numbers, True, *words]


def _meets_want(want: str, value: Any) -> bool:
    try:
        return wants.value_meets_want(want, value)
    except ValueError:
        return False
