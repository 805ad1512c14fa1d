"""Estimate the size of a job in microseconds. Only orders what is tried first; never shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuready.fit.job.records import FitJob

STATE_BYTES = {"adamw_8bit": 2, "paged_adamw_8bit": 0, "paged_adamw": 0, "adafactor": 0, "adafactor_torch": 0, "sgd": 0}
"""Bytes of optimizer state per trained parameter, if not two values."""


def _config_number(config: Mapping[str, Any], *names: str, default: int = 0) -> int:
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return default


def estimate_shape(config: Mapping[str, Any]) -> tuple[int, int, int, int, int]:
    """Return hidden size, MLP size, layers, vocabulary and, roughly, the number of parameters."""
    inner = config.get("text_config")
    config = inner if isinstance(inner, dict) else config
    hidden, layers = (
        _config_number(config, "hidden_size", "n_embd"),
        _config_number(config, "num_hidden_layers", "n_layer"),
    )
    wide = _config_number(config, "intermediate_size", "n_inner", default=4 * hidden)
    vocab = _config_number(config, "vocab_size")
    experts = _config_number(config, "num_local_experts", "num_experts", default=1)
    each = _config_number(config, "moe_intermediate_size", default=wide) if experts > 1 else wide
    embeddings = vocab * hidden * (1 if config.get("tie_word_embeddings") else 2)
    return hidden, wide, layers, vocab, embeddings + layers * hidden * (3 * hidden + 3 * each * experts)


def estimate_peak(job: FitJob) -> float:
    """Return the estimated peak in bytes."""
    hidden, wide, layers, vocab, parameters = estimate_shape(job.model)
    number = 4 if job.precision in ("fp32", "amp-bf16", "amp-fp16") else 2
    moving = 4 if job.precision == "fp32" else 2
    quant = job.quant or ("nf4" if job.method == "qlora" else "")
    weights = parameters * (0.62 if quant in ("nf4", "fp4") else 1.1 if quant == "int8" else number)
    tokens = job.micro_batch * job.seq
    if job.task == "generate":
        cache = 4 * (job.seq + job.new_tokens) * job.micro_batch * layers * hidden / 4
        return weights / job.tensor_parallel + cache / job.tensor_parallel + tokens * (8 * hidden + 4 * wide)
    trained, trained_width = (parameters, number) if job.method == "full" else (job.lora_r * layers * hidden * 14, 4)
    share = max(job.world, 1)
    gradients = trained * trained_width / (share if job.zero >= 2 or job.fsdp else 1)
    state = trained * STATE_BYTES.get(job.optimizer, 2 * trained_width) / (share if job.zero >= 1 or job.fsdp else 1)
    spare = gradients if job.optimizer == "adamw" and job.offload not in ("optimizer", "parameters") else 0
    other = parameters * number if job.dpo and (job.method == "full" or job.loop == "plain") else 0.0
    if job.zero >= 3 or job.fsdp:
        weights, other = weights / share, other / share
    if job.offload in ("optimizer", "parameters"):
        state, weights = 0.0, weights if job.offload == "optimizer" else weights / 10
    saved = _estimate_activations(job, tokens, hidden, wide, layers, moving)
    loss = tokens * vocab * (12 if job.loss == "plain" else 1)
    twice = 1.6 if job.dpo else 1
    split = job.tensor_parallel
    still = (weights + other + state + gradients) / split
    return max(still + spare / split, still + twice * (saved / split + loss / split))


def _estimate_activations(job: FitJob, tokens: int, hidden: int, wide: int, layers: int, number: int) -> float:
    layer = tokens * (10 * hidden + 4 * wide) * number
    if job.method != "full":
        layer += tokens * (3 * hidden + wide) * 4
    if job.attention == "eager":
        layer += 6 * job.micro_batch * job.seq * job.seq * max(hidden // 128, 1)
    if job.checkpointing == "none":
        return float(layers * layer)
    kept = 0 if job.offload == "activations" else layers * tokens * hidden * number
    return float(kept + layer)
