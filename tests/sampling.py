"""How much a test covers: everything with FUZZ=1, else a sample that is always the same."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from typing import TypeVar

FUZZ = bool(os.environ.get("FUZZ"))
T = TypeVar("T")


def sample_cases(every: Iterable[T], one_in: int) -> list[T]:
    """Return one in ``one_in`` of the cases at random; all of them with FUZZ=1."""
    rows = list(every)
    return rows if FUZZ else random.Random(7).sample(rows, len(rows) // one_in)


def count_draws(most: int) -> int:
    """A third of the draws of a property; all of them with FUZZ=1."""
    return most if FUZZ else most // 3
