"""Judge a contract file: its format, citations, rows that contradict each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpuready import rules
from gpuready.contracts.contract_file import read_contract_data
from gpuready.contracts.pin_conflicts import can_hold_together
from gpuready.contracts.toml import TABLES, BadContract, read_toml
from gpuready.contracts.validate import find_problems
from gpuready.model import Contract
from gpuready.model.contract import ContractCheck
from gpuready.system import file_contents
from gpuready.workflow.refusal import Refused

_CITED_BY = {"steps": "note"}
_SUBJECTS = {"capabilities": ("name",), "variables": ("name", "when")}


def check_contract_file(path: str) -> ContractCheck:
    """Return the contract of a file, and every fault in one sentence."""
    if file_contents.file_size(path) is None:
        raise Refused(f"{path} is not a file: name a contract in TOML")
    name = path.rpartition("/")[2]
    try:
        own = read_toml(path)
        if problems := find_problems(own, name):
            return ContractCheck(path, None, tuple(problems))
        contract = Contract.from_json(read_contract_data(path))
    except BadContract as error:
        return ContractCheck(path, None, (str(error),))
    faults = [*_missing_citations(own), *_repeated_subjects(own), *_contradictions(contract), *_unknown_codes(own)]
    return ContractCheck(path, contract, tuple(f"{name}{fault}" for fault in faults))


def _numbered_rows(data: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for table in TABLES:
        for number, row in enumerate(data.get(table, []), 1):
            yield table, f", [[{table}]] {number}", row


def _missing_citations(data: dict[str, Any]) -> Iterator[str]:
    if not data.get("origin") and not data.get("extends"):
        yield ": origin is missing: name what was read, and when"
    for table, where, row in _numbered_rows(data):
        key = _CITED_BY.get(table, "cite")
        if not row.get(key):
            yield f'{where} has no source: add {key} = "FILE:LINE"'


def _repeated_subjects(data: dict[str, Any]) -> Iterator[str]:
    seen: set[tuple[str, ...]] = set()
    for table, where, row in _numbered_rows(data):
        if table in _SUBJECTS:
            subject = (table, *(row.get(field, "") for field in _SUBJECTS[table]))
            if subject in seen:
                yield f"{where} names {row['name']} again: keep one row"
            seen.add(subject)


def _contradictions(contract: Contract) -> Iterator[str]:
    """Required needs of one key and one condition that no version meets together."""
    required = [need for need in contract.needs if need.level == "required"]
    for at, a in enumerate(required):
        for b in required[at + 1 :]:
            if (a.key, a.when) == (b.key, b.when) and not _hold_together(a.key, a.want, b.want):
                yield f": {a.key} is required as {a.want} ({a.cite}) and as {b.want} ({b.cite}), which no version meets"


def _hold_together(key: str, a: str, b: str) -> bool:
    is_version = key.startswith("package.") or key == "python.version"
    return a == b or not is_version or can_hold_together(key.removeprefix("package."), a, b)


def _unknown_codes(data: dict[str, Any]) -> Iterator[str]:
    known = set(rules.list_codes())
    for _, where, row in _numbered_rows(data):
        if row.get("code") and row["code"] not in known:
            yield f"{where} has the code {row['code']}, which no rule has"
