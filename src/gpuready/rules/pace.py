"""Whether a measured number is what the device should reach. Pure: all input is in the row and the facts.

A row of ``bench.measures`` has: name, gpu (its index, None off a GPU), raw (measured, absent, failed …), why, unit,
better, group, value, passes, spread, expected, low, high, spans.
"""

from __future__ import annotations

from gpuready.benched import STEADY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuready.model import Facts

    Row = dict[str, Any]

IMPOSSIBLE = 1.1
"""A rate above this multiple of the catalog figure cannot be real."""

UNJUDGED = ("launch", "held")
"""Groups that need no band: launches depend on the host, and sustained rates repeat what the bursts show."""

BROKEN = ("failed", "crashed", "hung")


def verdict(row: Row, facts: Facts) -> tuple[str, str]:
    """Return the verdict on one row, and the reason."""
    if row["raw"] != "measured":
        return str(row["raw"]), str(row.get("why", ""))
    why = _invalid(row, facts)
    if why:
        return "undecided", why
    if slow(row):
        return "slow", _below(row)
    if noisy(row):
        return "noisy", f"two passes differ by {row['spread']:.1%}; {STEADY:.0%} is steady"
    if row.get("low") is not None:
        return "as-expected", ""
    if row.get("gpu") is None or row.get("group") in UNJUDGED:
        return "measured", ""
    return "undecided", "no record of this GPU: the number is shown, nothing is judged"


def slow(row: Row) -> bool:
    """Return whether every pass is below the band; for times, above it."""
    low, high, passes = row.get("low"), row.get("high"), row.get("passes") or ()
    if low is None or high is None or not passes:
        return False
    return bool(min(passes) > high if row.get("better") == "less" else max(passes) < low)


def noisy(row: Row) -> bool:
    return row.get("spread") is not None and row["spread"] > STEADY


def safe(row: Row) -> bool:
    """Return whether even the worst pass is inside the band, however much the passes differ."""
    low, passes = row.get("low"), row.get("passes") or ()
    return low is not None and bool(passes) and row.get("better") != "less" and min(passes) >= low


def _invalid(row: Row, facts: Facts) -> str:
    """Return why the number says nothing about the GPU: other processes used it, or it is impossible."""
    expected, value = row.get("expected"), row.get("value")
    if expected and value and row.get("better") != "less" and value > IMPOSSIBLE * expected:
        return "more than this GPU can do by the catalogue: the clock, or the catalogue, is wrong"
    if row.get("gpu") is None or not (slow(row) or noisy(row)):
        return ""
    from gpuready.rules.slowness import others

    held = others(facts, row["gpu"])
    return f"the GPU was busy with other work ({held}): the measurement is not valid" if held else ""


def _below(row: Row) -> str:
    best = max(row["passes"]) if row.get("better") != "less" else min(row["passes"])
    edge = row["low"] if row.get("better") != "less" else row["high"]
    share = best / edge
    return f"{abs(1 - share):.0%} {'below' if row.get('better') != 'less' else 'above'} the band of this GPU"
