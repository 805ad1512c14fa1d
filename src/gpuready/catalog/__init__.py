"""What is true of the world: GPUs, CUDA releases, torch builds, packages, features, facts.

People write the TOML files beside this one; ``tools/compile_catalog.py`` makes the modules in ``data/`` that
are loaded here. Rows are plain dicts with the keys of the TOML, shared by all who ask: nobody changes them.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    Look = TypeVar("Look", bound=Callable[..., Any])


def remembered(look: Look) -> Look:
    """The answer of a look-up, kept. ``functools.cache`` does the same and costs 4 ms to import."""
    answers: dict[tuple[Any, ...], Any] = {}

    def ask(*words: Any) -> Any:
        if words not in answers:
            answers[words] = look(*words)
        return answers[words]

    ask.__doc__ = look.__doc__
    return ask  # type: ignore[return-value]


def load(name: str) -> dict[str, Any]:
    """One file of the catalogue (``cuda``, ``torch``, ``gpus`` …)."""
    found: dict[str, Any] = __import__(f"gpuready.catalog.data.{name}", fromlist=("DATA",)).DATA
    return found


def as_of() -> str:
    """The day on which the catalogue was true."""
    return str(load("cuda")["as_of"])


# Torch comes out every two months or so: after half a year three releases are missing.
TRUSTED_DAYS = 180


def age(today: str, since: str = "") -> int:
    """How many days old the catalogue (or a day that is given) is on the day ``today``, as YYYY-MM-DD."""
    from datetime import date

    return (date.fromisoformat(today[:10]) - date.fromisoformat((since or as_of())[:10])).days


def stale(today: str, since: str = "", limit: int = TRUSTED_DAYS) -> str:
    """A sentence where the catalogue is older than a choice of versions should trust, else nothing."""
    days = age(today, since)
    if days <= limit:
        return ""
    return f"the catalogue is of {since or as_of()}, {days} days ago; releases since then are not in it: update gpuready"
