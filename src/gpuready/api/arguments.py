"""Convert the arguments of a Python call to what the workflows take: paths, lists, what-if values, job fields."""

from __future__ import annotations

from gpuready.workflow.refusal import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from os import PathLike
    from typing import Any, TypedDict

    PathArgument = str | PathLike[str]
    WordList = str | Iterable[str]

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


WHAT_IF_NAMES = ("driver", "toolkit", "torch", "ram", "os", "arch", "kernel", "disk", "shm", "python_version")
"""Names of the what-if keywords."""


def path_text(value: PathArgument) -> str:
    """Return a path or a name as text; Refused where it is neither."""
    text = value if isinstance(value, str) else getattr(value, "__fspath__", lambda: None)()
    if not isinstance(text, str):
        raise Refused(f"a path is text, not {type(value).__name__}")
    return text


def path_texts(**arguments: PathArgument | None) -> dict[str, Any]:
    return {name: None if one is None else path_text(one) for name, one in arguments.items()}


def comma_list(words: WordList | None) -> str | None:
    return words if words is None or isinstance(words, str) else ",".join(words)


def what_if_flags(verb: str, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the what-if values by the names of their flags."""
    for name in arguments:
        if name not in WHAT_IF_NAMES:
            raise TypeError(f"{verb}() got an unexpected keyword argument {name!r}")
    return {name.replace("_", "-"): str(value) for name, value in arguments.items() if value is not None}


def job_fields(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a Job; ``gradient_checkpointing`` is accepted as trainers write it."""
    from gpuready.workflow.fit import JOB_FIELDS

    fields = dict(arguments)
    if "gradient_checkpointing" in fields:
        fields["checkpointing"] = "nonreentrant" if fields.pop("gradient_checkpointing") else "none"
    for name, value in fields.items():
        if name not in JOB_FIELDS:
            raise TypeError(f"fit() got an unexpected keyword argument {name!r}")
        if isinstance(value, list):
            fields[name] = tuple(value)
    return fields
