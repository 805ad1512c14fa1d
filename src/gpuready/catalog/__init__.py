"""Known data about GPUs, CUDA releases, torch builds, packages, features and facts.

The TOML files beside this module are edited by hand; ``tools/compile_catalog.py`` generates from them the
modules in ``data/`` that are loaded here. Rows are plain dicts with the keys of the TOML; they are shared, so
callers must not change them.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    Look = TypeVar("Look", bound=Callable[..., Any])


def remembered(look: Look) -> Look:
    """Cache the results of a lookup. ``functools.cache`` does the same and costs 4 ms to import."""
    answers: dict[tuple[Any, ...], Any] = {}

    def ask(*words: Any) -> Any:
        if words not in answers:
            answers[words] = look(*words)
        return answers[words]

    ask.__doc__ = look.__doc__
    return ask  # type: ignore[return-value]


def load(name: str) -> dict[str, Any]:
    """Load one catalog file (``cuda``, ``torch``, ``gpus`` …)."""
    found: dict[str, Any] = __import__(f"gpuready.catalog.data.{name}", fromlist=("DATA",)).DATA
    return found


def as_of() -> str:
    """Return the date as of which the catalog is correct."""
    return str(load("cuda")["as_of"])


# Torch is released about every two months: after half a year three releases are missing.
TRUSTED_DAYS = 180


def age(today: str, since: str = "") -> int:
    """Return the age in days of the catalog (or of the date ``since``) on ``today``, given as YYYY-MM-DD."""
    from datetime import date

    return (date.fromisoformat(today[:10]) - date.fromisoformat((since or as_of())[:10])).days


def stale(today: str, since: str = "", limit: int = TRUSTED_DAYS) -> str:
    """Return a warning if the catalog is too old to choose versions from, else an empty string."""
    days = age(today, since)
    if days <= limit:
        return ""
    return f"the catalogue is of {since or as_of()}, {days} days ago; releases since then are not in it: update gpuready"
