"""What the frameworks' own files say of a job: axolotl, Hugging Face arguments and LLaMA-Factory.

One reader for each kind; what changes the memory and is not counted is listed as such, and then nothing "fits".
"""

from __future__ import annotations

from tarmac.fit.reading import Reading, Stated, count, ratio, shown, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

OPTIMIZERS = {
    "adamw_torch": "adamw", "adamw": "adamw", "adamw_hf": "adamw", "adam": "adamw", "adamw_torch_fused": "adamw_fused",
    "adamw_apex_fused": "adamw_fused", "adamw_bnb_8bit": "adamw_8bit", "adamw_8bit": "adamw_8bit",
    "paged_adamw_8bit": "paged_adamw_8bit", "paged_adamw_32bit": "paged_adamw", "paged_adamw": "paged_adamw",
    "adafactor": "adafactor", "sgd": "sgd", "fusedadam": "adamw_fused", "cpuadam": "adamw", "deepspeedcpuadam": "adamw",
}  # fmt: skip
"""The names of optimizers in the files, and the one of ours that holds the same."""

ATTENTION = {
    "flash_attention_2": "flash", "flash_attention_3": "flash", "flash_attn": "flash", "fa2": "flash", "fa3": "flash",
    "flash": "flash", "sdpa": "sdpa", "eager": "eager", "disabled": "eager", "kernels-community/flash-attn2": "flash",
    "kernels-community/vllm-flash-attn3": "flash", "kernels-community/flash-attn3": "flash",
}  # fmt: skip
WIDE = {
    "fp32": "fp32",
    "float32": "fp32",
    "bf16": "bf16",
    "bfloat16": "bf16",
    "fp16": "fp16",
    "float16": "fp16",
}
QV = {"q_proj", "v_proj"}
ALL = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


# -- pieces that several kinds share ------------------------------------------------------------------------


def optimizer(reading: Reading, *keys: str) -> None:
    for key in keys:
        name = reading.value(key, text)
        if name is None:
            continue
        own = OPTIMIZERS.get(name.lower().replace("-", "_"))
        if own is None:
            for side in (reading.unmodelled, reading.lessened):
                side.append(f"the optimizer {shown(name)} ({key}) is counted as adamw")
        reading.put("optimizer", own or "adamw", key)
        return


def attention(reading: Reading, *keys: str) -> None:
    for key in keys:
        word = reading.value(key, text)
        if word is not None:
            own = ATTENTION.get(word.lower())
            if own is None:
                reading.unmodelled.append(f"the attention {shown(word)} ({key}) is counted as sdpa")
            reading.put("attention", own or "sdpa", key)
            return


def targets(reading: Reading, key: str) -> None:
    """``all-linear``, one name, names in a text, or a list of them."""
    value = reading.get(key)
    if value is None:
        return
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",")]
    if not isinstance(value, list) or not value or not all(isinstance(name, str) and name for name in value):
        raise ValueError(f"{reading.path}: {key} must be a list of module names, not {shown(value)}")
    names = {name.rpartition(".")[2] for name in value}
    if any(not name.replace("_", "a").replace("-", "a").isalnum() for name in names):
        reading.notes.append(f"{key} is a pattern: counted as all linear layers")
        names = {"all"}
    if names & {"all", "all-linear"} or names >= ALL:
        reading.put("lora_targets", "all", key)
    else:
        reading.put("lora_targets", "qv" if names == QV else tuple(sorted(names)), key)


def adapter(reading: Reading, rank: str, dropout: str, dora: str) -> None:
    reading.take("lora_r", count, rank)
    reading.take("lora_dropout", ratio, dropout)
    if reading.on(dora):
        reading.put("dora", True, dora)


def checkpointing(reading: Reading, key: str = "gradient_checkpointing") -> None:
    value = reading.get(key)
    if isinstance(value, str) and value.lower() in ("unsloth", "offload", "offload_disk"):
        reading.put("checkpointing", "nonreentrant", key)
        reading.put("offload", "activations", key)
    elif reading.on(key):
        reentrant = reading.on("gradient_checkpointing_kwargs.use_reentrant")
        reading.put("checkpointing", "reentrant" if reentrant else "nonreentrant", key)


def fsdp(reading: Reading, sharding: str, prefix: str) -> None:
    """FSDP as accelerate and the Trainer write it: the full kind shards everything, the others less."""
    kind = str(reading.get(sharding) or "FULL_SHARD").upper()
    if "NO_SHARD" in kind or kind in ("4",):
        return
    if "GRAD_OP" in kind or kind in ("2",) or reading.get(f"{prefix}reshard_after_forward") is False:
        reading.put("zero", 2, sharding)
        reading.notes.append("FSDP without resharding after the forward is counted as ZeRO-2")
        return
    reading.put("fsdp", True, sharding)
    if reading.on(f"{prefix}offload_params") or reading.on(f"{prefix}cpu_offload"):
        reading.put("offload", "parameters", f"{prefix}offload_params")
    if reading.on(f"{prefix}activation_checkpointing"):
        reading.put("checkpointing", "nonreentrant", f"{prefix}activation_checkpointing")


