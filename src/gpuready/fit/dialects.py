"""Parts shared by several file kinds, and the arguments of Hugging Face's Trainer.

Features that change memory and are not counted are listed: with one that may need more nothing "fits", with one
that may need less nothing "does not fit".
"""

from __future__ import annotations

from gpuready.fit.reading import Reading, Stated, count, ratio, shown, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    Aside = tuple[str, str, str]  # key; whether it may need "more", "less" or "both"; what it does

OPTIMIZERS = {
    "adamw_torch": "adamw", "adamw": "adamw", "adamw_hf": "adamw", "adam": "adamw", "adamw_torch_fused": "adamw_fused",
    "adamw_apex_fused": "adamw_fused", "adamw_bnb_8bit": "adamw_8bit", "adamw_8bit": "adamw_8bit",
    "paged_adamw_8bit": "paged_adamw_8bit", "paged_adamw_32bit": "paged_adamw", "paged_adamw": "paged_adamw",
    "adafactor": "adafactor", "sgd": "sgd", "fusedadam": "adamw_fused", "cpuadam": "adamw", "deepspeedcpuadam": "adamw",
    "adam8bit": "adamw_8bit", "adamw8bit": "adamw_8bit",
}  # fmt: skip
"""Optimizer names in the files -> our optimizer with the same state."""

SMALLER = (
    "adamw_torch_8bit", "adamw_torch_4bit", "ao_adamw", "lion", "paged_lion", "rmsprop", "adagrad", "galore", "q_galore",
    "lomo", "adalomo", "apollo", "badam",
)  # fmt: skip
"""Name prefixes of optimizers with less state than AdamW: they are counted as AdamW."""

ATTENTION = {
    "flash_attention_2": "flash", "flash_attention_3": "flash", "flash_attn": "flash", "fa2": "flash", "fa3": "flash",
    "flash": "flash", "flex_attention": "flash", "xformers": "flash", "sage": "flash", "fa4": "flash",
    "flash_attention_4": "flash", "sdpa": "sdpa", "eager": "eager", "disabled": "eager", "kernels-community/flash-attn2": "flash",
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


# -- parts shared by several kinds ---------------------------------------------------------------------------


def optimizer(reading: Reading, *keys: str) -> None:
    for key in keys:
        name = reading.value(key, text)
        if name is None:
            continue
        low = name.lower().replace("-", "_")
        own = OPTIMIZERS.get(low)
        if own is None:
            reading.aside(
                f"the optimizer {shown(name)} ({key}) is counted as adamw",
                "less" if low.startswith(SMALLER) else "both",
            )
        reading.put("optimizer", own or "adamw", key)
        return


def attention(reading: Reading, *keys: str) -> None:
    for key in keys:
        word = reading.value(key, text)
        if word is not None:
            own = ATTENTION.get(word.lower())
            if own is None:
                reading.aside(f"the attention {shown(word)} ({key}) is counted as sdpa", "both")
            elif own == "flash" and "fl" not in word.lower() and "fa" not in word.lower():
                reading.notes.append(f"the attention {shown(word)} is counted as flash attention")
            reading.put("attention", own or "sdpa", key)
            return


def targets(reading: Reading, key: str) -> None:
    """Read ``all-linear``, one name, comma-separated names, or a list."""
    value = reading.get(key)
    if value is None:
        return
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",")]
    if not isinstance(value, list) or not value or not all(isinstance(name, str) and name for name in value):
        raise ValueError(f"{reading.path}: {key} must be a list of module names, not {shown(value)}")
    names = {name.rpartition(".")[2] for name in value}
    if any(not name.replace("_", "a").replace("-", "a").isalnum() for name in names):
        reading.aside(f"{key} is a pattern: it is counted as all linear layers", "less")
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


def asides(reading: Reading, rows: tuple[Aside, ...]) -> None:
    """Note every key of a table that is set and not counted."""
    for key, side, what in rows:
        value = reading.get(key)
        if value and str(value).strip().lower() not in ("false", "no", "off", "0", "[]", "{}"):
            reading.aside(f"{key} {what}: that is not counted", side)


