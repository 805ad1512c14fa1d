"""Whether a measured number is what the device should reach. Pure: all input is in the row and the facts.

A row of ``bench.measures`` has: name, gpu (its index, None off a GPU), raw (measured, absent, failed …), why, unit,
better, group, value, passes, spread, expected, low, high, spans.
"""

from typing import Any

from gpuready.model import Facts
from gpuready.model.bench import NOISE_LIMIT
from gpuready.rules.slowness_reasons import describe_other_users

MeasureRow = dict[str, Any]


IMPOSSIBLE_RATIO = 1.1
"""A rate above this multiple of the catalog figure cannot be real."""

BANDLESS_GROUPS = ("launch", "eager", "held")
"""Groups that need no band: launches and eager mode depend on the host, and sustained rates repeat what the bursts show."""

FAILED_OUTCOMES = ("failed", "crashed", "hung")


def judge_measure(row: MeasureRow, facts: Facts) -> tuple[str, str]:
    """Return the verdict on one row, and the reason."""
    if row["raw"] != "measured":
        return str(row["raw"]), str(row.get("why", ""))
    why = _why_invalid(row, facts)
    if why:
        return "undecided", why
    if is_below_band(row):
        return "slow", _describe_shortfall(row)
    if is_noisy(row):
        return "noisy", f"two passes differ by {row['spread']:.1%}; {NOISE_LIMIT:.0%} is steady"
    if row.get("low") is not None:
        return "as-expected", ""
    if row.get("gpu") is None or row.get("group") in BANDLESS_GROUPS:
        return "measured", ""
    return "undecided", "no record of this GPU: not judged"


def is_below_band(row: MeasureRow) -> bool:
    """Return whether every pass is below the band; for times, above it."""
    low, high, passes = row.get("low"), row.get("high"), row.get("passes") or ()
    if low is None or high is None or not passes:
        return False
    return bool(min(passes) > high if row.get("better") == "less" else max(passes) < low)


def is_noisy(row: MeasureRow) -> bool:
    """Return whether the passes differ; those of eager mode are of different cores, and their range is the answer."""
    return row.get("group") != "eager" and row.get("spread") is not None and row["spread"] > NOISE_LIMIT


def is_inside_band(row: MeasureRow) -> bool:
    """Return whether even the worst pass is inside the band, however much the passes differ."""
    low, passes = row.get("low"), row.get("passes") or ()
    return low is not None and bool(passes) and row.get("better") != "less" and min(passes) >= low


def _why_invalid(row: MeasureRow, facts: Facts) -> str:
    """Return why the number says nothing about the GPU: other processes used it, or it is impossible."""
    expected, value = row.get("expected"), row.get("value")
    if expected and value and row.get("better") != "less" and value > IMPOSSIBLE_RATIO * expected:
        return "more than this GPU's peak in the catalogue: the clock or the catalogue is wrong"
    if row.get("gpu") is None or not (is_below_band(row) or is_noisy(row)):
        return ""
    users = describe_other_users(facts, row["gpu"])
    return f"other processes used the GPU ({users}): the measurement is not valid" if users else ""


def _describe_shortfall(row: MeasureRow) -> str:
    best = max(row["passes"]) if row.get("better") != "less" else min(row["passes"])
    edge = row["low"] if row.get("better") != "less" else row["high"]
    share = best / edge
    return f"{abs(1 - share):.0%} {'below' if row.get('better') != 'less' else 'above'} the expected range of this GPU"
