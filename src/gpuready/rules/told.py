"""Findings of rules that only a log can trigger: their matched patterns, and the text of the cause catalog."""

from __future__ import annotations

from gpuready.catalog import causes
from gpuready.model import Finding, Need, Step

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuready.model import Contract, Facts

READS = ("log.signs",)


def examples(code: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a log with a match of this code, and one without any."""
    row = {
        "code": code,
        "cause": "",
        "rank": 0,
        "host": "",
        "source": "train.log",
        "line": 1,
        "text": "",
        "captures": {},
    }
    return {"log.signs": (row,)}, {"log.signs": ()}


def finding(facts: Facts, contract: Contract, code: str, severity: str, slug: str = "") -> Finding | None:
    """Return the catalog's text for this cause, if the log has a match of it."""
    if code[:3] in ("DRV", "MEM", "CAP") and "cuda" not in contract.platforms:
        return None
    seen = [row for row in facts.value("log.signs") or () if row.get("code") == code]
    if not seen:
        return None
    cause = causes.of(code, slug or str(seen[0].get("cause", "")))
    if cause is None:
        return None
    captures = seen[0].get("captures") or {}
    return Finding(
        code,
        severity,
        causes.filled(cause["says"], captures),
        found=(facts.fact("log.signs"),),
        needs=(Need("log.signs", f"none of {code}", cite=cause["source"]),),
        so=causes.filled(cause["so"], captures),
        fix=tuple(steps(cause, captures)),
    )


def steps(cause: dict[str, Any], captures: dict[str, str]) -> list[Step]:
    return [
        Step(
            does,
            tuple(row.get("run", ())),
            row.get("safety", "manual"),
            note=row.get("note", ""),
        )
        for row in cause["fix"]
        if (does := causes.filled(row["does"], captures))
    ]