def fsdp_words(value: object) -> str:
    """Return ``full_shard auto_wrap offload``, also from a list."""
    if isinstance(value, str):
        return value
    return " ".join(map(str, value)) if isinstance(value, list) else ""


def fsdp(reading: Reading, sharding: str, prefix: str) -> None:
    """Read FSDP settings as accelerate and the Trainer write them."""
    kind = str(reading.get(sharding) or "FULL_SHARD").upper()
    if "HYBRID" in kind:
        reading.aside(
            f"{sharding} {kind}: each node has all of the model; --world is to name the GPUs of one", "more"
        )
    if "NO_SHARD" in kind or kind in ("4",):
        return
    reading.put("fsdp", True, sharding)
    if "GRAD_OP" in kind or kind in ("2",) or reading.get(f"{prefix}reshard_after_forward") is False:
        reading.put("reshard", False, sharding)
    if reading.on(f"{prefix}offload_params") or reading.on(f"{prefix}cpu_offload"):
        reading.put("offload", "parameters", f"{prefix}offload_params")
    if reading.on(f"{prefix}activation_checkpointing"):
        reading.put("checkpointing", "nonreentrant", f"{prefix}activation_checkpointing")


def deepspeed_named(reading: Reading, key: str = "deepspeed") -> None:
    """Remember the DeepSpeed settings of a file: a path, or a mapping."""
    value = reading.get(key)
    if isinstance(value, (str, dict)) and value:
        reading.inner.append(("deepspeed", value))


# -- Hugging Face arguments, and LLaMA-Factory, which adds to them --------------------------------------------


ASIDES: tuple[Aside, ...] = (
    ("additional_target", "more", "trains whole modules beside the adapter"),
    ("lora_modules_to_save", "more", "trains whole modules beside the adapter"),
    ("modules_to_save", "more", "trains whole modules beside the adapter"),
    ("use_unsloth", "less", "has kernels of its own"),
    ("use_kt", "less", "keeps experts on the CPU"),
    ("use_galore", "less", "projects the gradients"),
    ("use_apollo", "less", "projects the gradients"),
    ("use_badam", "less", "trains a block at a time"),
    ("use_muon", "both", "has an optimizer of its own"),
    ("use_adam_mini", "less", "has an optimizer of its own"),
    ("torch_compile", "both", "lets the compiler decide what is kept"),
    ("activation_offloading", "less", "moves activations to the host"),
    ("freeze_trainable_layers", "less", "trains some layers, and all are counted"),
    ("mixture_of_depths", "both", "changes the layers"),
    ("use_mca", "both", "trains with Megatron"),
    ("num_generations", "more", "generates between the steps"),
    ("use_vllm", "more", "keeps an engine beside the step"),
    ("predict_with_generate", "more", "generates in the evaluation"),
    ("image_max_pixels", "more", "feeds images, and their layers and tokens take memory of their own"),
)  # fmt: skip
DPO = ("precompute_ref_log_probs", "reference_free", "ref_model_init_kwargs", "sync_ref_model", "rpo_alpha")
"""Keys that only TRL's DPO arguments have."""


def _is_training(path: str, found: Mapping[str, Any]) -> None:
    """Reject LLaMA-Factory files that serve or export a model."""
    trains = (
        "do_train",
        "stage",
        "per_device_train_batch_size",
        "learning_rate",
        "num_train_epochs",
        "optim",
    )
    for key, what in (("export_dir", "exports a model"), ("infer_backend", "answers with a model")):
        if key in found and not any(word in found for word in trains):
            raise ValueError(
                f"{path} sets up no training: it {what} ({key}); for memory while answering: gpuready fit MODEL --task generate"
            )


