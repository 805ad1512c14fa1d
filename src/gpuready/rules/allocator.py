"""The settings of torch's CUDA allocator: which variable applies, and what it contains."""

from __future__ import annotations

from gpuready.catalog import torch as catalogue
from gpuready.rules import shell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Facts

READS = ("env.*", "package.torch")
OLD, NEW = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"


def effective(facts: Facts) -> tuple[str, str] | None:
    """Return the variable that the installed torch reads, and its value; None if neither is set.

    From 2.9 on the new name is read, with the old one as a fallback; before, only the old one.
    """
    if shell.unseen(facts):
        return None
    old, new = shell.value(facts, OLD), shell.value(facts, NEW)
    if not (old or new):
        return None
    version = facts.value("package.torch")
    if version is None:
        return None
    if catalogue.allocator_variable(str(version)) == NEW and new:
        return NEW, new
    return (OLD, old) if old else None


def settings(text: str) -> list[tuple[str, str | None]]:
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


def expands(text: str) -> bool:
    return ("expandable_segments", "True") in settings(text)
