"""Read the files of DeepSpeed and accelerate: how a job is sharded, and in which precision."""

from __future__ import annotations

from gpuready.fit.dialects import asides, fsdp, optimizer
from gpuready.fit.job import AUTO
from gpuready.fit.reading import Reading, Stated, amount, count, mapping, stage, switch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gpuready.fit.dialects import Aside


def deepspeed(path: str, found: Mapping[str, Any]) -> Stated:
    one = Reading("deepspeed", path, found)
    one.take("micro_batch", count, "train_micro_batch_size_per_gpu")
    one.take("accumulation", count, "gradient_accumulation_steps")
    _deepspeed_stage(one)
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
    if one.fields.get("zero") == 0 and "precision" in one.fields:
        one.aside(
            "DeepSpeed keeps an fp32 copy of 16-bit weights without ZeRO too: that is not counted", "more"
        )
    _deepspeed_offload(one)
    _deepspeed_buckets(one)
    optimizer(one, "optimizer.type")
    asides(one, DEEPSPEED)
    if one.fields.get("optimizer") == "adamw" and not one.on("optimizer.params.torch_adam"):
        one.put("optimizer", "adamw_fused", "optimizer.type (DeepSpeed's own is fused)")
    return one.stated()


SECTIONS = (
    "zero_optimization",
    "bf16",
    "bfloat16",
    "fp16",
    "optimizer",
    "tensor_parallel",
    "activation_checkpointing",
)
DEEPSPEED: tuple[Aside, ...] = (
    ("pipeline", "less", "shares the layers among GPUs"),
    ("activation_checkpointing.partition_activations", "less", "shares checkpoints among GPUs"),
    ("activation_checkpointing.cpu_checkpointing", "less", "keeps checkpoints in host memory"),
    ("zero_optimization.zero_quantized_weights", "both", "gathers weights in 8 bits"),
    ("zero_optimization.zero_hpz_partition_size", "more", "keeps a second share of the weights on each node"),
    ("zero_optimization.mics_shard_size", "more", "shares among fewer GPUs than there are"),
    ("compression_training", "both", "changes the weights"),
    ("hybrid_engine.enabled", "more", "keeps an engine beside the step"),
    ("sequence_parallel_size", "less", "shares the sequence among GPUs"),
    ("torch_autocast.enabled", "both", "runs under autocast"),
)  # fmt: skip
ACCELERATE: tuple[Aside, ...] = (
    ("use_kt", "less", "keeps experts on the CPU"),
    ("kt_config", "less", "keeps experts on the CPU"),
    ("dynamo_config", "both", "lets the compiler decide what is kept"),
)  # fmt: skip


BUCKETS = {
    "reduce_bucket": "reduce_bucket_size",
    "prefetch_bucket": "stage3_prefetch_bucket_size",
    "persistence": "stage3_param_persistence_threshold",
    "live_parameters": "stage3_max_live_parameters",
    "reuse_distance": "stage3_max_reuse_distance",
    "sub_group": "sub_group_size",
}
BY_WIDTH = ("reduce_bucket", "prefetch_bucket", "persistence")  # "auto" derives these from the hidden size


def _deepspeed_buckets(one: Reading) -> None:
    """Read the bucket sizes (in values), and whether there are two buckets."""
    zero = one.found.get("zero_optimization")
    for field, key in BUCKETS.items():
        if isinstance(zero, dict) and zero.get(key) == "auto" and field in BY_WIDTH:
            one.put(field, AUTO, f"zero_optimization.{key} (auto)")
        else:
            one.take(field, amount, f"zero_optimization.{key}")
    for field, key in (("overlap", "overlap_comm"), ("contiguous_gradients", "contiguous_gradients")):
        one.take(field, switch, f"zero_optimization.{key}")


def _deepspeed_stage(one: Reading) -> None:
    """Read the ZeRO stage. ``true`` is the old notation for stage 1."""
    zero = one.found.get("zero_optimization")
    if isinstance(zero, bool):
        one.put("zero", int(zero), "zero_optimization")
        return
    for key in SECTIONS:
        one.value(key, mapping)
    if isinstance(zero, dict) and zero.get("stage") == "auto":
        raise ValueError(f"{one.path}: zero_optimization.stage cannot be auto: it is 0, 1, 2 or 3")
    one.take("zero", stage, "zero_optimization.stage")


def _device(value: object) -> str:
    if value not in ("cpu", "nvme"):
        raise ValueError("cpu, nvme or none")
    return str(value)


def _deepspeed_offload(one: Reading) -> None:
    for key, own in (("offload_param", "parameters"), ("offload_optimizer", "optimizer")):
        one.value(f"zero_optimization.{key}", mapping)
        device = one.value(f"zero_optimization.{key}.device", _device)
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
        one.aside(f"distributed_type {kind} is not counted", "both")
    asides(one, ACCELERATE)
    _parallelism(one)
    return one.stated()


def _parallelism(one: Reading) -> None:
    """Read how accelerate splits the ranks: by weights, by layer, by sequence."""
    at = "parallelism_config.parallelism_config_"
    sizes = {name: one.value(f"{at}{name}_size", _whole) or 1 for name in ("cp", "sp", "tp", "dp_shard")}
    for name in ("cp", "sp"):
        if sizes[name] > 1:
            one.aside(
                f"{name}_size {sizes[name]} shares the sequence among GPUs: that is not counted", "less"
            )
    if sizes["tp"] > 1:
        one.put("tensor_parallel", sizes["tp"], f"{at}tp_size")
    if sizes["dp_shard"] > 1:
        one.put("world", sizes["dp_shard"] * sizes["tp"], f"{at}dp_shard_size")


def _whole(value: object) -> int:
    return 0 if value == 0 else count(value)


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
