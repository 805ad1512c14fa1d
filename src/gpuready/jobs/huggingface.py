"""Parts shared by several file kinds, and the arguments of Hugging Face's Trainer.

Features that change memory and are not counted are listed: with one that may need more nothing "fits", with one
that may need less nothing "does not fit".
"""

from collections.abc import Mapping
from typing import Any

from gpuready.jobs.config_reader import ConfigReader, JobSettings, is_off, parse_ratio, short_repr
from gpuready.jobs.trl_roles import is_grpo, read_grpo_roles

UncountedKey = tuple[str, str, str]  # key; whether it may need "more", "less" or "both"; what it does


OPTIMIZER_NAMES = {
    "adamw_torch": "adamw", "adamw": "adamw", "adamw_hf": "adamw", "adam": "adamw", "adamw_torch_fused": "adamw_fused",
    "adamw_apex_fused": "adamw_fused", "adamw_bnb_8bit": "adamw_8bit", "adamw_8bit": "adamw_8bit",
    "paged_adamw_8bit": "paged_adamw_8bit", "paged_adamw_32bit": "paged_adamw", "paged_adamw": "paged_adamw",
    "adafactor": "adafactor", "sgd": "sgd", "fusedadam": "adamw_fused", "cpuadam": "adamw", "deepspeedcpuadam": "adamw",
    "adam8bit": "adamw_8bit", "adamw8bit": "adamw_8bit",
}  # fmt: skip
"""Optimizer names in the files -> our optimizer with the same state."""

SMALLER_OPTIMIZERS = (
    "adamw_torch_8bit", "adamw_torch_4bit", "ao_adamw", "lion", "paged_lion", "rmsprop", "adagrad", "galore", "q_galore",
    "lomo", "adalomo", "apollo", "badam",
)  # fmt: skip
"""Name prefixes of optimizers with less state than AdamW: they are counted as AdamW."""

ATTENTION_NAMES = {
    "flash_attention_2": "flash", "flash_attention_3": "flash", "flash_attn": "flash", "fa2": "flash", "fa3": "flash",
    "flash": "flash", "flex_attention": "flash", "xformers": "flash", "sage": "flash", "fa4": "flash",
    "flash_attention_4": "flash", "sdpa": "sdpa", "eager": "eager", "disabled": "eager", "kernels-community/flash-attn2": "flash",
    "kernels-community/vllm-flash-attn3": "flash", "kernels-community/flash-attn3": "flash",
}  # fmt: skip
DTYPE_NAMES = {"fp32": "fp32", "float32": "fp32", "bf16": "bf16", "bfloat16": "bf16", "fp16": "fp16", "float16": "fp16"}
QV_MODULES = {"q_proj", "v_proj"}
ALL_LINEAR_MODULES = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


# -- parts shared by several kinds ---------------------------------------------------------------------------


def read_optimizer(reader: ConfigReader, *keys: str) -> None:
    for key in keys:
        name = reader.read_text(key)
        if name is None:
            continue
        low = name.lower().replace("-", "_")
        own = OPTIMIZER_NAMES.get(low)
        if own is None:
            reader.add_uncounted(
                f"the optimizer {short_repr(name)} ({key}) is counted as adamw",
                "less" if low.startswith(SMALLER_OPTIMIZERS) else "both",
            )
        reader.set_field("optimizer", own or "adamw", key)
        return


def read_attention(reader: ConfigReader, *keys: str) -> None:
    for key in keys:
        word = reader.read_text(key)
        if word is not None:
            own = ATTENTION_NAMES.get(word.lower())
            if own is None:
                reader.add_uncounted(f"the attention {short_repr(word)} ({key}) is counted as sdpa", "both")
            elif own == "flash" and "fl" not in word.lower() and "fa" not in word.lower():
                reader.notes.append(f"the attention {short_repr(word)} is counted as flash attention")
            reader.set_field("attention", own or "sdpa", key)
            return


def read_lora_targets(reader: ConfigReader, key: str) -> None:
    """Read ``all-linear``, one name, comma-separated names, or a list."""
    value = reader.get_dotted(key)
    if value is None:
        return
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",")]
    if not isinstance(value, list) or not value or not all(isinstance(name, str) and name for name in value):
        raise ValueError(f"{reader.path}: {key} must be a list of module names, not {short_repr(value)}")
    names = {name.rpartition(".")[2] for name in value}
    if any(not name.replace("_", "a").replace("-", "a").isalnum() for name in names):
        reader.add_uncounted(f"{key} is a pattern: it is counted as all linear layers", "less")
        names = {"all"}
    if names & {"all", "all-linear"} or names >= ALL_LINEAR_MODULES:
        reader.set_field("lora_targets", "all", key)
    else:
        reader.set_field("lora_targets", "qv" if names == QV_MODULES else tuple(sorted(names)), key)


