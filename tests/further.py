"""How far a test looks: FUZZ=1 has it look at everything, an ordinary run at a part, and always the same."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from typing import TypeVar

FURTHER = bool(os.environ.get("FUZZ"))
T = TypeVar("T")


def some(every: Iterable[T], one_in: int) -> list[T]:
    """One in so many of them, taken by chance; all with FUZZ=1."""
    rows = list(every)
    return rows if FURTHER else random.Random(7).sample(rows, len(rows) // one_in)
