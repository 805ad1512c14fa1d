"""What the job asks for, as its flags and its configuration file state it."""

from __future__ import annotations

from tarmac.model import Fact
from tarmac.probe import size
from tarmac.system import Blind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from tarmac.system import Door

KEYS = ("job.wants", "job.parameters", "job.config", "job.device_map", "job.gpus", "job.model")
WANTS = (
    # numbers
    "bf16", "fp16", "tf32", "fp8", "fp8-attention", "fp8-training", "fbgemm-fp8", "finegrained-fp8", "mxfp4",
    "nvfp4", "bnb-4bit", "bnb-8bit", "gptq", "awq", "hqq", "eetq", "gguf", "vptq", "fp-quant", "auto-round",
    "compressed-tensors", "llmcompressor", "torchao", "qat", "fbgemm", "fp32", "2bit", "aqlm", "quanto",
    # attention and kernels
    "flash-attn", "flash-attn-3", "flash-attn-4", "flex-attention", "sage-attention", "ring-attention",
    "varlen-attention", "sdpa", "xformers", "torch-compile", "liger", "mamba", "fla", "kernels", "deepgemm",
    "grouped-mm", "sonicmoe", "cut-cross-entropy", "apex", "fused-adam", "cpu-adam", "transformer-engine",
    "build",
    # methods and engines
    "full", "lora", "qlora", "grpo", "moe", "inference", "deepspeed", "fsdp", "fsdp2", "megatron", "ray",
    "vllm", "sglang", "device-map", "tensor-parallel", "expert-parallel", "multi-gpu", "multi-node",
    "nvme-offload", "determinism", "optimizers", "galore", "apollo", "schedulefree", "cpu",
    # services
    "mlflow", "opentelemetry", "modal", "baseten", "coreweave",
)  # fmt: skip
"""Every capability that ``--wants`` takes."""

ALIASES = {
    "4bit": "bnb-4bit", "nf4": "bnb-4bit", "8bit": "bnb-8bit", "int8": "bnb-8bit", "bfloat16": "bf16",
    "float16": "fp16", "float32": "fp32", "flash-attention": "flash-attn", "flash-attention-2": "flash-attn",
    "flash-attn-2": "flash-attn", "fa2": "flash-attn", "flash-attention-3": "flash-attn-3",
    "fa3": "flash-attn-3", "flash-attention-4": "flash-attn-4", "fa4": "flash-attn-4", "mamba-ssm": "mamba",
    "compile": "torch-compile", "liger-kernel": "liger", "te": "transformer-engine",
    "deterministic": "determinism",
}  # fmt: skip
SMALL = 1 << 20
"""The largest config.json that is read, in bytes."""


def look(door: Door, wants: str | None, model: str | None, config: str | None) -> list[Fact]:
    """The facts that the flags state; none where they state nothing. ValueError, in a sentence, if bad."""
    facts: dict[str, Fact] = {}
    if config is not None:
        from tarmac.probe import jobfile

        facts |= {f.key: f for f in jobfile.look(door, config)}
    if model is not None:
        facts |= {f.key: f for f in _model(door, model)}
    if wants is not None:
        stated = named(wants)
        of_file = facts["job.wants"].value if "job.wants" in facts else ()
        source = f"--wants, {facts['job.wants'].source}" if of_file else "--wants"
        facts["job.wants"] = Fact("job.wants", tuple(dict.fromkeys((*stated, *of_file))), source, "stated")
    return list(facts.values())


def named(wants: str) -> tuple[str, ...]:
    """``fp8, flash_attn`` -> ``("fp8", "flash-attn")``. ValueError names the nearest where one is unknown."""
    words = [word for word in (part.strip().lower().replace("_", "-") for part in wants.split(",")) if word]
    if not words:
        raise ValueError("--wants names nothing; write for example --wants bf16,flash-attn")
    for word in words:
        if word not in WANTS and word not in ALIASES:
            raise ValueError(f"--wants {word} is not known{_nearest(word, (*WANTS, *ALIASES))}")
    return tuple(dict.fromkeys(ALIASES.get(word, word) for word in words))


def _nearest(word: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word, list(known), 3, 0.5)
    return f"; nearest: {', '.join(near)}" if near else f"; it is one of {', '.join(WANTS[:12])} …"


def _model(door: Door, model: str) -> list[Fact]:
    """``7b``, a name that carries a size, a config.json, or a folder with one."""
    count = size.written(model)
    if count is None:
        count = of_path(door, model, "--model") or size.in_name(model)
    if count is None:
        raise ValueError(
            f"--model {model} names no size: write 7b, a name such as Llama-3-8B, or a config.json"
        )
    facts = [Fact("job.parameters", count, "--model", "stated")]
    return facts if size.written(model) else [*facts, Fact("job.model", model, "--model", "stated")]


def of_path(door: Door, path: str, flag: str) -> int | None:
    """The parameters by the config.json at a path; None where there is no such file or folder."""
    try:
        status = door.stat(path)
        if status is None:
            return None
        file = f"{path.rstrip('/')}/config.json" if status["kind"] == "dir" else path
        text = door.read(file, SMALL)
    except Blind as blind:
        raise ValueError(f"{flag} {path} cannot be read: {blind}") from None
    if text is None:
        raise ValueError(
            f"{flag} {path} has no config.json; give the folder of a model or its size, such as 7b"
        )
    return parameters(decoded(text, file, flag), file, flag)


def decoded(text: str, file: str, flag: str) -> dict[str, Any]:
    """A JSON object. ValueError says in which line of which file it is none."""
    import json

    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError(f"{flag} {file} is nested too deeply") from None
    except ValueError as bad:
        where = f" line {bad.lineno}: {bad.msg}" if isinstance(bad, json.JSONDecodeError) else f": {bad}"
        raise ValueError(f"{flag} {file}{where}; it must be JSON") from None
    if not isinstance(found, dict):
        raise ValueError(f"{flag} {file} line 1: it must be an object, in braces")
    return found


def parameters(config: dict[str, Any], file: str, flag: str) -> int:
    """The size of the model that a config.json describes. ValueError where it cannot be counted."""
    kind = config.get("model_type")
    try:
        count = size.counted(config)
    except (KeyError, TypeError, ValueError) as bad:
        raise ValueError(
            f"{flag} {file}: {bad} is missing or no number; give the size, such as --model 7b"
        ) from None
    if count is None:
        raise ValueError(
            f"{flag} {file}: models of type {kind!r} cannot be counted; give the size, such as 7b"
        )
    return count
