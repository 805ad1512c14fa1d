"""The fields of a job as parameters and as JSON Schema, derived from FitJob: its choices, bounds and defaults."""

from typing import Any

from gpuready.commands.declaration import Parameter, Request, UsageError
from gpuready.fit.job.records import AUTO_BUCKET, BUCKET_FIELDS, FIELD_CHOICES, FIELD_MAXIMA, FitJob

_WITHOUT_SCHEMA = ("model", "steps", "loop", "clip")
"""The model is an argument of its own; the others follow from the files of a job."""
CHECKPOINTING = Parameter(
    "recompute activations instead of storing them",
    "KIND",
    ("reentrant", "off"),
    bare=True,
    group="job",
    web="checkpointing",
)
"""``gradient_checkpointing``, as trainers write the field ``checkpointing``."""
AUTOCAST = Parameter("autocast over the weights", "DTYPE", ("bf16", "fp16", "off"), group="job", web="any")
KBIT = Parameter(
    "peft's k-bit preparation: what is not quantized becomes fp32", "on|off", ("on", "off"), group="job", web="any"
)


def job_parameter(name: str, help: str, metavar: str = "") -> Parameter:
    """Return the parameter of a field; one without a metavar is a switch."""
    choices = tuple(str(one) for one in FIELD_CHOICES.get(name, ()) if one != "")
    kind = "count" if name in FIELD_MAXIMA else "text"
    most = FIELD_MAXIMA.get(name, 0)
    default = FitJob._defaults[name]
    return Parameter(help, metavar, choices, kind, most=most, default=default, group="job", web="any")


def job_fields(request: Request) -> dict[str, Any]:
    """Return the fields of a FitJob among the options. TypeError for a keyword that is none."""
    known = request.command.parameters
    fields = {
        name: value
        for name, value in request.options.items()
        if name not in known or (known[name].group == "job" and value is not None)
    }
    if "gradient_checkpointing" in fields:
        kind = fields.pop("gradient_checkpointing")
        fields["checkpointing"] = {"reentrant": "reentrant", "off": "none", False: "none"}.get(kind, "nonreentrant")
    for name, value in fields.items():
        if name not in FitJob._fields or name == "model":
            raise TypeError(f"{request.command.name}() got an unexpected keyword argument {name!r}")
        if isinstance(value, list):
            fields[name] = tuple(value)
    if fields.get("autocast") == "off":
        fields["autocast"] = ""
    if isinstance(fields.get("kbit"), str):
        fields["kbit"] = fields["kbit"] == "on"
    if isinstance(fields.get("lora_dropout"), str):
        fields["lora_dropout"] = _parse_dropout(fields["lora_dropout"])
    if isinstance(fields.get("zero"), str):
        fields["zero"] = int(fields["zero"])
    if isinstance(fields.get("lora_targets"), str):
        fields["lora_targets"] = _parse_lora_targets(fields["lora_targets"])
    return fields


def _parse_dropout(word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise UsageError(f"--lora-dropout takes a number from 0 up and below 1, not {word!r}")
    return value


def _parse_lora_targets(word: str) -> str | tuple[str, ...]:
    if word in ("all", "qv"):
        return word
    names = tuple(part.strip() for part in word.split(",") if part.strip())
    if not names or not all(name.replace("_", "a").replace(".", "a").isalnum() for name in names):
        raise UsageError(f"--lora-targets takes all, qv, or names such as q_proj,v_proj, not {word!r}")
    return names


def job_json_schema() -> dict[str, Any]:
    """Return each field of a FitJob with its type, choices and default."""
    return {name: _field_schema(name, FitJob._defaults[name]) for name in FitJob._fields if name not in _WITHOUT_SCHEMA}


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
