"""Read the files of DeepSpeed and accelerate: how a job is sharded, and in which precision."""

from collections.abc import Mapping
from typing import Any

from gpuready.fit.job.records import AUTO_BUCKET
from gpuready.jobs.config_reader import (
    ConfigReader,
    JobSettings,
    parse_amount,
    parse_bool_value,
    parse_mapping,
    parse_positive_int,
    parse_zero_stage,
)
from gpuready.jobs.huggingface import UncountedKey, add_uncounted_keys, read_fsdp, read_optimizer


def read_deepspeed(path: str, config: Mapping[str, Any]) -> JobSettings:
    reader = ConfigReader("deepspeed", path, config)
    reader.take_counts(micro_batch="train_micro_batch_size_per_gpu", accumulation="gradient_accumulation_steps")
    _read_deepspeed_stage(reader)
    reader.take_counts(tensor_parallel="tensor_parallel.autotp_size", context_parallel="sequence_parallel_size")
    whole = reader.read_count("train_batch_size")
    if whole and {"micro_batch", "accumulation"} <= set(reader.fields):
        each = reader.fields["micro_batch"] * reader.fields["accumulation"]
        if whole % each:
            raise ValueError(
                f"{path}: train_batch_size {whole} is not a multiple of micro-batch times accumulation ({each})"
            )
        reader.set_field("world", whole // each, "train_batch_size")
    for key, own in (("bf16", "bf16"), ("bfloat16", "bf16"), ("fp16", "fp16")):
        if reader.is_enabled(f"{key}.enabled"):
            reader.set_field("precision", own, f"{key}.enabled")
            break
    if reader.fields.get("zero") == 0 and "precision" in reader.fields:
        reader.add_uncounted(
            "DeepSpeed keeps an fp32 copy of 16-bit weights without ZeRO too: that is not counted", "more"
        )
    _read_deepspeed_offload(reader)
    _read_deepspeed_buckets(reader)
    read_optimizer(reader, "optimizer.type")
    add_uncounted_keys(reader, DEEPSPEED_UNCOUNTED)
    if reader.fields.get("optimizer") == "adamw" and not reader.is_enabled("optimizer.params.torch_adam"):
        reader.set_field("optimizer", "adamw_fused", "optimizer.type (DeepSpeed's own is fused)")
    return reader.to_job_settings()


DEEPSPEED_SECTIONS = (
    "zero_optimization",
    "bf16",
    "bfloat16",
    "fp16",
    "optimizer",
    "tensor_parallel",
    "activation_checkpointing",
)
DEEPSPEED_UNCOUNTED: tuple[UncountedKey, ...] = (
    ("pipeline", "less", "shares the layers among GPUs"),
    ("activation_checkpointing.partition_activations", "less", "shares checkpoints among GPUs"),
    ("activation_checkpointing.cpu_checkpointing", "less", "keeps checkpoints in host memory"),
    ("zero_optimization.zero_quantized_weights", "both", "gathers weights in 8 bits"),
    ("zero_optimization.zero_hpz_partition_size", "more", "keeps a second share of the weights on each node"),
    ("zero_optimization.mics_shard_size", "more", "shares among fewer GPUs than there are"),
    ("compression_training", "both", "changes the weights"),
    ("hybrid_engine.enabled", "more", "keeps an engine beside the step"),
    ("torch_autocast.enabled", "both", "runs under autocast"),
)  # fmt: skip
ACCELERATE_UNCOUNTED: tuple[UncountedKey, ...] = (
    ("use_kt", "less", "keeps experts on the CPU"),
    ("kt_config", "less", "keeps experts on the CPU"),
    ("dynamo_config", "both", "lets the compiler decide what is kept"),
)  # fmt: skip


BUCKET_KEYS = {
    "reduce_bucket": "reduce_bucket_size",
    "prefetch_bucket": "stage3_prefetch_bucket_size",
    "persistence": "stage3_param_persistence_threshold",
    "live_parameters": "stage3_max_live_parameters",
    "reuse_distance": "stage3_max_reuse_distance",
    "sub_group": "sub_group_size",
}
AUTO_BUCKETS = ("reduce_bucket", "prefetch_bucket", "persistence")  # "auto" derives these from the hidden size


def _read_deepspeed_buckets(reader: ConfigReader) -> None:
    """Read the bucket sizes (in values), and whether there are two buckets."""
    zero = reader.config.get("zero_optimization")
    for field, key in BUCKET_KEYS.items():
        if isinstance(zero, dict) and zero.get(key) == "auto" and field in AUTO_BUCKETS:
            reader.set_field(field, AUTO_BUCKET, f"zero_optimization.{key} (auto)")
        else:
            reader.take_first(field, parse_amount, f"zero_optimization.{key}")
    for field, key in (("overlap", "overlap_comm"), ("contiguous_gradients", "contiguous_gradients")):
        reader.take_first(field, parse_bool_value, f"zero_optimization.{key}")


def _read_deepspeed_stage(reader: ConfigReader) -> None:
    """Read the ZeRO stage. ``true`` is the old notation for stage 1."""
    zero = reader.config.get("zero_optimization")
    if isinstance(zero, bool):
        reader.set_field("zero", int(zero), "zero_optimization")
        return
    for key in DEEPSPEED_SECTIONS:
        reader.parse_value(key, parse_mapping)
    if isinstance(zero, dict) and zero.get("stage") == "auto":
        raise ValueError(f"{reader.path}: zero_optimization.stage cannot be auto: it is 0, 1, 2 or 3")
    reader.take_first("zero", parse_zero_stage, "zero_optimization.stage")


def _parse_offload_device(value: object) -> str:
    if value not in ("cpu", "nvme"):
        raise ValueError("cpu, nvme or none")
    return str(value)


def _read_deepspeed_offload(reader: ConfigReader) -> None:
    for key, own in (("offload_param", "parameters"), ("offload_optimizer", "optimizer")):
        reader.parse_value(f"zero_optimization.{key}", parse_mapping)
        device = reader.parse_value(f"zero_optimization.{key}.device", _parse_offload_device)
        if device in ("cpu", "nvme"):
            reader.set_field("offload", own, f"zero_optimization.{key}")
            return
    if reader.is_enabled("zero_optimization.cpu_offload"):
        reader.set_field("offload", "optimizer", "zero_optimization.cpu_offload")


def read_accelerate(path: str, config: Mapping[str, Any]) -> JobSettings:
    reader = ConfigReader("accelerate", path, config)
    reader.take_counts(world="num_processes")
    half = str(config.get("mixed_precision") or "no").lower()
    if half in ("bf16", "fp16"):
        reader.set_field("precision", f"amp-{half}", "mixed_precision, over weights in the checkpoint's dtype")
    elif half == "fp8":
        reader.add_uncounted("mixed_precision fp8 is counted as bf16", "both")
        reader.set_field("precision", "amp-bf16", "mixed_precision")
    kind = str(reader.get_dotted("distributed_type") or "NO").upper()
    if kind == "DEEPSPEED":
        _read_accelerate_deepspeed(reader)
    elif kind == "FSDP":
        read_fsdp(reader, "fsdp_config.fsdp_sharding_strategy", "fsdp_config.fsdp_")
    elif kind in ("MEGATRON_LM", "TP"):
        reader.add_uncounted(f"distributed_type {kind} is not counted", "both")
    add_uncounted_keys(reader, ACCELERATE_UNCOUNTED)
    _read_accelerate_parallelism(reader)
    return reader.to_job_settings()


def _read_accelerate_parallelism(reader: ConfigReader) -> None:
    """Read how accelerate splits the ranks: by weights, by layer, by sequence."""
    at = "parallelism_config.parallelism_config_"
    sizes = {
        name: reader.parse_value(f"{at}{name}_size", _parse_nonnegative_int) or 1
        for name in ("cp", "sp", "tp", "dp_shard")
    }
    if sizes["cp"] * sizes["sp"] > 1:
        reader.set_field("context_parallel", sizes["cp"] * sizes["sp"], f"{at}cp_size and sp_size")
    if sizes["tp"] > 1:
        reader.set_field("tensor_parallel", sizes["tp"], f"{at}tp_size")
    if sizes["dp_shard"] > 1:
        reader.set_field("world", sizes["dp_shard"] * sizes["tp"] * sizes["cp"] * sizes["sp"], f"{at}dp_shard_size")


def _parse_nonnegative_int(value: object) -> int:
    return 0 if value == 0 else parse_positive_int(value)


def _read_accelerate_deepspeed(reader: ConfigReader) -> None:
    inside = "deepspeed_config."
    reader.take_first("zero", parse_zero_stage, f"{inside}zero_stage")
    reader.take_counts(accumulation=f"{inside}gradient_accumulation_steps")
    for key, own in (("offload_param_device", "parameters"), ("offload_optimizer_device", "optimizer")):
        if reader.get_dotted(inside + key) in ("cpu", "nvme"):
            reader.set_field("offload", own, inside + key)
            break
    file = reader.get_dotted(f"{inside}deepspeed_config_file")
    if isinstance(file, str):
        reader.nested_files.append(("deepspeed", file))