def trainer(path: str, found: Mapping[str, Any]) -> Stated:
    factory = "finetuning_type" in found or "cutoff_len" in found
    _is_training(path, found)
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
        kind = "nonreentrant" if one.get("use_reentrant_gc") is False else "reentrant"
        one.put("checkpointing", kind, "disable_gradient_checkpointing (LLaMA-Factory's default)")
    attention(one, "attn_implementation", *(("flash_attn",) if factory else ()))
    if one.on("use_liger_kernel") or one.on("enable_liger_kernel"):
        one.put("loss", "liger", "use_liger_kernel")
    deepspeed_named(one)
    if one.get("fsdp"):
        _trainer_fsdp(one)
    _trainer_method(one)
    _trainer_precision(one, factory)
    _trainer_preference(one)
    asides(one, ASIDES)
    packed = one.on("packing") or one.on("padding_free") or one.on("neat_packing")
    if not packed and one.fields.get("micro_batch", 8) > 1:
        one.put("padded", True, "packing")
    if "micro_batch" not in one.fields:
        one.suppose("micro_batch", 8, "per_device_train_batch_size (its default)")
    return one.stated()


def _trainer_fsdp(one: Reading) -> None:
    words = fsdp_words(one.get("fsdp"))
    inner = one.get("fsdp_config")
    plain = {str(k).removeprefix("fsdp_"): v for k, v in inner.items()} if isinstance(inner, dict) else {}
    if "shard" not in words and one.get("fsdp") is not True:
        return
    kinds = ("shard_grad_op", "no_shard", "hybrid_shard", "full_shard")
    plain.setdefault("sharding_strategy", next((kind for kind in kinds if kind in words), "full_shard"))
    if "offload" in words:
        plain["offload_params"] = True
    other = Reading(one.kind, one.path, {"fsdp": plain})
    fsdp(other, "fsdp.sharding_strategy", "fsdp.")
    one.join(other)


def preference(one: Reading, word: str, key: str) -> None:
    """Read preference training: DPO is counted with its reference; of the others only the step."""
    if word.lower() in ("dpo", "ipo"):
        one.put("dpo", True, key)
    elif word and word.lower() not in ("sft", "pt", "none"):
        one.unmodelled.append(
            f"{key}: {shown(word)} trains with more than one model or batch: only the step itself is counted"
        )


def _trainer_preference(one: Reading) -> None:
    word = str(one.get("stage") or "")
    preference(one, word, "stage")
    if not word and any(key in one.found for key in DPO):
        one.put("dpo", True, next(key for key in DPO if key in one.found))
    if one.fields.get("dpo") and str(one.get("pref_loss") or "").lower() in ("orpo", "simpo"):
        one.aside(f"pref_loss {one.get('pref_loss')} has no reference model, and one is counted", "less")


def _trainer_method(one: Reading) -> None:
    kind = one.get("finetuning_type") or ("lora" if one.on("use_peft") else None)
    four = one.on("load_in_4bit") or one.get("quantization_bit") in (4, "4")
    eight = one.on("load_in_8bit") or one.get("quantization_bit") in (8, "8")
    if kind == "oft":
        one.aside("finetuning_type 'oft' is counted as lora", "both")
    if kind in ("lora", "oft", "dora"):
        one.put(
            "method",
            "qlora" if four else "lora",
            "finetuning_type" if one.get("finetuning_type") else "use_peft",
        )
    elif kind not in (None, "full"):
        one.aside(f"finetuning_type {shown(kind)} is counted as full", "less" if kind == "freeze" else "both")
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


def _trainer_precision(one: Reading, factory: bool) -> None:
    """Autocast over the weights as loaded: in the stated dtype, else in the checkpoint's."""
    half = "bf16" if one.on("bf16") else "fp16" if one.on("fp16") else ""
    dtype = one.get("dtype") or one.get("torch_dtype")
    loaded = WIDE.get(str(dtype).removeprefix("torch."), "") if dtype else ""
    if half and one.get("deepspeed"):  # its engine casts every weight, without autocast
        one.put("precision", half, f"{half}, by DeepSpeed")
        one.put("lora_dtype", half, f"{half}, by DeepSpeed")
    elif factory and half:
        whole = one.fields.get("method", "full") == "full" and not one.on("pure_bf16")
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
        one.suppose("precision", "fp32", "neither bf16 nor fp16")
