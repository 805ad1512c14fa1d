"""Rules that only a log can trigger: data of a TOML file, and the text of the cause catalog."""

import re
from collections.abc import Mapping
from typing import Any

from gpuready.catalog import causes, load_catalog
from gpuready.model import Contract, Facts, Finding, FixStep, Requirement


class LogRule:
    """One such rule, with the attributes that the module of another rule has."""

    READS: tuple[str, ...] = ("log.signs",)

    def __init__(self, code: str):
        row = load_log_rules()[code]
        self.CODE = code
        self.SEVERITY = str(row["severity"])
        self.__doc__: str | None = f"{row['title']}\n\n{row['text']}"
        self.BROKEN: Mapping[str, Any] = {"log.signs": ({"code": code, "source": "train.log", "line": 1},)}
        self.HEALTHY: Mapping[str, Any] = {"log.signs": ()}

    def judge(self, facts: Facts, contract: Contract) -> Finding | None:
        return log_finding(facts, contract, self.CODE, self.SEVERITY)


def load_log_rules() -> dict[str, Any]:
    """Return name, severity, title and text of these rules, by their codes."""
    return load_catalog("log_rules")


def log_finding(facts: Facts, contract: Contract, code: str, severity: str, slug: str = "") -> Finding | None:
    """Return the catalog's text for this cause, if the log has a match of it."""
    if code[:3] in ("DRV", "MEM", "CAP") and "cuda" not in contract.platforms:
        return None
    matches = [row for row in facts.value("log.signs") or () if row.get("code") == code]
    if not matches:
        return None
    cause = causes.find_cause_for_code(code, slug or str(matches[0].get("cause", "")))
    if cause is None:
        return None
    captures = matches[0].get("captures") or {}
    return Finding(
        code,
        severity,
        causes.fill_captures(cause["says"], captures),
        found=(facts.fact("log.signs"),),
        needs=(Requirement("log.signs", f"none of {code}", cite=cause["source"]),),
        so=causes.fill_captures(cause["so"], captures),
        fix=tuple(cause_fix_steps(cause, captures)),
    )


def cause_fix_steps(cause: dict[str, Any], captures: dict[str, str]) -> list[FixStep]:
    filled = (
        FixStep(
            causes.fill_captures(row["does"], captures),
            tuple(causes.fill_captures(word, captures) for word in row.get("run", ())),
            row.get("safety", "manual"),
            note=row.get("note", ""),
        )
        for row in cause["fix"]
    )
    return [step for step in filled if step.does and not re.search(r"\{[a-z_]+\}", " ".join((step.does, *step.run)))]
