"""Read and validate a lock file. Anybody may have written it, so every row is checked."""

import json

from gpuready.catalog import indexes
from gpuready.model import SCHEMA, versions
from gpuready.model.plan import LockedPackage, Plan
from gpuready.model.validation import parse_record

LOCK_KIND = "lock"
FIND_LINKS = "find-links"
OWN_INDEX = "own:"
"""What the name of an index that the user configured begins with; its host follows."""
_HOST_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-.:[]")
_HEX_DIGITS = frozenset("0123456789abcdef")
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")


def read_lock(text: str, path: str) -> Plan:
    """Return the plan in a lock file; ValueError, in a sentence, if it is not a lock or fails a check."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"{path} is not a lock of gpuready: it is not JSON") from None
    if not isinstance(data, dict) or data.get("kind") != LOCK_KIND:
        raise ValueError(f"{path} is not a lock of gpuready: make one with gpuready plan FRAMEWORK -o {path}")
    if data.get("schema") != SCHEMA:
        raise ValueError(
            f"{path} has schema {data.get('schema')!r:.20}, and this gpuready reads {SCHEMA}: make it again"
        )
    try:
        plan = parse_record(Plan, data)
    except ValueError as bad:
        raise ValueError(f"{path} is damaged: {bad}") from None
    fault = _find_lock_fault(plan)
    if fault:
        raise ValueError(f"{path} cannot be trusted: {fault}; make it again with gpuready plan")
    return plan


def _find_lock_fault(plan: Plan) -> str:
    """Return the first fault of a lock, or an empty string."""
    for field in ("framework", "version", "variant", "python", "torch", "index", "platform"):
        if not _is_safe_text(getattr(plan, field)):
            return f"its {field} is {_quote_value(getattr(plan, field))}"
    if plan.verdict != "plan" or not plan.lock:
        return "it locks no package"
    if not versions.is_version(plan.python):
        return f"its python is {_quote_value(plan.python)}"
    if plan.index not in ("", indexes.DEFAULT_INDEX, *indexes.list_indexes()):
        return f"the catalogue knows no index {_quote_value(plan.index)}"
    seen: set[str] = set()
    for row in plan.lock:
        fault = _find_row_fault(row)
        if fault or row.name in seen:
            return fault or f"{row.name} is there twice"
        seen.add(row.name)
    return _find_torch_mismatch(plan)


def _find_torch_mismatch(plan: Plan) -> str:
    locked_version = next((row.version for row in plan.lock if row.name == "torch"), "")
    if not plan.torch or not locked_version or versions.compare_versions(locked_version, plan.torch) == 0:
        return ""
    return f"it is for torch {plan.torch}, and locks torch {locked_version}"


def _find_row_fault(row: LockedPackage) -> str:
    name = row.name
    if not name or set(name) - _NAME_CHARACTERS or name[0] == "-" or name[-1] == "-":
        return f"{_quote_value(name)} is not a name of a package"
    if row.origin:
        return f"{name} comes from {_quote_value(row.origin)}, not from an index"
    if not versions.is_version(row.version) or set(row.version) & set(" \t\n;@/-"):
        return f"{name} has the version {_quote_value(row.version)}"
    if not row.hashes or not all(_is_sha256(digest) for digest in row.hashes):
        return f"{name} {row.version} has no sha256 hash, or an invalid one"
    if row.index not in ("", FIND_LINKS, *indexes.list_indexes()) and not _is_own_index(row.index):
        return f"{name} comes from {_quote_value(row.index)}, which is not an index of the catalogue"
    return ""


def _is_own_index(index: str) -> bool:
    """Whether it names an index of whoever planned: pip's by number, uv's by host, which is shown and never asked."""
    if index.startswith("pip-") and index[4:].isdigit():
        return True
    host = index.removeprefix(OWN_INDEX)
    return host != index and 0 < len(host) < 260 and not set(host.lower()) - _HOST_CHARACTERS


def _is_sha256(text: object) -> bool:
    if not isinstance(text, str) or not text.startswith("sha256:"):
        return False
    return len(text) == 71 and not set(text[7:]) - _HEX_DIGITS


def _is_safe_text(text: str) -> bool:
    return text.isprintable() and not text.startswith("-") and len(text) < 200


def _quote_value(value: object) -> str:
    return repr(value)[:60]
