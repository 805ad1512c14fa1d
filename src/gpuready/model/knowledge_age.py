"""How old gpuready's knowledge is, and the sentence that says when it is too old."""

from __future__ import annotations

import time

TRUSTED_DAYS = 180
"""Age in days from which an answer mentions it."""


def days_since(day: str, now: float) -> int:
    """Return how many days ago a day (``2026-11-15``) was; 0 where the clock is wrong."""
    year, month, number = map(int, day.split("-"))
    return max(0, int((now - time.mktime((year, month, number, 0, 0, 0, 0, 0, -1))) // 86400))


def old_knowledge_note(days: int) -> str:
    """Return what to do about old knowledge; empty where it is not old."""
    if days <= TRUSTED_DAYS:
        return ""
    return (
        f"gpuready's knowledge is {days} days old: newer releases are not in it; upgrade gpuready, or give a newer "
        "file with --knowledge"
    )
