"""Contracts: what each version of each framework requires, and how to find the right one.

Shipped contracts are read from the modules that ``tools/compile_catalog.py`` generates from the TOML files
beside this module; only a user's own file is read as TOML.
"""

import re
from functools import cache
from typing import Any

from gpuready.catalog import load_table
from gpuready.catalog.packages import canonical_package_name
from gpuready.contracts.toml import BadContract, UnknownContract
from gpuready.model import Contract, versions

__all__ = [
    "BadContract",
    "Contract",
    "UnknownContract",
    "check_contract_exists",
    "covers_version",
    "distribution_name",
    "list_contract_rows",
    "list_frameworks",
    "load_contract",
    "parse_contract_spec",
    "read_contract_file",
]


def list_contract_rows() -> list[dict[str, Any]]:
    """Return a row for each contract: framework, version, variant, page (the state of an environment page), file."""
    rows: list[dict[str, Any]] = load_table("contracts", "index")
    return rows


def list_frameworks() -> list[str]:
    """Return the frameworks that have a contract, in alphabetical order."""
    return sorted({row["framework"] for row in list_contract_rows()})


def distribution_name(framework: str) -> str:
    """Return the name under which a framework is installed; its own name where no contract says."""
    names = [row.get("distribution") for row in list_contract_rows() if row["framework"] == framework]
    return next((name for name in names if name), framework)


def has_contract(framework: str) -> bool:
    """Return whether a framework has a contract of any version."""
    return any(row["framework"] == framework for row in list_contract_rows())


def unknown_contract_error(framework: str) -> UnknownContract:
    """Return the error for an unknown framework, with the nearest names."""
    names, near = list_frameworks(), _nearest_names(framework, list_frameworks())
    found = near or f"there is {', '.join(names)}; --contract FILE takes one of your own"
    return UnknownContract(f"there are no requirements of {framework!r}: {found}")


def check_contract_exists(framework: str, version: str | None = None, variant: str | None = None) -> None:
    """Raise UnknownContract where there is no such contract, before anything is probed."""
    rows = _variant_rows(framework, _framework_rows(framework), variant)
    if version is not None:
        _check_version(framework, version, rows)


def parse_contract_spec(text: str) -> tuple[str, str | None, str | None]:
    """Parse ``"axolotl==0.18:variant"`` to framework, version and variant; None for what is missing. Extras are left out."""
    head, colon, variant = re.sub(r"^([\w.-]+)\[[\w., -]*\]", r"\1", text.strip()).partition(":")
    framework, equals, version = head.partition("==")
    framework, version, variant = framework.strip().lower(), version.strip(), variant.strip()
    if not framework or (equals and not version) or (colon and not variant):
        raise UnknownContract(f"{text!r} names no requirements: write FRAMEWORK, FRAMEWORK==VERSION or :VARIANT")
    if version and not versions.is_version(version):
        raise UnknownContract(f"{version!r} in {text!r} is not a version: write {framework}==1.2.0")
    return framework_by_name(framework), version or None, variant or None


def parse_extras(text: str) -> tuple[str, ...]:
    """Return the extras that a spec names: ``trl[peft,vlm]==1.16`` -> peft and vlm."""
    found = re.match(r"[\w.-]+\[([\w., -]*)\]", text.strip())
    return tuple(canonical_package_name(one.strip()) for one in found[1].split(",") if one.strip()) if found else ()


def load_contract(
    framework: str, version: str | None = None, variant: str | None = None, installed: str | None = None
) -> Contract:
    """Load the contract of a version: the requested one, else the installed one, else the newest.

    A version without a contract of its own is judged by the nearest older one, and ``says`` notes that.
    """
    rows = _variant_rows(framework, _framework_rows(framework), variant)
    wanted = version or installed
    if wanted is None:
        return _make_contract(rows[-1]["file"])
    _check_version(framework, wanted, rows)
    row = _nearest_row(rows, wanted)
    contract = _make_contract(row["file"])
    if covers_version(row["version"], wanted):
        return contract.replace(version=wanted)
    # what one line is for, a page may say of that line alone
    platforms = dict.fromkeys([*contract.platforms, *_make_contract(rows[-1]["file"]).platforms])
    nearest = "oldest" if versions.compare_versions(wanted, contract.version) < 0 else "nearest older one"
    says = f"no requirements of {wanted}: judged by {contract.version}, the {nearest}"
    return contract.replace(
        version=wanted, platforms=tuple(platforms), says=says, basis="borrowed", read_from=row["version"]
    )


