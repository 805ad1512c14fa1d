"""Read contract files: TOML, validated, with ``extends`` resolved into plain data.

The format is documented in docs/reference/contract-format.md. Nothing in a file is ever executed or expanded.
"""

import os
from typing import Any

from gpuready.contracts.toml import TABLES, BadContract, decode_toml, read_toml
from gpuready.contracts.validate import find_problems

_HERE = os.path.dirname(os.path.abspath(__file__))


def read_contract_data(path: str) -> dict[str, Any]:
    """Return the complete contract in a file as plain data; BadContract names every problem."""
    return _fill_missing_tables(_read_with_parents(path, ()))


def parse_contract_text(text: str, name: str) -> dict[str, Any]:
    """Return the contract that a package ships, which stands alone; BadContract names every problem."""
    own = decode_toml(text, name)
    wrong = find_problems(own, name) + (
        [f"{name} extends another, which a package's own may not"] if "extends" in own else []
    )
    if wrong:
        raise BadContract("; ".join(wrong))
    return _fill_missing_tables(own)


def _read_with_parents(path: str, seen: tuple[str, ...]) -> dict[str, Any]:
    """Read and validate a file, merged over the one that it ``extends``."""
    own, name = read_toml(path), os.path.basename(path)
    wrong = find_problems(own, name)
    if wrong:
        raise BadContract("; ".join(wrong))
    parent = own.get("extends")
    if not parent:
        return own
    if parent in seen:
        raise BadContract(f"{name} extends {parent!r}, which extends it again")
    return extend_contract(_read_with_parents(_find_parent_file(parent, path, name), (*seen, parent)), own)


def make_index_row(file: str, contract: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a contract in the index."""
    row = {key: contract.get(key, "") for key in ("framework", "version", "variant", "distribution")}
    return row | {"page": contract.get("page", False), "file": file}


def freeze_contract_rows(contract: dict[str, Any]) -> dict[str, Any]:
    """Return a contract whose rows hold tuples, as the records do: nothing has to be converted when it is loaded."""
    return {
        key: [_freeze_row(row) for row in value] if value and isinstance(value[0], dict) else tuple(value)
        for key, value in contract.items()
        if isinstance(value, list)
    } | {key: value for key, value in contract.items() if not isinstance(value, list)}


def _freeze_row(row: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}


def extend_contract(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Merge a contract over its base: rows are added, and replace those with the same subject."""
    both = {**base, **{k: v for k, v in own.items() if k not in TABLES}}
    for table in TABLES:
        both[table] = _merge_table_rows(table, base.get(table, []), own.get(table, []))
    both["notes"] = [*base.get("notes", []), *own.get("notes", [])]
    return both


def _find_parent_file(parent: str, path: str, name: str) -> str:
    for folder in (os.path.dirname(os.path.abspath(path)), _HERE):
        found = os.path.join(folder, f"{parent}.toml")
        if os.path.isfile(found):
            return found
    raise BadContract(f"{name} extends {parent!r}, and no {parent}.toml is beside it or shipped with gpuready")


def _merge_table_rows(table: str, base: list[Any], own: list[Any]) -> list[Any]:
    mine = {_row_subject(table, row) for row in own}
    return [row for row in base if _row_subject(table, row) not in mine] + own


def _row_subject(table: str, row: dict[str, Any]) -> tuple[object, ...]:
    """Return the fields that identify a row; a row of a variant replaces its base's row with the same ones."""
    fields = {
        "needs": ("key", "when", "level"),
        "capabilities": ("name",),
        "variables": ("name", "when"),
        "errors": ("message",),
        "steps": ("does",),
    }[table]
    return tuple(row.get(field, "") for field in fields)


def _fill_missing_tables(data: dict[str, Any]) -> dict[str, Any]:
    """Add missing tables, and drop what only the file itself needs."""
    full = {key: value for key, value in data.items() if key != "extends"}
    for table in TABLES:
        full.setdefault(table, [])
    return full
