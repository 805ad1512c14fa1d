"""The settings of torch's CUDA allocator: which variable applies, and what it contains."""

from __future__ import annotations

from gpuready.catalog import torch as catalogue
from gpuready.model import Facts
from gpuready.rules import environment_variables

READS = ("env.*", "package.torch")
OLD_VARIABLE, NEW_VARIABLE = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"


def read_allocator_variables(facts: Facts) -> tuple[str | None, str | None, str] | None:
    """Return the old and the new variable, and the version of torch; None if neither is set or there is no torch."""
    if environment_variables.environment_unknown(facts):
        return None
    old, new = (environment_variables.read_variable(facts, name) for name in (OLD_VARIABLE, NEW_VARIABLE))
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
    parts, depth, start = [], 0, 0
    plain = "".join(text.split())
    for at, letter in enumerate(plain):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth <= 0:
            parts.append(plain[start:at])
            start = at + 1
    # torch accepts a comma after the last option.
    rest = plain[start:]
    pairs = [part.partition(":") for part in ([*parts, rest] if rest else parts)]
    return [(name, value if colon else None) for name, colon, value in pairs]


def uses_expandable_segments(text: str) -> bool:
    return ("expandable_segments", "True") in parse_allocator_settings(text)
