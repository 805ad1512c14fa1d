"""``gpuready fit``: how much GPU memory a job needs, and what makes it fit."""

from __future__ import annotations

from gpuready.cli.command_spec import COMMON_FLAGS, CommandSpec, Flag, UsageError
from gpuready.model import sizes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gpuready.cli.command_spec import ParsedCommand
    from gpuready.render.layout import Screen


_FLAGS = (
    Flag("--method", "what is trained", "METHOD", ("full", "lora", "qlora")),
    Flag("--micro-batch", "sequences on one GPU at once", "N"),
    Flag("--seq", "tokens in a sequence", "N"),
    Flag("--precision", "of weights and of the step", "P", ("fp32", "bf16", "fp16", "amp-bf16", "amp-fp16")),
    Flag(
        "--optimizer",
        "its state is often the largest part",
        "NAME",
        (
            "adamw",
            "adamw_fused",
            "adamw_forloop",
            "sgd",
            "sgd_momentum",
            "adafactor",
            "adafactor_torch",
            "adamw_8bit",
            "paged_adamw_8bit",
            "paged_adamw",
        ),
    ),
    Flag(
        "--gradient-checkpointing",
        "compute activations again instead of keeping them",
        "KIND",
        ("reentrant", "off"),
        bare=True,
    ),
    Flag("--attention", "which attention is asked for", "KIND", ("sdpa", "eager", "flash")),
    Flag("--accumulation", "micro-batches to one step", "N"),
    Flag("--loss", "plain, or without the logits in memory", "KIND", ("plain", "fused", "liger")),
    Flag("--lora-r", "the rank of the adapter", "N"),
    Flag("--lora-targets", "all, qv, or names with commas between", "all|qv|LIST"),
    Flag("--lora-dtype", "of the adapter", "DTYPE", ("fp32", "bf16", "fp16")),
    Flag("--quant", "the base in 4 or 8 bits", "KIND", ("nf4", "fp4", "int8")),
    Flag("--keep-outputs", "the loop keeps the model's outputs through the backward"),
    Flag("--padded", "sequences are padded, so that there is a mask"),
    Flag("--dpo", "preference training with a reference model"),
    Flag("--alloc-conf", "what PYTORCH_ALLOC_CONF says", "CONF"),
    Flag("--task", "train, or generate with a cache", "TASK", ("train", "generate")),
    Flag("--new-tokens", "how many are generated", "N"),
    Flag("--cache", "the kind of the cache", "KIND", ("dynamic", "static")),
    Flag("--on", "a GPU such as rtx4090 or h100x8, or a recorded machine (FILE.json)", "NAME"),
    Flag("--world", "GPUs that share the job", "N"),
    Flag("--zero", "the stage of ZeRO", "STAGE", ("0", "1", "2", "3")),
    Flag("--fsdp", "everything is sharded, as FSDP2 does it"),
    Flag("--tensor-parallel", "GPUs that share each layer", "N"),
    Flag("--offload", "what lies in host memory", "WHAT", ("optimizer", "parameters", "activations")),
    Flag("--trace", "take the layers from a trace of the installed torch: for a model that is not known here"),
    Flag("--python", "the environment whose torch is traced: a Python, a venv or a conda prefix", "PATH"),
    Flag("--gpus", "which GPUs of the catalogue would do"),
    Flag("--max", "the largest that fits", "WHAT", ("micro-batch", "seq")),
    Flag("-q", "one line"),
    Flag("-v", "also every default, and the phases of a step"),
)
COMMANDS = (
    CommandSpec(
        "fit", "how much GPU memory a job needs, and what makes it fit", _FLAGS + COMMON_FLAGS, "MODEL|FILE ...", 1, 9
    ),
)
COUNT_FLAGS = ("micro-batch", "seq", "accumulation", "lora-r", "new-tokens", "world", "tensor-parallel")
WORD_FLAGS = (
    "method", "precision", "optimizer", "attention", "loss", "lora-dtype", "quant", "alloc-conf", "task", "cache", "offload",
)  # fmt: skip
SWITCH_FLAGS = ("keep-outputs", "padded", "dpo", "fsdp")


def run(parsed: ParsedCommand, screen: Screen, started: float) -> tuple[str, int]:
    flags = parsed.flags
    if flags.get("q") and flags.get("v"):
        raise UsageError("-q and -v do not go together: choose one")
    if flags.get("gpus") and "max" in flags:
        raise UsageError("--gpus and --max do not go together: choose one")
    if flags.get("trace") and "max" in flags:
        raise UsageError("--trace and --max do not go together: a trace is one size")
    if "python" in flags and not flags.get("trace"):
        raise UsageError("--python goes with --trace")
    from gpuready.workflow.fit import fit_job

    result = fit_job(
        list(parsed.arguments),
        job_fields_from_flags(flags),
        on=flags.get("on"),
        every=bool(flags.get("gpus")),
        largest=flags.get("max"),
        trace=bool(flags.get("trace")),
        python=flags.get("python"),
    )
    from gpuready.render import fit as render

    if flags.get("json"):
        from gpuready.render import json_results

        return json_results.render_fit_json(result), result.exit
    if flags.get("q"):
        return render.format_fit_line(result), result.exit
    return render.render_fit_screen(result, screen, bool(flags.get("v"))), result.exit


def job_fields_from_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the flags to fields of a Job."""
    job_fields: dict[str, Any] = {
        _flag_to_field(name): _parse_fit_count(name, flags[name]) for name in COUNT_FLAGS if name in flags
    }
    job_fields |= {_flag_to_field(name): flags[name] for name in WORD_FLAGS if name in flags}
    job_fields |= {_flag_to_field(name): True for name in SWITCH_FLAGS if flags.get(name)}
    if "zero" in flags:
        job_fields["zero"] = int(flags["zero"])
    if "gradient-checkpointing" in flags:
        kind = flags["gradient-checkpointing"]
        job_fields["checkpointing"] = {"reentrant": "reentrant", "off": "none"}.get(kind, "nonreentrant")
    if "lora-targets" in flags:
        job_fields["lora_targets"] = _parse_lora_targets(flags["lora-targets"])
    return job_fields


def _flag_to_field(name: str) -> str:
    return name.replace("-", "_")


def _parse_fit_count(name: str, word: str) -> int:
    """Parse a whole number from 1 up; ``8k`` is 8192, as sequence lengths are written."""
    from gpuready.workflow import job_schema

    count = None if "." in word else sizes.parse_count(word, sizes.CONTEXT_UNITS)
    most = job_schema.max_job_count(_flag_to_field(name))
    if count is None or not 1 <= count <= most:
        raise UsageError(f"--{name} takes a whole number from 1 to {most}, not {word!r}")
    return count


def _parse_lora_targets(word: str) -> str | tuple[str, ...]:
    if word in ("all", "qv"):
        return word
    names = tuple(part.strip() for part in word.split(",") if part.strip())
    if not names or not all(name.replace("_", "a").replace(".", "a").isalnum() for name in names):
        raise UsageError(f"--lora-targets takes all, qv, or names such as q_proj,v_proj, not {word!r}")
    return names
