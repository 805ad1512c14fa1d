"""Sizes and marks that the screens of ``gpuready fit`` share."""

from __future__ import annotations

GIB = 1 << 30
FIT_VERDICT_MARKS = {"fits": "ok", "does not fit": "error", "undecided": "undecided"}


def format_gib(count: int) -> str:
    """Always GiB, so that sizes compare at a glance."""
    return f"{count / GIB:.2f} GiB" if count < 10 * GIB else f"{count / GIB:.1f} GiB"


def format_gib_range(low: int, high: int) -> str:
    first, last = format_gib(low), format_gib(high)
    return first if first == last else f"{first.removesuffix(' GiB')} to {last}"
