"""The environment that a job would inherit: what is set in it, and what a contract says of it."""

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
    """Whether nobody looked at the environment: a what-if states none, and then nothing is wrong with it."""
    return "env.names" not in facts


def value(facts: Facts, name: str) -> str | None:
    """What a variable is set to, without the blanks around it; None where it is unset or empty."""
    found = facts.value(f"env.{name}")
    return str(found).strip() or None if found is not None else None


def number(text: str | None) -> int | None:
    """A whole number, perhaps with a minus; None for anything else, and for more digits than a count has."""
    digits = (text or "").removeprefix("-")
    return int(text or "") if digits.isdecimal() and len(digits) < MOST_DIGITS else None


def switched_on(facts: Facts, name: str) -> bool:
    """Whether a switch that takes a number is on, as NCCL and CUDA read it: anything but 0."""
    return number(value(facts, name)) not in (None, 0)


def quoted(text: str, most: int = 40) -> str:
    """A value for a sentence; of a long one the beginning."""
    return f"'{text}'" if len(text) <= most else f"'{text[:most]}…'"


def in_force(facts: Facts, contract: Contract) -> list[Variable]:
    """The variables of a contract whose condition is seen to hold."""
    return [variable for variable in contract.variables if _applies(facts, variable)]


def _applies(facts: Facts, variable: Variable) -> bool:
    try:
        return conditions.applies(variable.when, facts)
    except Unknown:
        return False
