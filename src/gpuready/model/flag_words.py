"""The words of a printed command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

STATED_NAMES = ("driver", "toolkit", "torch", "ram", "os", "arch", "kernel", "disk", "shm", "python-version")
"""What --as takes; python-version is its python."""


def flag_words(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Options of a plan as the words of a command line, what is stated of the machine together: --as driver=550.54,os=ubuntu22.04."""
    words: list[str] = []
    for name, value in options.items():
        if value and name not in STATED_NAMES:
            for one in value if isinstance(value, (list, tuple)) else [value]:
                words += [f"--{name}"] if one is True else [f"--{name}", str(one)]
    stated = [f"{name.removesuffix('-version')}={options[name]}" for name in STATED_NAMES if options.get(name)]
    return (*words, "--as", ",".join(stated)) if stated else tuple(words)