def read_lora_adapter(reader: ConfigReader, rank: str, dropout: str, dora: str) -> None:
    reader.take_counts(lora_r=rank)
    reader.take_first("lora_dropout", parse_ratio, dropout)
    if reader.is_enabled(dora):
        reader.set_field("dora", True, dora)


def read_checkpointing(reader: ConfigReader, key: str = "gradient_checkpointing") -> None:
    value = reader.get_dotted(key)
    if isinstance(value, str) and value.lower() in ("unsloth", "offload", "offload_disk"):
        reader.set_field("checkpointing", "nonreentrant", key)
        reader.set_field("offload", "activations", key)
    elif reader.is_enabled(key):
        reentrant = reader.is_enabled("gradient_checkpointing_kwargs.use_reentrant")
        reader.set_field("checkpointing", "reentrant" if reentrant else "nonreentrant", key)


def add_uncounted_keys(reader: ConfigReader, rows: tuple[UncountedKey, ...]) -> None:
    """Note every key of a table that is set and not counted."""
    for key, side, what in rows:
        if not is_off(reader.get_dotted(key)):
            reader.add_uncounted(f"{key} {what}: that is not counted", side)
    named = {key for key, _, _ in rows}
    for key in find_parallel_keys(reader.config):
        if key not in named:
            reader.add_uncounted(f"{key} shares experts or layers among GPUs: that is not counted", "less")


PARALLEL_SUBJECTS = {"expert", "pipeline", "ep", "pp", "autoep"}
PARALLEL_ENDS = {"size", "degree", "stages", "parallel", "parallelism"}


