"""The statements of the environment pages: read, and put to contracts, rules and functions."""

from __future__ import annotations

import importlib
import sys
from functools import cache
from pathlib import Path
from typing import Any

from gpuready import contracts, rules
from gpuready.contracts import when as conditions
from gpuready.model import Contract, Facts, UnknownFactError, versions
from gpuready.runtime.platform import get_platform
from tests.rules.worlds import H100, facts, outcome

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DATA = tomllib.loads((Path(__file__).parent / "statements.toml").read_text(encoding="utf-8"))
PAGES = {row["id"]: row for row in DATA["page"]}
STATEMENTS = DATA["statement"]
ABSENT = "<absent>"
WORDS = {"needs": "key", "capabilities": "name", "variables": "name", "errors": "message", "steps": "does"}


# -- contracts ----------------------------------------------------------------------------------------


@cache
def contract(name: str) -> Contract:
    """A shipped contract by the name of its file: ``roll-0.3.0-guide``."""
    row = next(r for r in contracts.list_contract_rows() if r["file"] == name.replace("-", "_").replace(".", "_"))
    return contracts.load_contract(row["framework"], row["version"], row["variant"] or None)


def rows(agreed: Contract, where: str) -> list[Any]:
    """The rows of a contract that ``TABLE:WORDS`` means; keys and names in full, texts by a part."""
    table, _, words = where.partition(":")
    if table == "notes":
        return [note for note in agreed.notes if words in note]
    field = WORDS[table]
    exact = field in ("key", "name")
    found = [(row, getattr(row, field)) for row in getattr(agreed, table)]
    return [row for row, text in found if (text == words if exact else words in text)]


def says(row: Any, expect: dict[str, Any]) -> bool:
    return all(getattr(row, field) == frozen(value) for field, value in expect.items())


def frozen(value: Any) -> Any:
    """TOML has lists and no None; facts and rows have tuples and None."""
    if value == ABSENT:
        return None
    if isinstance(value, list):
        return tuple(frozen(item) for item in value)
    if isinstance(value, dict):
        return {key: frozen(item) for key, item in value.items()}
    return value


# -- rules --------------------------------------------------------------------------------------------


@cache
def machine(name: str) -> dict[str, Any]:
    """A machine on which everything that a page asks for is there."""
    page = PAGES[name]
    values = {"env.names": (), **H100, **frozen(page["machine"])}
    values |= {f"package.{name}": version for name, version in page["packages"].items()}
    agreed = contract(page["contract"])
    for _ in range(2):  # what is in force may hang on a package of the first round
        asked = [n for n in agreed.requirements_for("package.*") if conditions.certainly_applies(n.when, facts(values))]
        for key in {n.key for n in asked if n.level != "optional"} - set(values):
            values[key] = _inside([n.want for n in asked if n.key == key])
    return values


def _inside(pins: list[str]) -> str:
    bounds = [versions.split_clause(c)[1] for pin in pins if pin != "*" for c in pin.split(",")]
    for version in (*bounds, *(f"{bound}.1" for bound in bounds), "1.0"):
        if all(pin == "*" or versions.satisfies_specifier(version, pin) for pin in pins):
            return version
    raise AssertionError(f"no version is inside {pins}")


def world(statement: dict[str, Any], *tables: str) -> Facts:
    values = dict(machine(statement["page"]))
    for table in tables:
        values |= frozen(statement.get(table, {}))
    values |= {f"env.{name}": values.get(f"env.{name}") for name in values["env.names"]}
    return facts(values)


def judged(code: str, known: Facts, agreed: Contract) -> Any:
    found = outcome(rules.load_rule(code), known, agreed)
    if isinstance(found, UnknownFactError):
        raise AssertionError(f"{code} cannot see {found}")
    return found


# -- functions ----------------------------------------------------------------------------------------


def function(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def argument(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("platform:"):
        return get_platform(value.partition(":")[2])
    if isinstance(value, str) and value.startswith("contract:"):
        return contract(value.partition(":")[2])
    return frozen(value)


def called(path: str, case: dict[str, Any]) -> Any:
    named = {name: argument(value) for name, value in case.get("with", {}).items()}
    return function(path)(*[argument(value) for value in case["call"]], **named)


def gives(result: Any, wanted: Any) -> bool:
    """Whether a result is what a case says: of a noun its name, of a choice with a reason the choice."""
    if isinstance(wanted, str) and wanted != ABSENT:
        chosen = result[0] if isinstance(result, tuple) else getattr(result, "name", result)
        return chosen == wanted
    return _plain(result) == frozen(wanted)


def _plain(result: Any) -> Any:
    if isinstance(result, dict):
        return {key: _plain(value) for key, value in result.items()}
    return tuple(result) if isinstance(result, list) else result


def has(result: Any, wanted: dict[str, Any]) -> bool:
    """Whether a mapping or a noun has these fields with these values."""
    pick = result.get if isinstance(result, dict) else lambda key: getattr(result, key)
    return all(pick(key) == frozen(value) for key, value in wanted.items())
