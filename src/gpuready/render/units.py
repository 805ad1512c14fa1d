"""Numbers for people. Everywhere else values are bytes and seconds."""

from __future__ import annotations

from gpuready.model import NOT_STATED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuready.model import Fact

_BINARY = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
_SHOWN = 8
"""Further list members are only counted."""


def size(count: int) -> str:
    """Binary units: ``64 MiB``, ``79.6 GiB``."""
    for unit, scale in _BINARY:
        # From 1023.5 of a unit on, rounding would print 1024: use the next unit.
        if count >= scale - scale // 2048:
            return f"{_three_digits(count / scale)} {unit}"
    return f"{count} B"


def memory(count: int) -> str:
    """Memory as vendors state it: GiB rounded up, labelled GB."""
    gib = -(-count // 2**30)
    return f"{gib / 1024:.1f} TB" if gib >= 1024 else f"{gib} GB"


def memories(counts: tuple[int, ...]) -> str:
    """The total of several GPUs: each rounded up to its nominal size, then added."""
    return memory(sum(-(-count // 2**30) for count in counts) * 2**30)


def seconds(count: float, *, exact: bool = False) -> str:
    """``0.1s``, ``42s``, ``3m 05s``; exact: ``83 ms``."""
    if exact and count < 1:
        return f"{count * 1000:.0f} ms"
    if count < 9.95:
        return f"{count:.1f}s"
    whole = round(count)
    return f"{whole}s" if whole < 120 else f"{whole // 60}m {whole % 60:02d}s"


def counted(number: int, noun: str) -> str:
    """``1 rule``, ``2 rules``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def value(fact: Fact) -> str:
    """The value of a fact in words, including absent, unknown and not stated."""
    if fact.gap == NOT_STATED:
        return NOT_STATED
    return "unknown" if fact.gap else say(fact.value, fact.key)


_BYTES = {
    "gpu.memory", "gpu.free", "memory.total", "memory.available", "memory.limit", "disk.total",
    "disk.free", "system.shm", "system.shm_free", "limit.memlock", "limit.stack", "tmp.free", "python.disk_free",
}  # fmt: skip
"""Facts measured in bytes. Renderers may not import the catalogue; a test keeps the two equal."""


def say(value: Any, key: str = "", depth: int = 0) -> str:
    """Any value in words. The key determines the unit."""
    if value is None:
        return "absent"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return _number(value, key)
    if isinstance(value, (dict, list, tuple)) and depth > 3:
        return "more inside"
    if isinstance(value, dict):
        return _listed([f"{k}={say(v, '', depth + 1)}" for k, v in value.items()])
    if isinstance(value, (list, tuple)):
        return _listed(grouped([say(item, key, depth + 1) for item in value]))
    return str(value) or "empty"


def countable(value: Any) -> bool:
    """Whether a value can be a byte count: a recording can contain anything."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def parameters(count: Any) -> str:
    """``7000000000`` -> ``7B``"""
    if not countable(count):
        return say(count)
    for unit, scale in (("T", 10**12), ("B", 10**9), ("M", 10**6)):
        if count >= scale:
            return f"{_three_digits(count / scale)}{unit}"
    return str(count)


def _number(value: float, key: str) -> str:
    if key in _BYTES and countable(value):
        return size(int(value))
    if value == -1 and (key in _BYTES or key.startswith("limit.")):
        return "no limit"
    return f"{value:.4g}" if isinstance(value, float) else str(value) if abs(value) < 10**30 else "too large"


def grouped(names: list[str]) -> list[str]:
    """``[a, a, b]`` -> ``[2 x a, b]``, in order of first appearance."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return [name if count == 1 else f"{count} x {name}" for name, count in counts.items()]


def _listed(items: list[str]) -> str:
    if not items:
        return "none"
    if len(items) <= _SHOWN:
        return ", ".join(items)
    return ", ".join(items[:_SHOWN]) + f" and {len(items) - _SHOWN} more"


def _three_digits(value: float) -> str:
    return f"{value:.3g}" if value < 999.5 else f"{value:.0f}"
