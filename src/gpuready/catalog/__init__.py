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

    LookupFunction = TypeVar("LookupFunction", bound=Callable[..., Any])


def cache_lookup(lookup: LookupFunction) -> LookupFunction:
    """Cache the results of a lookup. ``functools.cache`` does the same and costs 4 ms to import."""
    answers: dict[tuple[Any, ...], Any] = {}

    def cached_lookup(*arguments: Any) -> Any:
        if arguments not in answers:
            answers[arguments] = lookup(*arguments)
        return answers[arguments]

    cached_lookup.__doc__ = lookup.__doc__
    return cached_lookup  # type: ignore[return-value]


def load_catalog(name: str) -> dict[str, Any]:
    """Load one catalog file (``cuda``, ``torch``, ``gpus`` …)."""
    table: dict[str, Any] = __import__(f"gpuready.catalog.data.{name}", fromlist=("DATA",)).DATA
    return table


def catalog_date() -> str:
    """Return the date as of which the catalog is correct."""
    return str(load_catalog("cuda")["as_of"])


# Torch is released about every two months: after half a year three releases are missing.
TRUSTED_AGE_DAYS = 180


def catalog_age_days(today: str, since: str = "") -> int:
    """Return the age in days of the catalog (or of the date ``since``) on ``today`` (YYYY-MM-DD)."""
    from datetime import date

    return (date.fromisoformat(today[:10]) - date.fromisoformat((since or catalog_date())[:10])).days


def stale_catalog_warning(today: str, since: str = "", limit: int = TRUSTED_AGE_DAYS) -> str:
    """Return a warning if the catalog is too old to choose versions from, else an empty string."""
    days = catalog_age_days(today, since)
    if days <= limit:
        return ""
    return f"the catalogue is of {since or catalog_date()}, {days} days ago; releases since then are not in it: update gpuready"
