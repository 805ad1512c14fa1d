"""What a knowledge file may put into commands: packages by name, and addresses of projects that are known already."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from gpuready import catalog

COMMAND_KEYS = ("run", "undo", "address", "git", "wheel", "tries", "requirement", "requirement_cuda13", "build_needs", "environment", "force", "prebuild")  # fmt: skip
_ORIGIN = r"(?:git\+)?(https://[a-z0-9.-]+)(?=/)(/[\w.-]+/[\w.-]+)?"
_REQUIREMENT = r"[A-Za-z0-9][A-Za-z0-9._,\[\]=<>!~ -]*"
_ASSIGNMENT = r"(?!UV_|PIP_|LD_|PYTHON|PATH=|HOME=|BASH)[A-Z][A-Z0-9_]*=[A-Za-z0-9._;:+-]*"
_SHAPES = {
    **dict.fromkeys(("requirement", "requirement_cuda13", "build_needs"), _REQUIREMENT),
    **dict.fromkeys(("environment", "force", "prebuild"), _ASSIGNMENT),
}
_PLACEHOLDERS = ("{version}", "{tag}", "{wheel}", "{cuda}", "{torch}", "{build}", "{abi}", "{python}", "{machine}")


def find_command_problems(parts: dict[str, Any], own: dict[str, Any]) -> Iterator[str]:
    """Yield the texts that would bring an unknown address, an option, or a variable of an installer into a command."""
    known = {origin for text in _own_texts(own) for origin in _list_origins(text)}
    for name, data in parts.items():
        for key, text in _list_command_texts(data):
            yield from (f"{name} {key}: {problem}" for problem in _find_text_problems(key, text, known))


def _own_texts(own: dict[str, Any]) -> Iterator[str]:
    yield from (row["url"] for row in catalog.load_catalog("indexes")["index"])
    yield from (text for data in own.values() for _, text in _list_command_texts(data))


def _list_command_texts(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the texts under keys that become words of commands."""
    if isinstance(value, list):
        for item in value:
            yield from _list_command_texts(item)
    elif isinstance(value, dict):
        for key, inner in value.items():
            texts = inner if isinstance(inner, list) else [inner]
            if key in COMMAND_KEYS:
                yield from ((key, text) for text in texts if isinstance(text, str))
            yield from _list_command_texts(inner)


def _list_origins(text: str) -> list[str]:
    """Return the projects (on GitHub) or hosts (elsewhere) of the addresses in a text."""
    found = re.findall(_ORIGIN, text)
    return [host + project if host == "https://github.com" else host for host, project in found]


def _find_text_problems(key: str, text: str, known: set[str]) -> Iterator[str]:
    if text.count("://") != len(_list_origins(text)) or not set(_list_origins(text)) <= known:
        yield f"the address {text[:120]!a} is of no project that gpuready knows"
    if key in _SHAPES and not re.fullmatch(_SHAPES[key], text):
        yield f"{text[:60]!a} is neither a package nor a setting that a build may have"
    if key in ("wheel", "tries", "address") and set(re.findall(r"{[^}]*}?|}", text)) - set(_PLACEHOLDERS):
        yield f"{text[:120]!a} has a placeholder that gpuready does not fill"