def deepspeed_named(reading: Reading, key: str = "deepspeed") -> None:
    """The DeepSpeed settings of a file: the path of another, or written out."""
    value = reading.get(key)
    if isinstance(value, (str, dict)) and value:
        reading.inner.append(("deepspeed", value))


# -- axolotl ------------------------------------------------------------------------------------------------


def axolotl(path: str, found: Mapping[str, Any]) -> Stated:
    one = Reading("axolotl", path, found)
    one.name("base_model")
    one.put("loop", "trainer", "axolotl trains with the Trainer of transformers")
    for field, key in (
        ("micro_batch", "micro_batch_size"), ("accumulation", "gradient_accumulation_steps"),
        ("seq", "sequence_len"), ("tensor_parallel", "tensor_parallel_size"),
    ):  # fmt: skip
        one.take(field, count, key)
    if "seq" not in one.fields:
        one.put("seq", 512, "sequence_len (axolotl's default)")
    _axolotl_method(one)
    _axolotl_precision(one)
    optimizer(one, "optimizer")
    checkpointing(one)
    _axolotl_attention(one)
    _axolotl_loss(one)
    if not one.on("sample_packing") and one.fields.get("micro_batch", 1) > 1:
        one.put("padded", True, "sample_packing")
    _preference(one, str(one.get("rl") or ""), "rl")
    if (one.value("context_parallel_size", count) or one.value("sequence_parallel_degree", count) or 1) > 1:
        one.lessened.append("the sequence is shared among GPUs: that is not counted")
    deepspeed_named(one)
    if one.get("fsdp") or one.get("fsdp_config"):
        _axolotl_fsdp(one)
    return one.stated()


def _axolotl_method(one: Reading) -> None:
    kind = one.value("adapter", text)
    four, eight = one.on("load_in_4bit"), one.on("load_in_8bit")
    if kind in ("lora", "qlora"):
        one.put("method", kind, "adapter")
    elif kind:
        one.put("method", "lora", "adapter")
        one.unmodelled.append(f"the adapter {shown(kind)} is counted as lora")
    if kind and (four or eight):
        one.put("quant", "nf4" if four else "int8", "load_in_4bit" if four else "load_in_8bit")
        one.put("double_quant", four, "load_in_4bit (axolotl quantises twice)")
    adapter(one, "lora_r", "lora_dropout", "peft_use_dora")
    targets(one, "lora_target_modules")
    if one.on("lora_target_linear"):
        one.put("lora_targets", "all", "lora_target_linear")
    _beyond(one, "lora_modules_to_save", "trains whole modules beside the adapter")


def _beyond(one: Reading, key: str, what: str) -> None:
    if one.get(key):
        one.unmodelled.append(f"{key} {what}: that is not counted")


def _axolotl_precision(one: Reading) -> None:
    """axolotl loads the weights in the precision that it trains in."""
    for key, own in (("bf16", "bf16"), ("bfloat16", "bf16"), ("fp16", "fp16"), ("float16", "fp16")):
        value = one.found.get(key)
        if value in ("auto", "full") or (value is not None and one.on(key)):
            one.put("precision", own, key)
            if key in ("bf16", "fp16") and value != "full":
                one.put("autocast", own, key)
            return
    one.put("precision", "fp32", "neither bf16 nor fp16")


def _axolotl_attention(one: Reading) -> None:
    for key, own in (("flash_attention", "flash"), ("sdp_attention", "sdpa"), ("eager_attention", "eager")):
        if one.on(key):
            one.put("attention", own, key)
            return
    for key in ("xformers_attention", "flex_attention", "sage_attention"):
        if one.on(key):
            one.put("attention", "flash", key)
            one.notes.append(f"{key} is counted as flash attention")
            return
    attention(one, "attn_implementation")


def _axolotl_loss(one: Reading) -> None:
    kernels = [
        key for key in ("liger_rms_norm", "liger_glu_activation", "liger_swiglu", "liger_rope") if one.on(key)
    ]
    fused = [
        key
        for key in ("liger_fused_linear_cross_entropy", "cut_cross_entropy", "chunked_cross_entropy")
        if one.on(key)
    ]
    if fused:
        whole = fused[0].startswith("liger") and len(kernels) >= 2
        one.put("loss", "liger" if whole else "fused", fused[0])


def _preference(one: Reading, word: str, key: str) -> None:
    if word.lower() in ("dpo", "ipo"):
        one.put("dpo", True, key)
    elif word and word.lower() not in ("sft", "pt", "none"):
        one.unmodelled.append(
            f"{key}: {shown(word)} trains with more than one model or batch: only the step itself is counted"
        )


