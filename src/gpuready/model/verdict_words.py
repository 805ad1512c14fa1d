"""The words for a verdict on every screen. JSON keeps the values on the left."""

from __future__ import annotations

VERDICT_WORDS = {"ready": "ready", "clear": "no problems found", "not-ready": "not ready", "undecided": "can't tell"}

UNSTATED_TEXT = "not given"
"""A value that a what-if machine was not given."""


def verdict_words(verdict: str) -> str:
    """``clear`` -> ``no problems found``; a verdict of another kind of result without its hyphens."""
    return VERDICT_WORDS.get(verdict) or verdict.replace("-", " ")
