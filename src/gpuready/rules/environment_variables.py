"""The environment variables a job would inherit, what a contract says about them, and torch's allocator settings."""

import re

from gpuready.catalog import torch as catalogue
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


ALLOCATOR_READS = ("env.*", "package.torch")
OLD_VARIABLE, NEW_VARIABLE = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"


def read_allocator_variables(facts: Facts) -> tuple[str | None, str | None, str] | None:
    """Return the old and the new variable, and the version of torch; None if neither is set or there is no torch."""
    if environment_unknown(facts):
        return None
    old, new = (read_variable(facts, name) for name in (OLD_VARIABLE, NEW_VARIABLE))
    if not (old or new):
        return None
    version = facts.value("package.torch")
    return None if version is None else (old, new, str(version))


def effective_allocator_setting(facts: Facts) -> tuple[str, str] | None:
    """Return the variable that the installed torch reads, and its value; None if neither is set.

    From 2.9 on the new name is read, with the old one as a fallback; before, only the old one.
    """
    found = read_allocator_variables(facts)
    if found is None:
        return None
    old, new, version = found
    if catalogue.allocator_variable(version) == NEW_VARIABLE and new:
        return NEW_VARIABLE, new
    return (OLD_VARIABLE, old) if old else None


def parse_allocator_settings(text: str) -> list[tuple[str, str | None]]:
    """Split ``a:1,b:[256:1,512:2]`` into options and values; the value is None if an option has none."""
    plain = re.sub(r"\[[^\]]*(?:\]|$)", lambda inside: inside[0].replace(",", "\0"), "".join(text.split()))
    parts = [part.replace("\0", ",") for part in plain.split(",")]
    # torch accepts a comma after the last option.
    pairs = [part.partition(":") for part in (parts if parts[-1] else parts[:-1])]
    return [(name, value if colon else None) for name, colon, value in pairs]


def uses_expandable_segments(text: str) -> bool:
    return ("expandable_segments", "True") in parse_allocator_settings(text)