def _axolotl_fsdp(one: Reading) -> None:
    inner = one.get("fsdp_config")
    plain = {str(k).removeprefix("fsdp_"): v for k, v in inner.items()} if isinstance(inner, dict) else {}
    other = Reading(one.kind, one.path, {"fsdp_config": plain})
    fsdp(other, "fsdp_config.sharding_strategy", "fsdp_config.")
    one.fields |= other.fields
    one.said |= other.said
    one.notes += other.notes


# -- Hugging Face arguments, and LLaMA-Factory, which adds to them --------------------------------------------


def trainer(path: str, found: Mapping[str, Any]) -> Stated:
    factory = "finetuning_type" in found or "cutoff_len" in found
    one = Reading("llama-factory" if factory else "trainer", path, found)
    one.name("model_name_or_path", "model_name", "model_id", "pretrained_model_name_or_path", "model")
    one.put("loop", "trainer", "the Trainer of transformers")
    one.take("micro_batch", count, "per_device_train_batch_size", "per_gpu_train_batch_size")
    one.take("accumulation", count, "gradient_accumulation_steps")
    one.take("seq", count, "max_length", "max_seq_length", "cutoff_len", "model_max_length", "block_size")
    one.take("world", count, "world_size", "n_gpu")
    optimizer(one, "optim")
    checkpointing(one)
    if factory and not one.on("disable_gradient_checkpointing"):
        one.put("checkpointing", "reentrant", "disable_gradient_checkpointing (LLaMA-Factory's default)")
    attention(one, "attn_implementation", *(("flash_attn",) if factory else ()))
    if one.on("use_liger_kernel") or one.on("enable_liger_kernel"):
        one.put("loss", "liger", "use_liger_kernel")
    deepspeed_named(one)
    if one.get("fsdp"):
        _trainer_fsdp(one)
    _trainer_method(one)
    _trainer_precision(one, factory)
    _preference(one, str(one.get("stage") or ""), "stage")
    if not one.on("packing") and one.fields.get("micro_batch", 8) > 1:
        one.put("padded", True, "packing")
    if "micro_batch" not in one.fields:
        one.put("micro_batch", 8, "per_device_train_batch_size (its default)")
    return one.stated()


def _trainer_fsdp(one: Reading) -> None:
    words = one.get("fsdp")
    words = words if isinstance(words, str) else " ".join(map(str, words)) if isinstance(words, list) else ""
    if "shard_grad_op" in words:
        one.put("zero", 2, "fsdp")
    elif "shard" in words or one.get("fsdp") is True:
        one.put("fsdp", True, "fsdp")
    if "offload" in words:
        one.put("offload", "parameters", "fsdp")


def _trainer_method(one: Reading) -> None:
    kind = one.get("finetuning_type") or ("lora" if one.on("use_peft") else None)
    four = one.on("load_in_4bit") or one.get("quantization_bit") in (4, "4")
    eight = one.on("load_in_8bit") or one.get("quantization_bit") in (8, "8")
    if kind in ("lora", "oft", "dora"):
        one.put(
            "method",
            "qlora" if four else "lora",
            "finetuning_type" if one.get("finetuning_type") else "use_peft",
        )
    elif kind not in (None, "full"):
        one.unmodelled.append(f"finetuning_type {shown(kind)} is counted as full")
    if four or eight:
        one.put("quant", "nf4" if four else "int8", "quantization")
        one.fields.setdefault("method", "lora")
        if four:
            one.put(
                "double_quant",
                one.kind == "llama-factory" or one.on("use_bnb_nested_quant"),
                "double quantisation",
            )
    adapter(one, "lora_rank" if one.get("lora_rank") else "lora_r", "lora_dropout", "use_dora")
    targets(one, "lora_target" if one.get("lora_target") else "lora_target_modules")
    if one.get("use_peft") and "lora_targets" not in one.fields:
        one.put("lora_targets", "qv", "lora_target_modules (peft's default)")
    _beyond(one, "additional_target", "trains whole modules beside the adapter")
    _beyond(one, "lora_modules_to_save", "trains whole modules beside the adapter")


def _trainer_precision(one: Reading, factory: bool) -> None:
    """Autocast over the weights as they were loaded: in the dtype that is stated, else in the checkpoint's."""
    half = "bf16" if one.on("bf16") else "fp16" if one.on("fp16") else ""
    dtype = one.get("dtype") or one.get("torch_dtype")
    loaded = WIDE.get(str(dtype).removeprefix("torch."), "") if dtype else ""
    if factory and half:
        whole = (
            one.fields.get("method", "full") == "full"
            and not one.on("pure_bf16")
            and not one.get("deepspeed")
        )
        one.put("precision", f"amp-{half}" if whole else half, half)
        if not whole:
            one.put("autocast", half, half)
    elif loaded in ("bf16", "fp16"):
        one.put("precision", loaded, "dtype")
        if half:
            one.put("autocast", half, half)
    elif half and loaded == "fp32":
        one.put("precision", f"amp-{half}", half)
    elif half:
        one.put("precision", f"amp-{half}", f"{half}, over weights in the checkpoint's dtype")
    else:
        one.put("precision", "fp32", "neither bf16 nor fp16")
