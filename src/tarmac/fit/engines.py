"""What the files of DeepSpeed and accelerate say of a job: how it is sharded, and in which precision."""

from __future__ import annotations

from tarmac.fit.dialects import fsdp, optimizer
from tarmac.fit.reading import Reading, Stated, count, stage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def deepspeed(path: str, found: Mapping[str, Any]) -> Stated:
    one = Reading("deepspeed", path, found)
    one.take("micro_batch", count, "train_micro_batch_size_per_gpu")
    one.take("accumulation", count, "gradient_accumulation_steps")
    one.take("zero", stage, "zero_optimization.stage")
    one.take("tensor_parallel", count, "tensor_parallel.autotp_size")
    whole = one.value("train_batch_size", count)
    if whole and {"micro_batch", "accumulation"} <= set(one.fields):
        each = one.fields["micro_batch"] * one.fields["accumulation"]
        if whole % each:
            raise ValueError(
                f"{path}: train_batch_size {whole} is not a multiple of micro-batch times accumulation ({each})"
            )
        one.put("world", whole // each, "train_batch_size")
    for key, own in (("bf16", "bf16"), ("bfloat16", "bf16"), ("fp16", "fp16")):
        if one.on(f"{key}.enabled"):
            one.put("precision", own, f"{key}.enabled")
            break
    _deepspeed_offload(one)
    optimizer(one, "optimizer.type")
    if one.fields.get("optimizer") == "adamw" and not one.on("optimizer.params.torch_adam"):
        one.put("optimizer", "adamw_fused", "optimizer.type (DeepSpeed's own is fused)")
    if one.get("pipeline"):
        one.lessened.append("pipeline parallel is not counted")
    return one.stated()


def _deepspeed_offload(one: Reading) -> None:
    for key, own in (("offload_param", "parameters"), ("offload_optimizer", "optimizer")):
        device = one.get(f"zero_optimization.{key}.device")
        if device in ("cpu", "nvme"):
            one.put("offload", own, f"zero_optimization.{key}")
            return
    if one.on("zero_optimization.cpu_offload"):
        one.put("offload", "optimizer", "zero_optimization.cpu_offload")


def accelerate(path: str, found: Mapping[str, Any]) -> Stated:
    one = Reading("accelerate", path, found)
    one.take("world", count, "num_processes")
    half = str(found.get("mixed_precision") or "no").lower()
    if half in ("bf16", "fp16"):
        one.put("precision", f"amp-{half}", "mixed_precision, over weights in the checkpoint's dtype")
    elif half == "fp8":
        one.lessened.append("mixed_precision fp8 is counted as bf16")
        one.unmodelled.append("mixed_precision fp8 is counted as bf16")
        one.put("precision", "amp-bf16", "mixed_precision")
    kind = str(one.get("distributed_type") or "NO").upper()
    if kind == "DEEPSPEED":
        _accelerate_deepspeed(one)
    elif kind == "FSDP":
        fsdp(one, "fsdp_config.fsdp_sharding_strategy", "fsdp_config.fsdp_")
    elif kind in ("MEGATRON_LM", "TP"):
        one.lessened.append(f"distributed_type {kind} is not counted")
    return one.stated()


def _accelerate_deepspeed(one: Reading) -> None:
    inside = "deepspeed_config."
    one.take("zero", stage, f"{inside}zero_stage")
    one.take("accumulation", count, f"{inside}gradient_accumulation_steps")
    for key, own in (("offload_param_device", "parameters"), ("offload_optimizer_device", "optimizer")):
        if one.get(inside + key) in ("cpu", "nvme"):
            one.put("offload", own, inside + key)
            break
    file = one.get(f"{inside}deepspeed_config_file")
    if isinstance(file, str):
        one.inner.append(("deepspeed", file))
