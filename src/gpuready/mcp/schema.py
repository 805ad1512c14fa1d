"""JSON schemas of the tools' arguments, and their validation with one-sentence errors."""

from __future__ import annotations

from gpuready.workflow.refusal import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    Schema = dict[str, Any]

_KINDS: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
}
_WORDS = {
    "object": "an object",
    "array": "a list",
    "string": "text",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
}


def text(says: str, longest: int = 400, **more: Any) -> Schema:
    return {"type": "string", "description": says, "minLength": 1, "maxLength": longest} | more


def texts(says: str, most: int = 16, longest: int = 400, **more: Any) -> Schema:
    return {"type": "array", "items": text("", longest), "maxItems": most, "description": says} | more


def switch(says: str) -> Schema:
    return {"type": "boolean", "default": False, "description": says}


def whole(properties: Mapping[str, Schema], *required: str) -> Schema:
    """The schema of a tool's arguments; others are not allowed."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


def checked(schema: Schema, given: Any, name: str) -> Any:
    """Return the value if it fits the schema, else raise Refused with one sentence."""
    if "anyOf" in schema:
        return _any(schema, given, name)
    if "enum" in schema and given not in schema["enum"]:
        choices = ", ".join(repr(one) for one in schema["enum"])
        raise Refused(f"{name} must be one of {choices}, not {_shown(given)}")
    kind = schema.get("type")
    if kind and (not isinstance(given, _KINDS[kind]) or (kind != "boolean" and isinstance(given, bool))):
        raise Refused(f"{name} must be {_WORDS[kind]}, not {_shown(given)}")
    _sized(schema, given, name)
    if kind == "object":
        _members(schema, given, name)
    if kind == "array":
        for n, one in enumerate(given):
            checked(schema["items"], one, f"{name}[{n}]")
    return given


def _any(schema: Schema, given: Any, name: str) -> Any:
    for option in schema["anyOf"]:
        try:
            return checked(option, given, name)
        except Refused as refused:
            last = refused
    raise last


def _sized(schema: Schema, given: Any, name: str) -> None:
    for least, most, size in (
        ("minLength", "maxLength", len),
        ("minItems", "maxItems", len),
        ("minimum", "maximum", _number),
    ):
        if least not in schema and most not in schema:
            continue
        count = size(given)
        if not schema.get(least, 0) <= count <= schema.get(most, count):
            unit = {"maxLength": " letters", "maxItems": " items"}.get(most, "")
            raise Refused(
                f"{name} must have from {schema.get(least, 0)} to {schema.get(most)}{unit}, not {_shown(count)}"
            )


def _number(given: float) -> float:
    """Return the number unchanged: an int may be too large for a float."""
    return given


def _members(schema: Schema, given: dict[str, Any], name: str) -> None:
    known = schema.get("properties", {})
    for key, value in given.items():
        if key in known:
            checked(known[key], value, key)
        elif schema.get("additionalProperties") is False:
            raise Refused(f"{name} takes {', '.join(known) or 'no arguments'}, not {_shown(key)}")
        else:
            checked(schema["additionalProperties"], value, f"{name}.{key[:40]}")
    missing = [key for key in schema.get("required", ()) if key not in given]
    if missing:
        raise Refused(f"{name} needs {', '.join(missing)}")


def _shown(given: Any) -> str:
    said = repr(given)
    return said if len(said) < 60 else f"{said[:57]}..."
