"""The environment variables a job would inherit, and what a contract says about them."""

from __future__ import annotations

from gpuready.contracts import when as conditions
from gpuready.model import Unknown
from gpuready.rules import needs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Variable

READS = ("env.*", *needs.READS)
MOST_DIGITS = 19


def unseen(facts: Facts) -> bool:
    """Return whether the environment was not probed: a what-if states none, so nothing is wrong with it."""
    return "env.names" not in facts


def value(facts: Facts, name: str) -> str | None:
    """Return the stripped value of a variable; None if it is unset or empty."""
    found = facts.value(f"env.{name}")
    return str(found).strip() or None if found is not None else None


def number(text: str | None) -> int | None:
    """Parse an integer, possibly negative; None for anything else, or more digits than a count has."""
    digits = (text or "").removeprefix("-")
    return int(text or "") if digits.isdecimal() and len(digits) < MOST_DIGITS else None


def switched_on(facts: Facts, name: str) -> bool:
    """Return whether a numeric switch is on, as NCCL and CUDA read it: any number but 0."""
    return number(value(facts, name)) not in (None, 0)


def quoted(text: str, most: int = 40) -> str:
    """Quote a value for a sentence; shorten a long one."""
    return f"'{text}'" if len(text) <= most else f"'{text[:most]}…'"


def in_force(facts: Facts, contract: Contract) -> list[Variable]:
    """Return the variables of a contract whose condition is known to hold."""
    return [variable for variable in contract.variables if _applies(facts, variable)]


def _applies(facts: Facts, variable: Variable) -> bool:
    try:
        return conditions.applies(variable.when, facts)
    except Unknown:
        return False
