"""Convert the arguments of a Python call to what the workflows take: paths, lists, what-if values, job fields."""

from __future__ import annotations

from gpuready.workflow.refusal import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from os import PathLike
    from typing import Any, TypedDict

    Path = str | PathLike[str]
    Words = str | Iterable[str]

    class WhatIf(TypedDict, total=False):
        """What-if values that replace what is seen or recorded of a machine."""

        driver: str
        toolkit: str
        torch: str
        ram: str
        os: str
        arch: str
        kernel: str
        disk: str
        shm: str
        python_version: str


STATED = ("driver", "toolkit", "torch", "ram", "os", "arch", "kernel", "disk", "shm", "python_version")
"""Names of the what-if keywords."""


def path(given: Path) -> str:
    """Return a path or a name as text; Refused where it is neither."""
    found = given if isinstance(given, str) else getattr(given, "__fspath__", lambda: None)()
    if not isinstance(found, str):
        raise Refused(f"a path is text, not {type(given).__name__}")
    return found


def paths(**given: Path | None) -> dict[str, Any]:
    return {name: None if one is None else path(one) for name, one in given.items()}


def listed(words: Words | None) -> str | None:
    return words if words is None or isinstance(words, str) else ",".join(words)


def stated(verb: str, given: Mapping[str, Any]) -> dict[str, str]:
    """Return the what-if values by the names of their flags."""
    for name in given:
        if name not in STATED:
            raise TypeError(f"{verb}() got an unexpected keyword argument {name!r}")
    return {name.replace("_", "-"): str(value) for name, value in given.items() if value is not None}


def job(given: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a Job; ``gradient_checkpointing`` is accepted as trainers write it."""
    from gpuready.workflow.fitting import SAID

    fields = dict(given)
    if "gradient_checkpointing" in fields:
        fields["checkpointing"] = "nonreentrant" if fields.pop("gradient_checkpointing") else "none"
    for name, value in fields.items():
        if name not in SAID:
            raise TypeError(f"fit() got an unexpected keyword argument {name!r}")
        if isinstance(value, list):
            fields[name] = tuple(value)
    return fields
