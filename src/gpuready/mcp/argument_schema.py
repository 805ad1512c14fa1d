"""JSON schemas of the tools' arguments, and their validation with one-sentence errors."""

import json
from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from gpuready.commands.declaration import Parameter
from gpuready.workflow.refusal import Refused

Schema = dict[str, Any]


MAX_NUMBER = 3600
"""The largest number that an agent may ask for: a proof of an hour."""


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
    value = _list_texts(schema, value)
    error = best_match(Draft202012Validator(schema).iter_errors(value))
    if error is None:
        return value
    where = ".".join(map(str, error.absolute_path)) or name
    raise Refused(f"{where[:80]}: {error.message.replace(repr(error.instance), _format_value(error.instance))[:400]}")


def _list_texts(schema: Schema, value: Any) -> Any:
    """``vllm`` -> ["vllm"] where the schema has a list; a list that was written as JSON in a text is read."""
    if isinstance(value, dict):
        known = schema.get("properties", {})
        return {key: _list_texts(known[key], one) if key in known else one for key, one in value.items()}
    return _parse_listed(value) if schema.get("type") == "array" and isinstance(value, str) else value


def _parse_listed(text: str) -> list[Any]:
    try:
        found = json.loads(text) if text.startswith("[") else None
    except ValueError:
        found = None
    return found if isinstance(found, list) else [text]


def _format_value(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 60 else f"{text[:57]}..."
