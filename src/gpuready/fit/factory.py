"""Read LLaMA-Factory's new files, which group their settings in named mappings."""

from __future__ import annotations

from gpuready.fit.dialects import asides, attention, deepspeed_named, optimizer, preference, targets
from gpuready.fit.reading import Reading, Stated, count, ratio, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

ASIDES = (("dist_config.ep_size", "less", "spreads the experts over GPUs"),)


def factory(path: str, found: Mapping[str, Any]) -> Stated:
    one = Reading("llama-factory", path, found)
    if "cutoff_len" not in found and "micro_batch_size" not in found and "learning_rate" not in found:
        raise ValueError(
            f"{path} sets up no training: it has no cutoff_len, micro_batch_size or learning_rate"
        )
    one.name("model")
    one.put("loop", "trainer", "LLaMA-Factory's own loop")
    one.take("micro_batch", count, "micro_batch_size")
    one.take("seq", count, "cutoff_len")
    _accumulation(one)
    _method(one)
    precise = one.get("bf16") is not False
    one.put("precision", "bf16" if precise else "fp32", "bf16 (its default)" if precise else "bf16")
    key = "enable_activation_checkpointing"
    one.put("checkpointing", "none" if one.get(key) is False else "nonreentrant", f"{key} (its default)")
    attention(one, "flash_attn")
    optimizer(one, "optim_config.name")
    kernels = one.get("kernel_config.name")
    if kernels:
        one.aside(f"kernel_config {shown(kernels)} is not counted", "less")
    if str(one.get("batching_strategy") or "normal") == "normal" and one.fields.get("micro_batch", 1) > 1:
        one.put("padded", True, "batching_strategy")
    _spread(one)
    preference(one, str(one.get("stage") or ""), "stage")
    asides(one, ASIDES)
    return one.stated()


def _accumulation(one: Reading) -> None:
    whole, each = one.value("global_batch_size", count), one.fields.get("micro_batch", 1)
    if whole and whole % each == 0:
        one.put("accumulation", whole // each, "global_batch_size, on one GPU")


def _method(one: Reading) -> None:
    kind = one.get("peft_config.name")
    if kind == "lora":
        one.put("method", "lora", "peft_config.name")
        one.take("lora_r", count, "peft_config.r")
        one.take("lora_dropout", ratio, "peft_config.lora_dropout")
        targets(one, "peft_config.target_modules")
        _quantised(one)
    elif kind == "freeze":
        one.aside("peft_config trains some layers, and all are counted", "less")
    elif kind:
        one.aside(f"peft_config {shown(kind)} is counted as full training", "both")


def _quantised(one: Reading) -> None:
    bits = one.get("quant_config.quantization_bit")
    if bits in (4, 8, "4", "8"):
        one.put("quant", "nf4" if str(bits) == "4" else "int8", "quant_config.quantization_bit")
        one.put("method", "qlora" if str(bits) == "4" else "lora", "quant_config.quantization_bit")
        one.put("double_quant", str(bits) == "4", "quant_config (it quantises twice)")


def _spread(one: Reading) -> None:
    if (one.value("cp_size", count) or 1) > 1:
        one.aside("cp_size shares the sequence among GPUs: that is not counted", "less")
    one.take("world", count, "mp_shard_size")
    kind = str(one.get("dist_config.name") or "")
    if kind == "deepspeed":
        deepspeed_named(one, "dist_config.config_file")
    elif "fsdp" in kind:
        one.put("fsdp", True, "dist_config.name")
        if one.fields.get("method", "full") == "full" and one.fields["precision"] == "bf16":
            one.put("fp32_shards", True, "full training, which it loads in fp32")
    elif not kind and one.fields.get("method", "full") == "full" and one.fields["precision"] == "bf16":
        one.put("precision", "amp-bf16", "full training, which it loads in fp32")
    elif kind:
        one.aside(f"dist_config {shown(kind)} is not counted", "both")