def find_parallel_keys(config: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return the keys that turn on expert or pipeline parallelism, whatever a framework calls them (``ep_size: 4``)."""
    found = []
    for name, value in config.items():
        words = str(name).lower().split("_")
        if isinstance(value, dict) and prefix.count(".") < 4:
            found += find_parallel_keys(value, f"{prefix}{name}.")
        elif _is_parallel_size(words) and not is_off(value) and str(value) != "1":
            found.append(f"{prefix}{name}")
    return found


def _is_parallel_size(words: list[str]) -> bool:
    """Whether a key is ``ep_size`` or ``expert_model_parallel_size``; ``expert_intermediate_size`` is a size of a model."""
    if not PARALLEL_SUBJECTS & set(words) or words[-1] not in PARALLEL_ENDS:
        return False
    return words[-1] != "size" or words[-2] in PARALLEL_SUBJECTS | {"parallel"}


def read_fsdp(reader: ConfigReader, sharding: str, prefix: str) -> None:
    """Read FSDP settings as accelerate and the Trainer write them."""
    kind = str(reader.get_dotted(sharding) or "FULL_SHARD").upper()
    if "HYBRID" in kind:
        reader.add_uncounted(
            f"{sharding} {kind}: each node has all of the model; --world is to name the GPUs of one", "more"
        )
    if "NO_SHARD" in kind or kind in ("4",):
        return
    reader.set_field("fsdp", True, sharding)
    if (
        reader.take_first("fsdp_version", parse_fsdp_version, f"{prefix}version", "fsdp_version") is None
        and reader.kind == "accelerate"
    ):
        reader.set_default("fsdp_version", 1, f"{prefix}version (accelerate's default)")
    if "GRAD_OP" in kind or kind in ("2",) or reader.get_dotted(f"{prefix}reshard_after_forward") is False:
        reader.set_field("reshard", False, sharding)
    if reader.is_enabled(f"{prefix}offload_params") or reader.is_enabled(f"{prefix}cpu_offload"):
        reader.set_field("offload", "parameters", f"{prefix}offload_params")
    if reader.is_enabled(f"{prefix}activation_checkpointing"):
        reader.set_field("checkpointing", "nonreentrant", f"{prefix}activation_checkpointing")


def parse_fsdp_version(value: object) -> int:
    if str(value) not in ("1", "2"):
        raise ValueError("1 or 2")
    return int(str(value))


def read_fsdp_words(reader: ConfigReader, section: str) -> None:
    """Read ``fsdp: full_shard auto_wrap offload`` (also a list) and its details in ``fsdp_config``."""
    value, inner = reader.get_dotted("fsdp"), reader.get_dotted("fsdp_config")
    words = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    details = {str(k).removeprefix("fsdp_"): v for k, v in inner.items()} if isinstance(inner, dict) else {}
    kinds = ("shard_grad_op", "no_shard", "hybrid_shard", "full_shard")
    details.setdefault("sharding_strategy", next((kind for kind in kinds if kind in words), "full_shard"))
    if "offload" in words:
        details["offload_params"] = True
    whole, reader.config = reader.config, {section: details}
    read_fsdp(reader, f"{section}.sharding_strategy", f"{section}.")
    reader.config = whole


def add_deepspeed_file(reader: ConfigReader, key: str = "deepspeed") -> None:
    """Remember the DeepSpeed settings of a file: a path, or a mapping."""
    value = reader.get_dotted(key)
    if isinstance(value, (str, dict)) and value:
        reader.nested_files.append(("deepspeed", value))


# -- Hugging Face arguments, and LLaMA-Factory, which adds to them --------------------------------------------


TRAINER_UNCOUNTED: tuple[UncountedKey, ...] = (
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
DPO_KEYS = ("precompute_ref_log_probs", "reference_free", "ref_model_init_kwargs", "sync_ref_model", "rpo_alpha")
"""Keys that only TRL's DPO arguments have."""


def _require_training(path: str, config: Mapping[str, Any]) -> None:
    """Reject LLaMA-Factory files that serve or export a model."""
    trains = ("do_train", "stage", "per_device_train_batch_size", "learning_rate", "num_train_epochs", "optim")
    for key, what in (("export_dir", "exports a model"), ("infer_backend", "answers with a model")):
        if key in config and not any(word in config for word in trains):
            raise ValueError(
                f"{path} sets up no training: it {what} ({key}); for memory while answering: gpuready fit MODEL --task generate"
            )


def read_trainer(path: str, config: Mapping[str, Any]) -> JobSettings:
    is_llama_factory = "finetuning_type" in config or "cutoff_len" in config
    _require_training(path, config)
    reader = ConfigReader("llama-factory" if is_llama_factory else "trainer", path, config)
    reader.read_model_name("model_name_or_path", "model_name", "model_id", "pretrained_model_name_or_path", "model")
    reader.set_field("loop", "trainer", "the Trainer of transformers")
    reader.take_counts(
        micro_batch=("per_device_train_batch_size", "per_gpu_train_batch_size"),
        accumulation="gradient_accumulation_steps",
        seq=("max_length", "max_seq_length", "cutoff_len", "model_max_length", "block_size"),
        world=("world_size", "n_gpu"),
    )
    read_optimizer(reader, "optim")
    read_checkpointing(reader)
    if is_llama_factory and not reader.is_enabled("disable_gradient_checkpointing"):
        kind = "nonreentrant" if reader.get_dotted("use_reentrant_gc") is False else "reentrant"
        reader.set_field("checkpointing", kind, "disable_gradient_checkpointing (LLaMA-Factory's default)")
    read_attention(reader, "attn_implementation", *(("flash_attn",) if is_llama_factory else ()))
    if reader.is_enabled("use_liger_kernel") or reader.is_enabled("enable_liger_kernel"):
        reader.set_field("loss", "liger", "use_liger_kernel")
    add_deepspeed_file(reader)
    if reader.get_dotted("fsdp") is True or "shard" in str(reader.get_dotted("fsdp")):
        read_fsdp_words(reader, "fsdp")
    _read_trainer_method(reader)
    _read_trainer_precision(reader, is_llama_factory)
    _read_trainer_preference(reader)
    add_uncounted_keys(reader, TRAINER_UNCOUNTED)
    _read_trainer_packing(reader, is_llama_factory)
    if "micro_batch" not in reader.fields:
        reader.set_default("micro_batch", 8, "per_device_train_batch_size (its default)")
    if is_grpo(config):
        reader.roles = read_grpo_roles(reader)
        reader.set_default("seq", reader.roles[0].fields["seq"], "max_prompt_length + max_completion_length")
    return reader.to_job_settings()


def _read_trainer_packing(reader: ConfigReader, is_llama_factory: bool) -> None:
    """TRL joins packed rows unless they are ``wrapped``; LLaMA-Factory's neat packing tells samples apart by a mask."""
    neat = is_llama_factory and reader.is_enabled("neat_packing")
    if reader.is_enabled("packing") or neat:
        wrapped = is_llama_factory or reader.get_dotted("packing_strategy") == "wrapped"
        reader.set_field("packing", "rows" if wrapped else "flat", "packing")
    if neat and reader.fields.get("attention", "sdpa") != "flash":
        reader.set_field("padded", True, "neat_packing")


def read_preference(reader: ConfigReader, word: str, key: str) -> None:
    """Read preference training: DPO is counted with its reference; of the others only the step."""
    if word.lower() in ("dpo", "ipo"):
        _set_pairs(reader, key)
    elif word and word.lower() not in ("sft", "pt", "none"):
        reader.unmodelled.append(
            f"{key}: {short_repr(word)} trains with more than one model or batch: only the step itself is counted"
        )


def _set_pairs(reader: ConfigReader, key: str) -> None:
    """Two answers differ in length: the shorter one is padded."""
    reader.set_field("dpo", True, key)
    reader.set_field("padded", True, key)


def _read_trainer_preference(reader: ConfigReader) -> None:
    word = str(reader.get_dotted("stage") or "")
    read_preference(reader, word, "stage")
    if not word and any(key in reader.config for key in DPO_KEYS):
        _set_pairs(reader, next(key for key in DPO_KEYS if key in reader.config))
    if reader.fields.get("dpo") and str(reader.get_dotted("pref_loss") or "").lower() in ("orpo", "simpo"):
        reader.add_uncounted(
            f"pref_loss {reader.get_dotted('pref_loss')} has no reference model, and one is counted", "less"
        )


def _read_trainer_method(reader: ConfigReader) -> None:
    kind = reader.get_dotted("finetuning_type") or ("lora" if reader.is_enabled("use_peft") else None)
    four = reader.is_enabled("load_in_4bit") or reader.get_dotted("quantization_bit") in (4, "4")
    eight = reader.is_enabled("load_in_8bit") or reader.get_dotted("quantization_bit") in (8, "8")
    if kind == "oft":
        reader.add_uncounted("finetuning_type 'oft' is counted as lora", "both")
    if kind in ("lora", "oft", "dora"):
        reader.set_field(
            "method",
            "qlora" if four else "lora",
            "finetuning_type" if reader.get_dotted("finetuning_type") else "use_peft",
        )
    elif kind not in (None, "full"):
        reader.add_uncounted(
            f"finetuning_type {short_repr(kind)} is counted as full", "less" if kind == "freeze" else "both"
        )
    if four or eight:
        reader.set_field("quant", "nf4" if four else "int8", "quantization")
        reader.fields.setdefault("method", "lora")
        if four:
            reader.set_field(
                "double_quant",
                reader.kind == "llama-factory" or reader.is_enabled("use_bnb_nested_quant"),
                "double quantisation",
            )
    read_lora_adapter(reader, "lora_rank" if reader.get_dotted("lora_rank") else "lora_r", "lora_dropout", "use_dora")
    read_lora_targets(reader, "lora_target" if reader.get_dotted("lora_target") else "lora_target_modules")
    if reader.get_dotted("use_peft") and "lora_targets" not in reader.fields:
        reader.set_field("lora_targets", "qv", "lora_target_modules (peft's default)")


def _read_trainer_precision(reader: ConfigReader, is_llama_factory: bool) -> None:
    """Autocast over the weights as loaded: in the stated dtype, else in the checkpoint's."""
    half = "bf16" if reader.is_enabled("bf16") else "fp16" if reader.is_enabled("fp16") else ""
    dtype = reader.get_dotted("dtype") or reader.get_dotted("torch_dtype")
    loaded = DTYPE_NAMES.get(str(dtype).removeprefix("torch."), "") if dtype else ""
    if half and reader.get_dotted("deepspeed"):  # its engine casts every weight, without autocast
        reader.set_field("precision", half, f"{half}, by DeepSpeed")
        reader.set_field("lora_dtype", half, f"{half}, by DeepSpeed")
    elif is_llama_factory and half:
        whole = reader.fields.get("method", "full") == "full" and not reader.is_enabled("pure_bf16")
        reader.set_field("precision", f"amp-{half}" if whole else half, half)
        if not whole:
            reader.set_field("autocast", half, half)
    elif loaded in ("bf16", "fp16"):
        reader.set_field("precision", loaded, "dtype")
        if half:
            reader.set_field("autocast", half, half)
    elif half and loaded == "fp32":
        reader.set_field("precision", f"amp-{half}", half)
    elif half:
        reader.set_field("precision", f"amp-{half}", f"{half}, over weights in the checkpoint's dtype")
    else:
        reader.set_default("precision", "fp32", "neither bf16 nor fp16")
