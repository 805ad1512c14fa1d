"""Read axolotl's YAML, with axolotl's defaults for absent keys."""

from collections.abc import Mapping
from typing import Any

from gpuready.jobs.config_reader import ConfigReader, JobSettings, is_off, short_repr
from gpuready.jobs.huggingface import (
    UncountedKey,
    add_deepspeed_file,
    add_uncounted_keys,
    parse_fsdp_version,
    read_attention,
    read_checkpointing,
    read_fsdp_words,
    read_lora_adapter,
    read_lora_targets,
    read_optimizer,
    read_preference,
)

LORA_KERNEL_KEYS = ("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel", "lora_embedding_kernel")
LIGER_KEYS = ("liger_rms_norm", "liger_glu_activation", "liger_swiglu", "liger_rope")
FUSED_LOSS_KEYS = ("liger_fused_linear_cross_entropy", "cut_cross_entropy", "chunked_cross_entropy")

AXOLOTL_UNCOUNTED: tuple[UncountedKey, ...] = (
    ("lora_modules_to_save", "more", "trains whole modules beside the adapter"),
    ("lora_target_parameters", "more", "puts adapters on parameters that are no layers"),
    ("qat", "more", "keeps rounded copies of the weights"),
    ("fp8", "both", "computes in 8 bits"),
    ("gptq", "less", "loads weights of 4 bits, which are counted in 16"),
    ("use_onebitllms", "more", "keeps rounded copies of the weights"),
    ("model_quantization_config", "both", "loads the weights in a way of its own"),
    ("quantize_moe_experts", "less", "quantises experts, which are counted in 16 bits"),
    ("torch_compile", "both", "lets the compiler decide what is kept"),
    ("tiled_mlp", "less", "computes the MLP in pieces"),
    ("layer_offloading", "less", "keeps layers in host memory"),
    ("unfrozen_parameters", "less", "trains a part of the model, and all of it is counted"),
    ("lisa_n_layers", "less", "trains some layers at a time, and all are counted"),
    ("relora", "more", "merges adapters on the way"),
    ("reward_model", "both", "trains a reward model, on pairs and without the vocabulary"),
    ("process_reward_model", "both", "trains a reward model without the vocabulary"),
    ("diffusion", "more", "trains a diffusion model with passes of its own"),
    ("processor_type", "more", "feeds images or sound, and their layers and tokens take memory of their own"),
    ("use_scattermoe", "both", "has kernels of its own for the experts"),
    ("use_sonicmoe", "both", "has kernels of its own for the experts"),
    ("expert_parallel_size", "less", "spreads the experts over GPUs"),
    ("do_causal_lm_eval", "more", "generates in the evaluation"),
    ("eval_table_size", "more", "generates in the evaluation"),
)  # fmt: skip


def read_axolotl(path: str, config: Mapping[str, Any]) -> JobSettings:
    reader = ConfigReader("axolotl", path, config)
    reader.read_model_name("base_model")
    reader.set_field("loop", "trainer", "axolotl trains with the Trainer of transformers")
    reader.take_counts(micro_batch="micro_batch_size", accumulation="gradient_accumulation_steps")
    reader.take_counts(seq="sequence_len", tensor_parallel="tensor_parallel_size")
    if "seq" not in reader.fields:
        reader.set_field("seq", 512, "sequence_len (axolotl's default)")
    _read_axolotl_method(reader)
    _read_axolotl_precision(reader)
    read_optimizer(reader, "optimizer")
    _read_axolotl_attention(reader)
    _read_axolotl_loss(reader)
    _read_axolotl_packing(reader)
    _read_axolotl_checkpointing(reader)
    _note_lora_kernels(reader)
    read_preference(reader, str(reader.get_dotted("rl") or ""), "rl")
    _read_axolotl_parallelism(reader)
    add_uncounted_keys(reader, AXOLOTL_UNCOUNTED)
    _read_axolotl_evaluation(reader)
    return reader.to_job_settings()


def _read_axolotl_method(reader: ConfigReader) -> None:
    kind = reader.read_text("adapter")
    four, eight = reader.is_enabled("load_in_4bit"), reader.is_enabled("load_in_8bit")
    if kind in ("lora", "qlora"):
        reader.set_field("method", kind, "adapter")
    elif kind:
        reader.set_field("method", "lora", "adapter")
        reader.unmodelled.append(f"the adapter {short_repr(kind)} is counted as lora")
    if kind and (four or eight):
        reader.set_field("quant", "nf4" if four else "int8", "load_in_4bit" if four else "load_in_8bit")
        nested_value = reader.get_dotted("bnb_config_kwargs.bnb_4bit_use_double_quant")
        double = four and (nested_value is None or reader.is_enabled("bnb_config_kwargs.bnb_4bit_use_double_quant"))
        reader.set_field("double_quant", double, "load_in_4bit (axolotl quantises twice)")
    if not kind:
        return  # LoRA keys without an adapter have no effect
    read_lora_adapter(reader, "lora_r", "lora_dropout", "peft_use_dora")
    read_lora_targets(reader, "lora_target_modules")
    if reader.is_enabled("lora_target_linear"):
        reader.set_field("lora_targets", "all", "lora_target_linear")


