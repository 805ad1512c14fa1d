"""The words of a printed command line."""

from collections.abc import Mapping
from typing import Any


def as_words(stated: Mapping[str, Any]) -> tuple[str, ...]:
    """What is stated of a machine, by the names of its flags: ``--as driver=550.54,os=ubuntu22.04``."""
    text = ",".join(f"{name.removesuffix('-version')}={value}" for name, value in stated.items() if value)
    return ("--as", text) if text else ()
