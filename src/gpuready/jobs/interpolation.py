"""Resolve ``${name}`` in a configuration, as OmegaConf does, without its functions or the environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAX_DEPTH = 8
"""How many references a value may lead through."""


def resolve_references(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config with every value that is one reference replaced; what cannot be resolved stays."""
    resolved: dict[str, Any] = _resolve_value(dict(config), config, 0)
    return resolved


def _resolve_value(value: Any, root: Mapping[str, Any], depth: int) -> Any:
    if depth > 40:
        return value
    if isinstance(value, dict):
        return {key: _resolve_value(one, root, depth + 1) for key, one in value.items()}
    if isinstance(value, list):
        return [_resolve_value(one, root, depth + 1) for one in value]
    return _follow_reference(value, root)


def _follow_reference(value: Any, root: Mapping[str, Any]) -> Any:
    for _ in range(MAX_DEPTH):
        if not is_reference(value):
            return value
        name = value[2:-1].strip()
        if name.startswith("oc.select:"):
            name, _, default = name.removeprefix("oc.select:").partition(",")
            found = _find_dotted(root, name.strip())
            value = _parse_word(default) if found is None else found
        elif name.startswith("oc.env:"):
            value = _parse_word(name.partition(",")[2])
        else:
            found = _find_dotted(root, name)
            if found is None:
                return value
            value = found
    return value


def is_reference(value: object) -> bool:
    return isinstance(value, str) and value.startswith("${") and value.endswith("}") and "${" not in value[2:]


def _find_dotted(root: Mapping[str, Any], name: str) -> Any:
    here: Any = root
    for part in name.split("."):
        here = here.get(part) if isinstance(here, dict) else None
    return here


def _parse_word(text: str) -> Any:
    """Parse a default: a number, a switch, nothing, or text."""
    word = text.strip().strip("'\"")
    if word.lower() in ("", "null", "none"):
        return None
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    try:
        return int(word)
    except ValueError:
        return word
