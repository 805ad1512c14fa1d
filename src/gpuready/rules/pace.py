"""Whether one measured number is what the device should reach. Pure: everything it needs is in the row and the facts.

A row of ``bench.measures`` has: name, gpu (its index, None off a GPU), raw (measured, absent, failed …), why, unit, better,
group, value, passes, spread, expected, low, high, spans.
"""

from __future__ import annotations

from gpuready.benched import STEADY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuready.model import Facts

    Row = dict[str, Any]

IMPOSSIBLE = 1.1
"""A rate this many times the catalogue's figure is no rate of that GPU."""

UNJUDGED = ("launch", "held")
"""Without a band these leave nothing open: launches are the host's, and what is held says the same as the bursts."""

BROKEN = ("failed", "crashed", "hung")


def verdict(row: Row, facts: Facts) -> tuple[str, str]:
    """The verdict on one row, and why."""
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
    """Whether every pass is below the band; a time is slow above it."""
    low, high, passes = row.get("low"), row.get("high"), row.get("passes") or ()
    if low is None or high is None or not passes:
        return False
    return bool(min(passes) > high if row.get("better") == "less" else max(passes) < low)


def noisy(row: Row) -> bool:
    return row.get("spread") is not None and row["spread"] > STEADY


def safe(row: Row) -> bool:
    """Whether even the worst pass is inside the band, however far the passes lie apart."""
    low, passes = row.get("low"), row.get("passes") or ()
    return low is not None and bool(passes) and row.get("better") != "less" and min(passes) >= low


def _invalid(row: Row, facts: Facts) -> str:
    """Why the number says nothing of the GPU: somebody else was using it, or it cannot be."""
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
