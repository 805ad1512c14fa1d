"""Read LLaMA-Factory's new files, which group their settings in named mappings."""

from collections.abc import Mapping
from typing import Any

from gpuready.jobs.config_reader import ConfigReader, JobSettings, parse_ratio, short_repr
from gpuready.jobs.huggingface import (
    add_deepspeed_file,
    add_uncounted_keys,
    read_attention,
    read_lora_targets,
    read_optimizer,
    read_preference,
)

FACTORY_UNCOUNTED = (("dist_config.ep_size", "less", "spreads the experts over GPUs"),)


def read_llama_factory(path: str, config: Mapping[str, Any]) -> JobSettings:
    reader = ConfigReader("llama-factory", path, config)
    if "cutoff_len" not in config and "micro_batch_size" not in config and "learning_rate" not in config:
        raise ValueError(f"{path} sets up no training: it has no cutoff_len, micro_batch_size or learning_rate")
    reader.read_model_name("model")
    reader.set_field("loop", "trainer", "LLaMA-Factory's own loop")
    reader.take_counts(micro_batch="micro_batch_size", seq="cutoff_len")
    _read_factory_accumulation(reader)
    _read_factory_method(reader)
    precise = reader.get_dotted("bf16") is not False
    reader.set_field("precision", "bf16" if precise else "fp32", "bf16 (its default)" if precise else "bf16")
    key = "enable_activation_checkpointing"
    reader.set_field(
        "checkpointing", "none" if reader.get_dotted(key) is False else "nonreentrant", f"{key} (its default)"
    )
    read_attention(reader, "flash_attn")
    read_optimizer(reader, "optim_config.name")
    kernels = reader.get_dotted("kernel_config.name")
    if kernels:
        reader.add_uncounted(f"kernel_config {short_repr(kernels)} is not counted", "less")
    _read_factory_parallelism(reader)
    read_preference(reader, str(reader.get_dotted("stage") or ""), "stage")
    add_uncounted_keys(reader, FACTORY_UNCOUNTED)
    return reader.to_job_settings()


def _read_factory_accumulation(reader: ConfigReader) -> None:
    whole, each = reader.read_count("global_batch_size"), reader.fields.get("micro_batch", 1)
    if whole and whole % each == 0:
        reader.set_field("accumulation", whole // each, "global_batch_size, on one GPU")


def _read_factory_method(reader: ConfigReader) -> None:
    kind = reader.get_dotted("peft_config.name")
    if kind == "lora":
        reader.set_field("method", "lora", "peft_config.name")
        reader.take_counts(lora_r="peft_config.r")
        reader.take_first("lora_dropout", parse_ratio, "peft_config.lora_dropout")
        read_lora_targets(reader, "peft_config.target_modules")
        _read_factory_quantisation(reader)
    elif kind == "freeze":
        reader.add_uncounted("peft_config trains some layers, and all are counted", "less")
    elif kind:
        reader.add_uncounted(f"peft_config {short_repr(kind)} is counted as full training", "both")


def _read_factory_quantisation(reader: ConfigReader) -> None:
    bits = reader.get_dotted("quant_config.quantization_bit")
    if bits in (4, 8, "4", "8"):
        reader.set_field("quant", "nf4" if str(bits) == "4" else "int8", "quant_config.quantization_bit")
        reader.set_field("method", "qlora" if str(bits) == "4" else "lora", "quant_config.quantization_bit")
        reader.set_field("double_quant", str(bits) == "4", "quant_config (it quantises twice)")


def _read_factory_parallelism(reader: ConfigReader) -> None:
    reader.take_counts(context_parallel="cp_size")
    reader.take_counts(world="mp_shard_size")
    kind = str(reader.get_dotted("dist_config.name") or "")
    if kind == "deepspeed":
        add_deepspeed_file(reader, "dist_config.config_file")
    elif "fsdp" in kind:
        reader.set_field("fsdp", True, "dist_config.name")
        if reader.fields.get("method", "full") == "full" and reader.fields["precision"] == "bf16":
            reader.set_field("fp32_shards", True, "full training, which it loads in fp32")
    elif not kind and reader.fields.get("method", "full") == "full" and reader.fields["precision"] == "bf16":
        reader.set_field("precision", "amp-bf16", "full training, which it loads in fp32")
    elif kind:
        reader.add_uncounted(f"dist_config {short_repr(kind)} is not counted", "both")
