"""Find versions that satisfy both a request and a contract."""

from __future__ import annotations

from gpuready import versions
from gpuready.catalog import facts as listed
from gpuready.catalog import packages as catalogue
from gpuready.catalog import torch as torches
from gpuready.contracts import want as wants
from gpuready.contracts import when as conditions
from gpuready.model import Unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from gpuready.model import Contract, Facts, Need


def in_force(contract: Contract, facts: Facts, key: str) -> list[Need]:
    """List the contract's required needs on a fact; a need whose condition cannot be decided is skipped."""
    return [n for n in contract.wants(key) if n.level == "required" and n.want != "*" and _holds(n, facts)]


def required(contract: Contract, facts: Facts) -> set[str]:
    """Return the names of the packages that the contract requires here."""
    needs = [n for n in contract.wants("package.*") if n.level == "required" and _holds(n, facts)]
    return {need.key.removeprefix("package.") for need in needs}


def _holds(need: Need, facts: Facts) -> bool:
    try:
        return conditions.applies(need.when, facts)
    except Unknown:
        return False


def version_for(name: str, spec: str, facts: Facts, contract: Contract) -> str | None:
    """Return the newest known version inside a specifier and the contract's pins, or None."""
    pins = [need.want for need in in_force(contract, facts, f"package.{name}")]
    known = [*_released(name), *_bounds([spec, *pins])]
    installed = facts.known(f"package.{name}")
    known += [str(installed)] if installed else []
    fitting = [v for v in known if _inside(v, spec) and all(_inside(v, pin) for pin in pins)]
    if not fitting and spec in ("", "*") and not pins:
        return "1.0"  # any version will do, and none is known
    return max(fitting, key=_order, default=None)


def _released(name: str) -> list[str]:
    rows = (catalogue.package(name) or {}).get("version", ())
    pairs = [str((torches.release(r) or {}).get(name) or "") for r in torches.releases()]
    return [row["version"] for row in rows] + [p for p in pairs if versions.plain(p) is not None]


def _inside(version: str, spec: str) -> bool:
    try:
        return spec in ("", "*") or versions.satisfies(version, spec)
    except ValueError:
        return False


def _order(version: str) -> tuple[int, ...]:
    return versions.release(version)


def _bounds(specs: Iterable[str]) -> list[str]:
    """Return versions at the edges of specifiers, just inside and just outside."""
    found: list[str] = []
    for clause in (c.strip() for spec in specs for choice in spec.split("|") for c in choice.split(",")):
        if not clause or clause == "*" or clause[0] not in "<>=!~":
            continue
        bound = versions.split_clause(clause)[1].removesuffix(".*")
        if not versions.is_version(bound):
            continue
        found += [bound, f"{bound.partition('+')[0]}.1", *_below(bound)]
    return [v for v in found if versions.is_version(v)]


def _below(bound: str) -> list[str]:
    """Return versions just below a bound: ``<5`` -> 4.999, ``<4.57.5`` -> 4.57.4."""
    release = list(versions.release(bound))
    while release and release[-1] == 0:
        release.pop()
    if not release:
        return []
    lower = [*release[:-1], release[-1] - 1]
    return [".".join(map(str, lower)), ".".join(map(str, [*lower, 999]))]


def requirement(name: str, spec: str, version: str, facts: Facts, contract: Contract) -> str:
    """Return the requirement for the installer, including the contract's pins."""
    clauses: list[str] = []
    for one in (spec, *(need.want for need in in_force(contract, facts, f"package.{name}"))):
        choice = next((c for c in one.split("|") if c.strip() not in ("", "*") and _inside(version, c)), "")
        clauses += [c.strip() for c in choice.split(",") if c.strip()]
    exact = [c for c in clauses if c.startswith("==") and "*" not in c]
    return name + ",".join(exact[:1] or dict.fromkeys(clauses))


def satisfying(needs: Iterable[Need], key: str, value: Any) -> Any:
    """Make a value of the same type that meets every need on a fact, or None."""
    mine = [need.want for need in needs if need.key == key]
    if not _is_plain(key):
        return None
    if isinstance(value, (list, tuple)):
        one = satisfying(needs, key, value[0]) if value else None
        return None if one is None else tuple(one for _ in value)
    for candidate in _candidates(mine, value):
        if _is_kind(key, candidate) and all(_meets(want, candidate) for want in mine):
            return candidate
    return None


def _is_plain(key: str) -> bool:
    """Whether a fact is a single value, or one value per GPU."""
    kind = str((listed.declared(key) or {}).get("type", "table"))
    return kind != "table" and (key.startswith("gpu.") or kind not in listed.LISTS)


def _is_kind(key: str, value: Any) -> bool:
    """Whether a value has the type that the fact (or one GPU's entry of it) declares."""
    kind = str((listed.declared(key) or {}).get("type", ""))
    one = listed.LISTS.get(kind, kind)
    fitting = isinstance(value, listed.KINDS.get(one, ())) and not (isinstance(value, bool) and one != "bool")
    return fitting and (one != "version" or versions.is_version(value))


def _candidates(mine: list[str], value: Any) -> list[Any]:
    clauses = [c.strip() for want in mine for choice in want.split("|") for c in choice.split(",")]
    numbers: list[Any] = []
    for clause in clauses:
        bound = clause.lstrip("<>=!~")
        try:
            numbers += [q := wants.quantity(bound), q + 1, q - 1]
        except ValueError:
            continue
    words = [c for c in clauses if c and c[0] not in "<>=!~*"]
    edges = sorted(set(_bounds(mine)), key=_order)
    if isinstance(value, bool):
        return [True, False]
    if isinstance(value, (int, float)):
        return numbers
    return [*edges, *words] if value is not None else [*edges, *numbers, True, *words]


def _meets(want: str, value: Any) -> bool:
    try:
        return wants.holds(want, value)
    except ValueError:
        return False
