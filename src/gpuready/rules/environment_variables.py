"""The environment variables a job would inherit, and what a contract says about them."""

from __future__ import annotations

from gpuready.contracts import when as conditions
from gpuready.model import Contract, ContractVariable, Facts
from gpuready.rules import contract_needs

READS = ("env.*", *contract_needs.READS)
MAX_DIGITS = 19


def environment_unknown(facts: Facts) -> bool:
    """Return whether the environment was not probed: a what-if states none, so nothing is wrong with it."""
    return "env.names" not in facts


def read_variable(facts: Facts, name: str) -> str | None:
    """Return the stripped value of a variable; None if it is unset or empty."""
    raw = facts.value(f"env.{name}")
    return str(raw).strip() or None if raw is not None else None


def parse_integer(text: str | None) -> int | None:
    """Parse an integer, possibly negative; None for anything else, or more digits than a count has."""
    digits = (text or "").removeprefix("-")
    return int(text or "") if digits.isdecimal() and len(digits) < MAX_DIGITS else None


def is_switch_on(facts: Facts, name: str) -> bool:
    """Return whether a numeric switch is on, as NCCL and CUDA read it: any number but 0."""
    return parse_integer(read_variable(facts, name)) not in (None, 0)


def quote_value(text: str, most: int = 40) -> str:
    """Quote a value for a sentence; shorten a long one."""
    return f"'{text}'" if len(text) <= most else f"'{text[:most]}…'"


def variables_in_force(facts: Facts, contract: Contract) -> list[ContractVariable]:
    """Return the variables of a contract whose condition is known to hold."""
    return [variable for variable in contract.variables if conditions.certainly_applies(variable.when, facts)]