def _note_lora_kernels(reader: ConfigReader) -> None:
    """axolotl uses its own LoRA kernels; with checkpointing they save memory in one layer only."""
    if reader.fields.get("method", "full") == "full":
        return
    stated = [reader.get_dotted(key) for key in LORA_KERNEL_KEYS if reader.get_dotted(key) is not None]
    by_itself = not (
        reader.is_enabled("load_in_8bit") or reader.get_dotted("rl") or reader.is_enabled("trust_remote_code")
    )
    if any(stated) or (not stated and by_itself):
        message = "axolotl's own LoRA kernels keep less than peft's layers, which are counted"
        reader.notes.append(message) if "checkpointing" in reader.fields else reader.lessened.append(message)


def _read_axolotl_precision(reader: ConfigReader) -> None:
    """axolotl loads the weights in the training precision."""
    for key, own in (("bf16", "bf16"), ("bfloat16", "bf16"), ("fp16", "fp16"), ("float16", "fp16")):
        value = reader.config.get(key)
        if value in ("auto", "full") or (value is not None and reader.is_enabled(key)):
            reader.set_field("precision", own, key)
            if key in ("bf16", "fp16") and value != "full":
                reader.set_field("autocast", own, key)
            return
    if reader.is_enabled("load_in_8bit"):
        reader.set_field("precision", "fp16", "load_in_8bit, and neither bf16 nor fp16")
    else:
        reader.set_field("precision", "fp32", "neither bf16 nor fp16")


def _read_axolotl_attention(reader: ConfigReader) -> None:
    for key, own in (("flash_attention", "flash"), ("sdp_attention", "sdpa"), ("eager_attention", "eager")):
        if reader.is_enabled(key):
            reader.set_field("attention", own, key)
            break
    else:
        for key in ("xformers_attention", "flex_attention", "sage_attention"):
            if reader.is_enabled(key):
                reader.set_field("attention", "flash", key)
                reader.notes.append(f"{key} is counted as flash attention")
                break
        else:
            read_attention(reader, "attn_implementation")
    sharded = reader.get_dotted("fsdp") or reader.get_dotted("fsdp_config")
    full = not reader.get_dotted("adapter") and not sharded and not reader.is_enabled("cut_cross_entropy")
    if full and reader.fields.get("attention", "sdpa") != "flash" and reader.fields["precision"] != "fp32":
        reader.unmodelled.append(
            "axolotl keeps embeddings, head and norms in fp32 without flash attention: that is not counted"
        )


def _read_axolotl_loss(reader: ConfigReader) -> None:
    kernels = [key for key in LIGER_KEYS if reader.is_enabled(key)]
    fused = [key for key in FUSED_LOSS_KEYS if reader.is_enabled(key)]
    plugins = (
        " ".join(map(str, reader.get_dotted("plugins") or ())) if isinstance(reader.get_dotted("plugins"), list) else ""
    )
    if not fused and "CutCrossEntropyPlugin" in plugins and reader.get_dotted("cut_cross_entropy") is None:
        fused = ["plugins (CutCrossEntropyPlugin)"]
    if fused:
        whole = fused[0].startswith("liger") and len(kernels) >= 2
        reader.set_field("loss", "liger" if whole else "fused", fused[0])
    elif kernels:
        reader.lessened.append("liger's layers keep less than those of transformers, which are counted")


def _read_axolotl_packing(reader: ConfigReader) -> None:
    """Packed samples are separated by lengths with flash attention, by a mask otherwise; rows are filled up."""
    if reader.is_enabled("sample_packing"):
        reader.set_field("packing", "rows", "sample_packing")
        if reader.fields.get("attention", "sdpa") != "flash":
            reader.set_field("padded", True, "sample_packing without flash attention")


def _read_axolotl_checkpointing(reader: ConfigReader) -> None:
    """Checkpointing is reentrant unless the file says otherwise, trains a part of the model, or uses ``rl``."""
    read_checkpointing(reader)
    has_kwargs = isinstance(reader.get_dotted("gradient_checkpointing_kwargs"), dict)
    plain = not has_kwargs and not reader.get_dotted("unfrozen_parameters") and not reader.get_dotted("rl")
    if reader.fields.get("checkpointing") == "nonreentrant" and plain and "offload" not in reader.fields:
        reader.set_field("checkpointing", "reentrant", "gradient_checkpointing (axolotl's default)")
    offloading = reader.get_dotted("activation_offloading")
    if not is_off(offloading):
        reader.set_field("checkpointing", "nonreentrant", "activation_offloading")
        reader.set_field("offload", "activations", "activation_offloading")
        if str(offloading) != "hidden_states":
            reader.unmodelled.append(
                "activation_offloading is counted as checkpoints in host memory; what is on its way is not"
            )


def _read_axolotl_parallelism(reader: ConfigReader) -> None:
    reader.take_counts(context_parallel=("context_parallel_size", "sequence_parallel_degree"))
    add_deepspeed_file(reader)
    if reader.get_dotted("fsdp") or reader.get_dotted("fsdp_config"):
        read_fsdp_words(reader, "fsdp_config")
        reader.take_first("fsdp_version", parse_fsdp_version, "fsdp_version")
    share = reader.read_count("dp_shard_size")
    if share:
        split = reader.fields.get("tensor_parallel", 1)
        reader.set_field("world", share * split, "dp_shard_size, and tensor_parallel_size")
    elif reader.is_enabled("use_ray"):
        reader.take_counts(world="ray_num_workers")


def _read_axolotl_evaluation(reader: ConfigReader) -> None:
    rows, mine = reader.read_count("eval_batch_size"), reader.fields.get("micro_batch", 1)
    if rows and rows > 2 * mine and reader.get_dotted("val_set_size") not in (None, 0, 0.0):
        reader.unmodelled.append(f"eval_batch_size {rows}: the evaluation is not counted")
