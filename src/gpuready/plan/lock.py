"""Read and validate a lock file. Anybody may have written it, so every row is checked."""

from __future__ import annotations

from gpuready import versions
from gpuready.catalog import indexes
from gpuready.held import of
from gpuready.model import SCHEMA
from gpuready.planned import Locked, Plan

KIND = "lock"
FOLDERS = "find-links"
_HEX = frozenset("0123456789abcdef")
_NAME = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")


def read_lock(text: str, path: str) -> Plan:
    """Return the plan in a lock file; ValueError, in a sentence, if it is not a lock or fails a check."""
    import json

    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"{path} is not a lock of gpuready: it is not JSON") from None
    if not isinstance(data, dict) or data.get("kind") != KIND:
        raise ValueError(f"{path} is not a lock of gpuready: make one with gpuready plan FRAMEWORK -o {path}")
    if data.get("schema") != SCHEMA:
        raise ValueError(
            f"{path} has schema {data.get('schema')!r:.20}, and this gpuready reads {SCHEMA}: make it again"
        )
    try:
        plan = of(Plan, data)
    except ValueError as bad:
        raise ValueError(f"{path} is damaged: {bad}") from None
    fault = _fault(plan)
    if fault:
        raise ValueError(f"{path} cannot be trusted: {fault}; make it again with gpuready plan")
    return plan


def _fault(plan: Plan) -> str:
    """Return the first fault of a lock, or an empty string."""
    for field in ("framework", "version", "variant", "python", "torch", "index", "platform"):
        if not _harmless(getattr(plan, field)):
            return f"its {field} is {_shown(getattr(plan, field))}"
    if plan.verdict != "plan" or not plan.lock:
        return "it locks no package"
    if not versions.is_version(plan.python):
        return f"its python is {_shown(plan.python)}"
    if plan.index not in ("", indexes.DEFAULT, *indexes.names()):
        return f"the catalogue knows no index {_shown(plan.index)}"
    seen: set[str] = set()
    for row in plan.lock:
        fault = _row(row)
        if fault or row.name in seen:
            return fault or f"{row.name} is there twice"
        seen.add(row.name)
    return _torch(plan)


def _torch(plan: Plan) -> str:
    found = next((row.version for row in plan.lock if row.name == "torch"), "")
    if not plan.torch or not found or versions.compare(found, plan.torch) == 0:
        return ""
    return f"it is for torch {plan.torch}, and locks torch {found}"


def _row(row: Locked) -> str:
    name = row.name
    if not name or set(name) - _NAME or name[0] == "-" or name[-1] == "-":
        return f"{_shown(name)} is no name of a package"
    if row.origin:
        return f"{name} comes from {_shown(row.origin)}, not from an index"
    if not versions.is_version(row.version) or set(row.version) & set(" \t\n;@/-"):
        return f"{name} has the version {_shown(row.version)}"
    if not row.hashes or not all(_hash(one) for one in row.hashes):
        return f"{name} {row.version} has no sha256 hash, or one that is none"
    if row.index not in ("", FOLDERS, *indexes.names()) and not _pips(row.index):
        return f"{name} comes from {_shown(row.index)}, which is no index that the catalogue knows"
    return ""


def _pips(index: object) -> bool:
    return isinstance(index, str) and index.startswith("pip-") and index[4:].isdigit()


def _hash(text: object) -> bool:
    if not isinstance(text, str) or not text.startswith("sha256:"):
        return False
    return len(text) == 71 and not set(text[7:]) - _HEX


def _harmless(text: str) -> bool:
    return text.isprintable() and not text.startswith("-") and len(text) < 200


def _shown(value: object) -> str:
    return repr(value)[:60]
