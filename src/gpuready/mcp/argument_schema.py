"""JSON schemas of the tools' arguments, and their validation with one-sentence errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gpuready.commands.declaration import Parameter
from gpuready.workflow.refusal import Refused

Schema = dict[str, Any]


MAX_NUMBER = 3600
"""The largest number that an agent may ask for: a proof of an hour."""
_PYTHON_TYPES: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
}
_TYPE_DESCRIPTIONS = {
    "object": "an object",
    "array": "a list",
    "string": "text",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
}


def string_schema(description: str, max_length: int = 400, **more: Any) -> Schema:
    return {"type": "string", "description": description, "minLength": 1, "maxLength": max_length} | more


def string_list_schema(description: str, most: int = 16, max_length: int = 400, **more: Any) -> Schema:
    return {
        "type": "array",
        "items": string_schema("", max_length),
        "maxItems": most,
        "description": description,
    } | more


def boolean_schema(description: str) -> Schema:
    return {"type": "boolean", "default": False, "description": description}


def object_schema(properties: Mapping[str, Schema], *required: str) -> Schema:
    """The schema of a tool's arguments; others are not allowed."""
    return {"type": "object", "properties": dict(properties), "required": list(required), "additionalProperties": False}


def parameter_schema(parameter: Parameter) -> Schema:
    """Return the JSON schema of a parameter of a command."""
    description = parameter.details or parameter.help
    choices = [one for one in parameter.choices if one != "json"]  # JSON is what ``answer`` asks for
    if parameter.kind == "pairs":
        reasons = string_schema("", parameter.max_length)
        return {"type": "object", "additionalProperties": reasons, "description": description}
    if parameter.kind == "list" or parameter.many:
        listed = string_list_schema(description, parameter.most or 16, parameter.max_length)
        if choices:
            listed["items"] = {"enum": choices}
        return listed | ({"minItems": 1} if parameter.least and not parameter.metavar else {})
    if choices:
        return {"enum": choices, "description": description}
    if parameter.kind in ("count", "number"):
        kind = "integer" if parameter.kind == "count" else "number"
        most = min(parameter.most, MAX_NUMBER)
        return {"type": kind, "minimum": 1, "maximum": most, "description": description}
    if parameter.metavar or parameter.kind == "log" or not parameter.flag.startswith("-"):
        return string_schema(description, parameter.max_length)
    return boolean_schema(description)


def validate_arguments(schema: Schema, value: Any, name: str) -> Any:
    """Return the value if it fits the schema, else raise Refused with one sentence. One text is taken for a list of one."""
    if "anyOf" in schema:
        return _validate_any_of(schema, value, name)
    if "enum" in schema and value not in schema["enum"]:
        choices = ", ".join(repr(one) for one in schema["enum"])
        raise Refused(f"{name} must be one of {choices}, not {_format_value(value)}")
    kind = schema.get("type")
    if kind == "array" and isinstance(value, str):
        value = _parse_listed(value)
    if kind and (not isinstance(value, _PYTHON_TYPES[kind]) or (kind != "boolean" and isinstance(value, bool))):
        raise Refused(f"{name} must be {_TYPE_DESCRIPTIONS[kind]}, not {_format_value(value)}")
    _check_bounds(schema, value, name)
    if kind == "object":
        return _validate_members(schema, value, name)
    if kind == "array":
        return [validate_arguments(schema["items"], one, f"{name}[{n}]") for n, one in enumerate(value)]
    return value


def _parse_listed(text: str) -> list[Any]:
    """``vllm`` -> ["vllm"]; a list that was written as JSON in a text is read."""
    try:
        found = json.loads(text) if text.startswith("[") else None
    except ValueError:
        found = None
    return found if isinstance(found, list) else [text]


def _validate_any_of(schema: Schema, value: Any, name: str) -> Any:
    for option in schema["anyOf"]:
        try:
            return validate_arguments(option, value, name)
        except Refused as error:
            last = error
    raise last


def _check_bounds(schema: Schema, value: Any, name: str) -> None:
    for least, most, size in (
        ("minLength", "maxLength", len),
        ("minItems", "maxItems", len),
        ("minimum", "maximum", _numeric_value),
    ):
        if least not in schema and most not in schema:
            continue
        count = size(value)
        if not schema.get(least, 0) <= count <= schema.get(most, count):
            unit = {"maxLength": " letters", "maxItems": " items"}.get(most, "")
            raise Refused(
                f"{name} must have from {schema.get(least, 0)} to {schema.get(most)}{unit}, not {_format_value(count)}"
            )


def _numeric_value(value: float) -> float:
    """Return the number unchanged: an int may be too large for a float."""
    return value


def _validate_members(schema: Schema, arguments: dict[str, Any], name: str) -> dict[str, Any]:
    known, valid = schema.get("properties", {}), {}
    for key, value in arguments.items():
        if key in known:
            valid[key] = validate_arguments(known[key], value, key)
        elif schema.get("additionalProperties") is False:
            raise Refused(f"{name} takes {', '.join(known) or 'no arguments'}, not {_format_value(key)}")
        else:
            valid[key] = validate_arguments(schema["additionalProperties"], value, f"{name}.{key[:40]}")
    missing = [key for key in schema.get("required", ()) if key not in arguments]
    if missing:
        raise Refused(f"{name} needs {', '.join(missing)}")
    return valid


def _format_value(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 60 else f"{text[:57]}..."