def list_shipped_contracts(framework: str) -> list[Contract]:
    """Return every contract of a framework, with its variants; empty where it has none."""
    return [_make_contract(row["file"]) for row in list_contract_rows() if row["framework"] == framework]


def list_line_contracts(framework: str) -> list[Contract]:
    """Return the contracts of a framework, without its variants."""
    return [contract for contract in list_shipped_contracts(framework) if not contract.variant]


def covers_version(line: str, version: str) -> bool:
    """Return whether a contract's version covers another: they agree in the parts that both have.

    ``5.22`` covers 5.22.2; ``0.5.23``, of a project that changes its pins with every patch, covers only itself.
    """
    if not versions.is_version(version):
        return False
    a, b = _release_numbers(line), _release_numbers(version)
    return all(x == y for x, y in zip(a, b, strict=False))


def is_borrowed(contract: Contract) -> bool:
    """Return whether a contract is that of another version, for want of one of its own."""
    return contract.basis == "borrowed"


def is_made_from_release(contract: Contract) -> bool:
    """Return whether a contract was read from a release of its line: another patch has pins of its own."""
    return contract.basis == "release"


def foreign_note(contract: Contract) -> str:
    """Return whose contract it is and what was not taken from it; empty for one of gpuready's own."""
    return contract.says if contract.basis == "foreign" else ""


def read_contract_file(path: str) -> Contract:
    """Read and validate a user's contract file; BadContract names every problem."""
    from gpuready.contracts.contract_file import read_contract_data

    return Contract.from_json(read_contract_data(path))


def _check_version(framework: str, version: str, rows: list[dict[str, Any]]) -> None:
    if not versions.is_version(version):
        raise UnknownContract(f"{version!r} is not a version of {framework}: write {rows[-1]['version']}")


def _framework_rows(framework: str) -> list[dict[str, Any]]:
    rows = [row for row in list_contract_rows() if row["framework"] == framework]
    if rows:
        return rows
    raise unknown_contract_error(framework)


def _variant_rows(framework: str, rows: list[dict[str, Any]], variant: str | None) -> list[dict[str, Any]]:
    """Return the rows of one variant, oldest first."""
    chosen = [row for row in rows if row.get("variant", "") == (variant or "")]
    if not chosen:
        names = sorted({row.get("variant", "") for row in rows} - {""})
        there = f"there is {', '.join(names)}" if names else "it has no variants"
        hint = _nearest_names(variant or "", names) or there
        raise UnknownContract(f"{framework} has no variant {variant!r}: {hint}")
    return sorted(chosen, key=lambda row: _release_numbers(row["version"]))


def _nearest_row(rows: list[dict[str, Any]], wanted: str) -> dict[str, Any]:
    older = [
        r for r in rows if covers_version(r["version"], wanted) or versions.compare_versions(r["version"], wanted) <= 0
    ]
    return older[-1] if older else rows[0]


def _release_numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, at least two: ``5`` is 5.0."""
    release = versions.parse_release(version)
    return release if len(release) > 1 else (*release, 0)


def framework_by_name(name: str) -> str:
    """Return the framework with this name or this distribution name."""
    plain = name.replace("_", "-")
    owners = (row["framework"] for row in list_contract_rows() if plain in (row["framework"], row["distribution"]))
    return next(owners, plain)


def _nearest_names(name: str, names: list[str]) -> str:
    """Say which name is meant; empty where none is near."""
    from difflib import get_close_matches

    # axolotl=0.21, axolotl@0.21, axolotl>=0.21, "axolotl 0.21", axolotl-0.21, transformers[torch]
    if (known := re.match(r"([\w-]+?)(?:-(?=\d)|[^\w.-])", name)) and known[1].lower() in names:
        version = re.search(r"\d[\w.]*", name[known.end(1) :])
        return f"write {known[1].lower()}{f'=={version[0]}' if version else ''}"
    near = get_close_matches(name.lower(), names, n=3, cutoff=0.6)
    return f"did you mean {' or '.join(near)}?" if near else ""


@cache
def _make_contract(file: str) -> Contract:
    # tools/compile_catalog.py has validated the rows already.
    data = {key: value for key, value in load_table("contracts", file).items() if key in Contract._fields}
    for key, record in Contract.nested_records().items():
        data[key] = tuple(record(**item) for item in data.get(key, ()))
    return Contract(**data)
