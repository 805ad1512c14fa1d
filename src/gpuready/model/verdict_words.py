"""The words for a verdict on every screen. JSON keeps the values on the left."""

from __future__ import annotations

from gpuready.model.facts import NOT_STATED

VERDICT_WORDS = {"ready": "ready", "clear": "no problems found", "not-ready": "not ready", "undecided": "can't tell"}

UNSTATED_TEXT = "not given"
"""A value that a what-if machine was not given."""


def describe_gap(gap: str) -> str:
    """Why a fact is unknown, in words: a what-if machine was not given it, or what the probe says."""
    return UNSTATED_TEXT if gap == NOT_STATED else gap


def verdict_words(verdict: str) -> str:
    """``clear`` -> ``no problems found``; a verdict of another kind of result without its hyphens."""
    return VERDICT_WORDS.get(verdict) or verdict.replace("-", " ")
