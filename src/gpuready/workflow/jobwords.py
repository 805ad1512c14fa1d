"""JSON Schema of a job, derived from the fields of Job."""

from __future__ import annotations

from gpuready.fit.job import AUTO, BUCKETS, CHOICES, COUNTS, Job

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LEFT_OUT = ("model", "steps", "loop", "clip", "experts", "kbit")
"""The model is an argument of its own; the others follow from the files of a job."""


def schema() -> dict[str, Any]:
    """Return each field of a Job with its type, choices and default."""
    return {name: _field(name, Job._defaults[name]) for name in Job._fields if name not in LEFT_OUT}


def _field(name: str, default: Any) -> dict[str, Any]:
    if name == "lora_targets":
        listed = {"type": "array", "items": {"type": "string", "maxLength": 80}, "maxItems": 64}
        return {"anyOf": [{"enum": ["all", "qv"]}, listed], "default": default}
    if name in CHOICES:
        return {"enum": list(CHOICES[name]), "default": default}
    if name in COUNTS:
        return {"type": "integer", "minimum": 1, "maximum": COUNTS[name], "default": default}
    if name in BUCKETS:
        return {"type": "integer", "minimum": AUTO, "default": default}
    kinds = {bool: "boolean", float: "number", str: "string"}
    return {"type": kinds[type(default)], "default": default}


def most(count: str) -> int:
    """Return the largest valid value of a count of a job."""
    return COUNTS[count]
