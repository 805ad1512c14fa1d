"""Numbers for people. Everywhere else values are bytes and seconds."""

from collections.abc import Iterable
from typing import Any

from gpuready.model import NOT_STATED, Fact
from gpuready.model.facts import UNSTATED_TEXT

_BINARY_UNITS = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
_MAX_LIST_ITEMS = 8
"""Further list members are only counted."""


def format_bytes(count: int) -> str:
    """Binary units: ``64 MiB``, ``79.6 GiB``."""
    for unit, scale in _BINARY_UNITS:
        # From 1023.5 of a unit on, rounding would print 1024: use the next unit.
        if count >= scale - scale // 2048:
            return f"{_format_three_digits(count / scale)} {unit}"
    return f"{count} B"


def format_nominal_memory(count: int) -> str:
    """Memory as vendors state it: GiB rounded up, labelled GB."""
    gib = -(-count // 2**30)
    return f"{gib / 1024:.1f} TB" if gib >= 1024 else f"{gib} GB"


def format_seconds(count: float, *, exact: bool = False) -> str:
    """``0.1s``, ``42s``, ``3m 05s``; exact: ``83 ms``."""
    if exact and count < 1:
        return f"{count * 1000:.0f} ms"
    if count < 9.95:
        return f"{count:.1f}s"
    whole = round(count)
    return f"{whole}s" if whole < 120 else f"{whole // 60}m {whole % 60:02d}s"


def format_count(number: int, word: str) -> str:
    """``1 rule``, ``2 rules``."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def format_fact_value(fact: Fact) -> str:
    """The value of a fact in words, including absent, unknown and not given."""
    if fact.gap == NOT_STATED:
        return UNSTATED_TEXT
    return "unknown" if fact.gap else format_any_value(fact.value, fact.key)


_BYTE_FACTS = {
    "gpu.memory", "gpu.free", "memory.total", "memory.available", "memory.limit", "disk.total",
    "disk.free", "system.shm", "system.shm_free", "limit.memlock", "limit.stack", "tmp.free", "python.disk_free",
}  # fmt: skip
"""Facts measured in bytes. Renderers may not import the catalogue; a test keeps the two equal."""

_SIZE_FIELDS = {"used", "needs", "has", "size", "usual"}
"""Fields of tables that are bytes."""


def format_any_value(value: Any, key: str = "", depth: int = 0) -> str:
    """Any value in words. The key determines the unit."""
    if value is None:
        return "absent"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return _format_number(value, key)
    if isinstance(value, (dict, list, tuple)) and depth > 3:
        return "more inside"
    if isinstance(value, dict):
        return _format_table_row(value, depth)
    if isinstance(value, (list, tuple)):
        rows = group_repeated([format_any_value(item, key, depth + 1) for item in value])
        return _join_limited(rows, "; " if any(isinstance(item, dict) for item in value) else ", ")
    return str(value) or "empty"


def _format_table_row(row: dict[Any, Any], depth: int) -> str:
    """``gpu 0, used 39 GiB``; a row of rows is ``lo: up true; eth0: up false``. Absent fields are left out."""
    filled = {str(name): field for name, field in row.items() if field is not None}
    nested = any(isinstance(field, dict) for field in filled.values())
    cells = [
        f"{name}{':' if nested else ''} {format_any_value(field, _table_field_key(name, field), depth + 1)}"
        for name, field in filled.items()
    ]
    return _join_limited(cells, "; " if nested else ", ")


def _table_field_key(name: str, value: Any) -> str:
    """The key that has the unit of a field: a large number under one of these names is a size."""
    is_size = name in _SIZE_FIELDS and is_byte_count(value) and value >= 2**20
    return "gpu.memory" if is_size else ""


def is_byte_count(value: Any) -> bool:
    """Whether a value can be a byte count: a recording can contain anything."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _format_number(value: float, key: str) -> str:
    if key in _BYTE_FACTS and is_byte_count(value):
        return format_bytes(int(value))
    if value == -1 and (key in _BYTE_FACTS or key.startswith("limit.")):
        return "no limit"
    return f"{value:.4g}" if isinstance(value, float) else str(value) if abs(value) < 10**30 else "too large"


def group_repeated(names: Iterable[str]) -> list[str]:
    """``[a, a, b]`` -> ``[2 x a, b]``, in order of first appearance."""
    return [name if count == 1 else f"{count} x {name}" for name, count in count_each(names).items()]


def count_words(words: Iterable[str]) -> str:
    """``[passed, passed, failed]`` -> ``2 passed, 1 failed``, in order of first appearance."""
    return ", ".join(f"{count} {word}" for word, count in count_each(words).items())


def count_each(words: Iterable[str]) -> dict[str, int]:
    """How often each occurs, in order of first appearance."""
    counts: dict[str, int] = {}
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    return counts


def _join_limited(items: list[str], separator: str = ", ") -> str:
    if not items:
        return "none"
    if len(items) <= _MAX_LIST_ITEMS:
        return separator.join(items)
    return separator.join(items[:_MAX_LIST_ITEMS]) + f" and {len(items) - _MAX_LIST_ITEMS} more"


def _format_three_digits(value: float) -> str:
    return f"{value:.3g}" if value < 999.5 else f"{value:.0f}"


GIB = 1 << 30
FIT_VERDICT_MARKS = {"fits": "ok", "does not fit": "error", "undecided": "undecided"}


def format_gib(count: int) -> str:
    """Always GiB, so that sizes compare at a glance."""
    return f"{count / GIB:.2f} GiB" if count < 10 * GIB else f"{count / GIB:.1f} GiB"


def format_gib_range(low: int, high: int) -> str:
    first, last = format_gib(low), format_gib(high)
    return first if first == last else f"{first.removesuffix(' GiB')} to {last}"
