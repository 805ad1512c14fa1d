"""What the job needs, as stated by its flags and its configuration file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from gpuready.model import Fact
from gpuready.model.sizes import parse_count
from gpuready.system import HostAccess

if TYPE_CHECKING:
    from gpuready.jobs.job_files import JobFile


KEYS = ("job.wants", "job.packages", "job.parameters", "job.config", "job.device_map", "job.gpus", "job.model")
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
    "full", "lora", "qlora", "ppo", "grpo", "moe", "inference", "deepspeed", "fsdp", "fsdp2", "megatron", "ray",
    "vllm", "sglang", "unsloth", "device-map", "tensor-parallel", "expert-parallel", "context-parallel",
    "multi-gpu", "multi-node", "nvme-offload", "determinism", "optimizers", "galore", "apollo", "schedulefree", "cpu",
    # services
    "mlflow", "opentelemetry", "modal", "baseten", "coreweave",
)  # fmt: skip
"""Every capability that ``--wants`` accepts."""

ALIASES = {
    "4bit": "bnb-4bit", "nf4": "bnb-4bit", "8bit": "bnb-8bit", "int8": "bnb-8bit", "bfloat16": "bf16",
    "float16": "fp16", "float32": "fp32", "flash-attention": "flash-attn", "flash-attention-2": "flash-attn",
    "flash-attn-2": "flash-attn", "fa2": "flash-attn", "flash-attention-3": "flash-attn-3",
    "fa3": "flash-attn-3", "flash-attention-4": "flash-attn-4", "fa4": "flash-attn-4", "mamba-ssm": "mamba",
    "compile": "torch-compile", "liger-kernel": "liger", "te": "transformer-engine",
    "deterministic": "determinism",
}  # fmt: skip


def probe_job(
    host: HostAccess, wants: str | None, model: str | None, file: JobFile | None, extra_words: Iterable[str] = ()
) -> list[Fact]:
    """Return the facts that the flags and the job's file state. ValueError, in a sentence, if a flag is invalid.

    ``extra_words`` are accepted by ``wants`` in addition to the known ones: those of a user's own contract.
    """
    facts: dict[str, Fact] = {}
    if file is not None:
        from gpuready.jobs import job_facts

        facts |= {f.key: f for f in job_facts.job_file_facts(host, file)}
    if model is not None:
        facts |= {f.key: f for f in _model_facts(host, model)}
    if wants is not None:
        wanted = parse_wants(wants, extra_words)
        file_wants = facts["job.wants"].value if "job.wants" in facts else ()
        source = f"--wants, {facts['job.wants'].source}" if file_wants else "--wants"
        facts["job.wants"] = Fact("job.wants", tuple(dict.fromkeys((*wanted, *file_wants))), source, "stated")
    return list(facts.values())


def parse_wants(wants: str, extra_words: Iterable[str] = ()) -> tuple[str, ...]:
    """Parse ``fp8, flash_attn`` as ``("fp8", "flash-attn")``. ValueError suggests the nearest known words."""
    normalized_extra = {word.lower().replace("_", "-") for word in extra_words}
    spelt = {_strip_separators(word): word for word in (*ALIASES, *WANTS, *normalized_extra)}
    parts = [part.strip().lower().replace("_", "-") for part in wants.split(",")]
    words = [spelt.get(_strip_separators(part), part) for part in parts if part]
    if not words:
        raise ValueError("--wants names nothing; write for example --wants bf16,flash-attn")
    for word in words:
        if word not in WANTS and word not in ALIASES and word not in normalized_extra:
            raise ValueError(
                f"--wants {word} is not known{_suggest_wants(word, (*WANTS, *ALIASES, *normalized_extra))}"
            )
    return tuple(dict.fromkeys(word if word in normalized_extra else ALIASES.get(word, word) for word in words))


def _strip_separators(word: str) -> str:
    """``4-bit``, ``torch.compile``: dots and hyphens do not distinguish words."""
    return word.replace("-", "").replace(".", "")


def _suggest_wants(word: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word, list(known), 3, 0.5)
    return f"; nearest: {', '.join(near)}" if near else f"; it is one of {', '.join(WANTS[:12])} …"


def _model_facts(host: HostAccess, model: str) -> list[Fact]:
    """Accept ``7b``, a name that contains a size, a config.json, or a folder with one."""
    from gpuready.jobs import model_config

    count = parse_count(model) or None
    if count is not None and count < 100_000:
        raise ValueError(
            f"--model {model} would be a model of {count} parameters: write {model.strip()}b or {model.strip()}m"
        )
    if count is None:
        count = model_config.count_parameters_at_path(host, model, "--model") or model_config.find_size_in_name(model)
    if count is None:
        raise ValueError(f"--model {model} names no size: write 7b, a name such as Llama-3-8B, or a config.json")
    facts = [Fact("job.parameters", count, "--model", "stated")]
    return facts if parse_count(model) else [*facts, Fact("job.model", model, "--model", "stated")]
