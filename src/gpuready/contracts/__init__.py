"""Contracts: what each version of each framework requires, and how to find the right one.

Shipped contracts are read from the modules that ``tools/compile_catalog.py`` generates from the TOML files
beside this module; only a user's own file is read as TOML.
"""

from __future__ import annotations

from gpuready import versions
from gpuready.contracts.faults import BadContract, UnknownContract
from gpuready.model import Contract

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

__all__ = [
    "BadContract",
    "Contract",
    "UnknownContract",
    "available",
    "covers",
    "distribution",
    "frameworks",
    "known",
    "load",
    "parse",
    "read",
    "with_pins",
]


def available() -> list[dict[str, Any]]:
    """Return a row for each contract: framework, version, variant, page (the state of an environment page), file."""
    rows: list[dict[str, Any]] = _data("index")
    return rows


def frameworks() -> list[str]:
    """Return the frameworks that have a contract, in alphabetical order."""
    return sorted({row["framework"] for row in available()})


def distribution(framework: str) -> str:
    """Return the name under which a framework is installed; its own name where no contract says."""
    names = [row.get("distribution") for row in available() if row["framework"] == framework]
    return next((name for name in names if name), framework)


def contracted(framework: str) -> bool:
    """Return whether a framework has a contract of any version."""
    return any(row["framework"] == framework for row in available())


def unknown(framework: str) -> UnknownContract:
    """Return the error for an unknown framework, with the nearest names."""
    return UnknownContract(f"there is no contract for {framework!r}: {_nearby(framework, frameworks())}")


def known(framework: str, version: str | None = None, variant: str | None = None) -> None:
    """Raise UnknownContract where there is no such contract, before anything is probed."""
    rows = _of_variant(framework, _of_framework(framework), variant)
    if version is not None:
        _versioned(framework, version, rows)


def parse(text: str) -> tuple[str, str | None, str | None]:
    """Parse ``"axolotl==0.18:variant"`` to framework, version and variant; None for what is missing."""
    head, colon, variant = text.strip().partition(":")
    framework, equals, version = head.partition("==")
    framework, version, variant = framework.strip().lower(), version.strip(), variant.strip()
    if not framework or (equals and not version) or (colon and not variant):
        raise UnknownContract(f"{text!r} names no contract: write FRAMEWORK, FRAMEWORK==VERSION or :VARIANT")
    if version and not versions.is_version(version):
        raise UnknownContract(f"{version!r} in {text!r} is not a version: write {framework}==1.2.0")
    return _called(framework), version or None, variant or None


def load(
    framework: str, version: str | None = None, variant: str | None = None, installed: str | None = None
) -> Contract:
    """Load the contract of a version: the requested one, else the installed one, else the newest.

    A version without a contract of its own is judged by the nearest older one, and ``says`` notes that.
    """
    rows = _of_variant(framework, _of_framework(framework), variant)
    asked = version or installed
    if asked is None:
        return _open(rows[-1])
    _versioned(framework, asked, rows)
    row = _nearest(rows, asked)
    contract = _open(row)
    return contract.but(version=asked, says=_why(contract, asked, covers(row["version"], asked)))


def covers(line: str, version: str) -> bool:
    """Return whether a contract's version covers another: they agree in the parts that both have.

    ``5.22`` covers 5.22.2; ``0.5.23``, of a project that changes its pins with every patch, covers only itself.
    """
    if not versions.is_version(version):
        return False
    a, b = _release(line), _release(version)
    return all(x == y for x, y in zip(a, b, strict=False))


def with_pins(
    contract: Contract,
    version: str,
    requires_dist: Sequence[str],
    requires_python: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Contract:
    """Return the contract with the package pins of the installed distribution's metadata."""
    from gpuready.contracts.pins import merged

    return merged(contract, version, requires_dist, requires_python, environment)


def read(path: str) -> Contract:
    """Read and validate a user's contract file; BadContract names every problem."""
    from gpuready.contracts.source import contract_data

    return Contract.from_json(contract_data(path))


def _versioned(framework: str, version: str, rows: list[dict[str, Any]]) -> None:
    if not versions.is_version(version):
        raise UnknownContract(f"{version!r} is not a version of {framework}: write {rows[-1]['version']}")


def _of_framework(framework: str) -> list[dict[str, Any]]:
    rows = [row for row in available() if row["framework"] == framework]
    if rows:
        return rows
    raise unknown(framework)


def _of_variant(framework: str, rows: list[dict[str, Any]], variant: str | None) -> list[dict[str, Any]]:
    """Return the rows of one variant, oldest first."""
    chosen = [row for row in rows if row.get("variant", "") == (variant or "")]
    if not chosen:
        names = sorted({row.get("variant", "") for row in rows} - {""})
        hint = _nearby(variant or "", names) if names else "it has no variants"
        raise UnknownContract(f"{framework} has no variant {variant!r}: {hint}")
    return sorted(chosen, key=lambda row: _release(row["version"]))


def _nearest(rows: list[dict[str, Any]], asked: str) -> dict[str, Any]:
    older = [r for r in rows if covers(r["version"], asked) or versions.compare(r["version"], asked) <= 0]
    return older[-1] if older else rows[0]


def _release(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, at least two: ``5`` is 5.0."""
    release = versions.release(version)
    return release if len(release) > 1 else (*release, 0)


def _called(name: str) -> str:
    """Return the framework with this name or this distribution name."""
    plain = name.replace("_", "-")
    owners = (row["framework"] for row in available() if plain in (row["framework"], row["distribution"]))
    return next(owners, plain)


def _why(contract: Contract, asked: str, covered: bool) -> str:
    if covered:
        return contract.says
    line = f"{contract.framework} {asked}"
    if versions.compare(asked, contract.version) < 0:
        return f"{line} is older than every contract: it is judged by the oldest there is, {contract.version}"
    return f"{line} has no contract of its own: it is judged by {contract.version}, the nearest older one"


def _nearby(name: str, names: list[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name.lower(), names, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(near)}?" if near else f"there is {', '.join(names)}"


def _open(row: dict[str, Any]) -> Contract:
    # tools/compile_catalog.py has validated the rows already.
    data = {key: value for key, value in _data(row["file"]).items() if key in Contract._fields}
    for key, noun in Contract._nested.items():
        data[key] = tuple(noun(**item) for item in data.get(key, ()))
    return Contract(**data)


def _data(name: str) -> Any:
    return __import__(f"gpuready.contracts.data.{name}", fromlist=("DATA",)).DATA
