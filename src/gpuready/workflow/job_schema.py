"""JSON Schema of a job, derived from the fields of Job."""

from __future__ import annotations

from gpuready.fit.job.records import AUTO_BUCKET, BUCKET_FIELDS, FIELD_CHOICES, FIELD_MAXIMA, FitJob

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

OMITTED_FIELDS = ("model", "steps", "loop", "clip", "experts", "kbit")
"""The model is an argument of its own; the others follow from the files of a job."""


def job_json_schema() -> dict[str, Any]:
    """Return each field of a Job with its type, choices and default."""
    return {name: _field_schema(name, FitJob._defaults[name]) for name in FitJob._fields if name not in OMITTED_FIELDS}


def _field_schema(name: str, default: Any) -> dict[str, Any]:
    if name == "lora_targets":
        listed = {"type": "array", "items": {"type": "string", "maxLength": 80}, "maxItems": 64}
        return {"anyOf": [{"enum": ["all", "qv"]}, listed], "default": default}
    if name in FIELD_CHOICES:
        return {"enum": list(FIELD_CHOICES[name]), "default": default}
    if name in FIELD_MAXIMA:
        return {"type": "integer", "minimum": 1, "maximum": FIELD_MAXIMA[name], "default": default}
    if name in BUCKET_FIELDS:
        return {"type": "integer", "minimum": AUTO_BUCKET, "default": default}
    kinds = {bool: "boolean", float: "number", str: "string"}
    return {"type": kinds[type(default)], "default": default}


def max_job_count(count: str) -> int:
    """Return the largest valid value of a count of a job."""
    return FIELD_MAXIMA[count]
