"""One test for all rows of a table: the rows that fail are all named. A test of its own for each row costs 2 ms, twenty times what most rows take."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def every(
    names: str | tuple[str, ...], rows: Iterable[Any], ids: Any = None
) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """As ``pytest.mark.parametrize``, for a function without fixtures."""
    several = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    rows, alone = list(rows), isinstance(names, str) and len(several) == 1
    assert rows, "a table without rows tests nothing"
    labels = [ids(row) for row in rows] if callable(ids) else list(ids or itertools.repeat("", len(rows)))

    def decorate(test: Callable[..., None]) -> Callable[[], None]:
        def over_all() -> None:
            failed = []
            for row, label in zip(rows, labels, strict=True):
                given = dict(zip(several, (row,) if alone else row, strict=True))
                try:
                    test(**given)
                except (AssertionError, pytest.fail.Exception) as error:
                    failed.append(f"{label or given}: {error}")
                except Exception as error:
                    error.add_note(f"row: {label or given}") if hasattr(error, "add_note") else None
                    raise
            assert not failed, f"{len(failed)} of {len(rows)} rows\n" + "\n".join(failed[:20])

        over_all.__name__, over_all.__doc__, over_all.__module__ = test.__name__, test.__doc__, test.__module__
        return over_all

    return decorate
