"""Read ROLL's YAML and ColossalAI plugins. A ColossalAI script is parsed and never run."""

import ast
from collections.abc import Mapping
from typing import Any

from gpuready.jobs.config_reader import (
    ConfigReader,
    JobSettings,
    parse_positive_int,
    parse_zero_stage,
    resolve_references,
    short_repr,
)
from gpuready.jobs.deepspeed_accelerate import read_deepspeed
from gpuready.jobs.huggingface import DTYPE_NAMES, read_attention, read_lora_adapter, read_lora_targets, read_optimizer
from gpuready.jobs.roll_roles import parse_device_mapping, read_roll_roles

ROLL_TRAINING_ROLES = ("actor_train", "sft_train", "student_train", "student", "critic", "reward_train")
"""ROLL's training roles, the most demanding first."""


# -- ROLL -----------------------------------------------------------------------------------------------------


def read_roll(path: str, config: Mapping[str, Any]) -> JobSettings:
    """Read the role that trains as the job, and all roles with GPUs for the timeline."""
    role = next((name for name in ROLL_TRAINING_ROLES if isinstance(config.get(name), dict)), "")
    reader = ConfigReader("roll", path, resolve_references(config))
    _read_roll_lengths(reader, role)
    if role:
        gpu_indexes = _read_roll_role(reader, role)
        _note_shared_roles(reader, role, gpu_indexes)
    reader.roles = read_roll_roles(reader, reader.fields.get("seq", 2048), lambda where: _role_fields(reader, where))
    if not role and not reader.roles:
        raise ValueError(f"{path}: no role that trains is in it: one of {', '.join(ROLL_TRAINING_ROLES[:4])} must be")
    if not role:
        reader.model, reader.sources["model"] = reader.roles[0].model, f"{path}: {reader.roles[0].name}"
    return reader.to_job_settings()


def _read_roll_role(reader: ConfigReader, role: str) -> set[int]:
    """Read the job of one role; return its GPUs."""
    reader.read_model_name(f"{role}.model_args.model_name_or_path", "pretrain", "base_model", "student_pretrain")
    reader.set_field("loop", "plain", "ROLL's own loop")
    _read_roll_model(reader, f"{role}.model_args.")
    reader.take_counts(
        micro_batch=f"{role}.training_args.per_device_train_batch_size",
        accumulation=f"{role}.training_args.gradient_accumulation_steps",
    )
    read_optimizer(reader, f"{role}.training_args.optim")
    gpu_indexes = parse_device_mapping(reader.get_dotted(f"{role}.device_mapping"))
    if gpu_indexes:
        reader.set_field("world", len(gpu_indexes), f"{role}.device_mapping")
    _read_roll_strategy(reader, f"{role}.strategy_args.", reader.config)
    return gpu_indexes


def _role_fields(reader: ConfigReader, role: str) -> dict[str, Any]:
    """Return the FitJob fields of any role."""
    inner = ConfigReader(reader.kind, reader.path, reader.config)
    inner.fields |= {name: reader.fields[name] for name in ("seq",) if name in reader.fields}
    _read_roll_role(inner, role)
    return inner.fields


def _read_roll_lengths(reader: ConfigReader, role: str) -> None:
    reader.take_counts(seq="sequence_length")
    if "seq" not in reader.fields:
        prompt, answer = reader.read_count("prompt_length"), reader.read_count("response_length")
        if prompt and answer:
            reader.set_field("seq", prompt + answer, "prompt_length + response_length")
    if role == "actor_train" and reader.get_dotted("pipeline") == "dpo":
        reader.set_field("dpo", True, "pipeline")


def _read_roll_model(reader: ConfigReader, at: str) -> None:
    word = reader.read_text(f"{at}dtype") or reader.read_text(f"{at}compute_dtype")
    if word and word in DTYPE_NAMES:
        reader.set_field("precision", DTYPE_NAMES[word], f"{at}dtype")
    read_attention(reader, f"{at}attn_implementation", f"{at}flash_attn")
    reader.take_counts(context_parallel=f"{at}ulysses_size")
    if not reader.is_enabled(f"{at}disable_gradient_checkpointing"):
        reader.set_field("checkpointing", "nonreentrant", f"{at}disable_gradient_checkpointing")
    if reader.read_count(f"{at}lora_rank"):
        reader.set_field("method", "lora", f"{at}lora_rank")
        read_lora_adapter(reader, f"{at}lora_rank", f"{at}lora_dropout", f"{at}use_dora")
        read_lora_targets(reader, f"{at}lora_target")


def _read_roll_strategy(reader: ConfigReader, at: str, config: Mapping[str, Any]) -> None:
    name = str(reader.get_dotted(f"{at}strategy_name") or "")
    inner = reader.config
    for part in f"{at}strategy_config".split("."):
        inner = inner.get(part, {}) if isinstance(inner, dict) else {}
    if name.startswith("deepspeed"):
        _read_roll_deepspeed(reader, inner, at, config)
    elif name.startswith("fsdp"):
        reader.set_field("fsdp", True, f"{at}strategy_name")
        if not (isinstance(inner, dict) and inner.get("param_dtype")):
            reader.set_field("fp32_shards", True, f"{at}strategy_config.param_dtype (ROLL's default)")
        if isinstance(inner, dict) and inner.get("offload_policy"):
            reader.set_field("offload", "parameters", f"{at}strategy_config")
    elif name.startswith("megatron"):
        reader.take_counts(tensor_parallel=f"{at}strategy_config.tensor_model_parallel_size")
        reader.add_uncounted("Megatron's own layers and buffers are not counted", "both")
    elif name and name != "hf_train":
        reader.add_uncounted(f"the strategy {short_repr(name)} is not counted", "both")


def _read_roll_deepspeed(reader: ConfigReader, inner: Any, at: str, config: Mapping[str, Any]) -> None:
    """Read settings from the file, or from a name in ROLL's own folder such as ${deepspeed_zero3}."""
    key = f"{at}strategy_config"
    if isinstance(inner, dict) and "zero_optimization" in inner:
        inside = read_deepspeed(f"{reader.path}: {key}", inner)
        reader.fields |= inside.fields
        reader.sources |= inside.said
    elif isinstance(inner, str):
        read_zero_from_name(reader, inner, key)


def read_zero_from_name(reader: ConfigReader, name: str, key: str) -> bool:
    """Read stage and offload from the name of a DeepSpeed file: zero3, zero2_cpuoffload."""
    low = name.lower().replace("-", "").replace("_", "")
    marks = ("zero", "stage", "dsz")
    level = next((n for n in (3, 2, 1, 0) if any(f"{mark}{n}" in low for mark in marks)), None)
    if level is None:
        return False
    reader.set_field("zero", level, f"{key} ({name}, by its name)")
    if "offload" in low:
        reader.set_field(
            "offload", "parameters" if level == 3 and "optim" not in low else "optimizer", f"{key} (by its name)"
        )
    return True


def _note_shared_roles(reader: ConfigReader, role: str, gpu_indexes: set[int]) -> None:
    """Note other roles on the same GPUs: ROLL offloads their weights in between, but their contexts stay."""
    for name, value in reader.config.items():
        if name == role or not isinstance(value, dict) or "strategy_args" not in value:
            continue
        if gpu_indexes & parse_device_mapping(value.get("device_mapping")):
            reader.unmodelled.append(f"{name} shares GPUs with {role}: what it keeps there is not counted")


# -- ColossalAI -----------------------------------------------------------------------------------------------

COLOSSALAI_PLUGINS = {
    "zero2": "LowLevelZeroPlugin", "zero2_cpu": "LowLevelZeroPlugin", "low_level_zero": "LowLevelZeroPlugin",
    "gemini": "GeminiPlugin", "gemini_auto": "GeminiPlugin", "3d": "HybridParallelPlugin", "3d_cpu": "HybridParallelPlugin",
    "hybrid_parallel": "HybridParallelPlugin", "ddp": "TorchDDPPlugin", "torch_ddp": "TorchDDPPlugin",
    "torch_ddp_fp16": "TorchDDPPlugin", "fsdp": "TorchFSDPPlugin", "torch_fsdp": "TorchFSDPPlugin",
    "moe": "MoeHybridParallelPlugin",
}  # fmt: skip


def read_colossalai(path: str, config: Mapping[str, Any]) -> JobSettings:
    """Read a plugin and its arguments: flat beside ``plugin``, or as a mapping."""
    plugin = config.get("plugin")
    flat = dict(config)
    if isinstance(plugin, dict):
        flat |= plugin
        plugin = plugin.get("name") or plugin.get("type") or plugin.get("plugin")
    if not isinstance(plugin, str):
        raise ValueError(f"{path}: plugin must name a ColossalAI plugin, such as HybridParallelPlugin or zero2")
    name = COLOSSALAI_PLUGINS.get(plugin.lower(), plugin)
    reader = ConfigReader("colossalai", path, flat)
    reader.read_model_name("pretrain", "pretrained", "model_name_or_path", "model", "model_path")
    _read_colossalai_job(reader)
    _read_colossalai_plugin(reader, name, plugin.lower())
    return reader.to_job_settings()


def _read_colossalai_job(reader: ConfigReader) -> None:
    reader.take_counts(
        micro_batch=("microbatch_size", "batch_size", "micro_batch_size"),
        seq=("max_length", "max_len", "seq_length", "max_seq_length"),
        accumulation=("accumulation_steps", "gradient_accumulation_steps", "grad_accum"),
        world=("world_size", "nproc_per_node", "num_gpus"),
    )
    if reader.parse_value("lora_rank", lambda v: 0 if v == 0 else parse_positive_int(v)):
        reader.set_field("method", "lora", "lora_rank")
        reader.take_counts(lora_r="lora_rank")
    if reader.is_enabled("grad_checkpoint") or reader.is_enabled("gradient_checkpointing"):
        reader.set_field("checkpointing", "nonreentrant", "grad_checkpoint")
    if reader.is_enabled("use_flash_attn") or reader.is_enabled("enable_flash_attention"):
        reader.set_field("attention", "flash", "use_flash_attn")
    word = str(reader.get_dotted("mixed_precision") or reader.get_dotted("precision") or "fp16").lower()
    reader.set_field(
        "precision", DTYPE_NAMES.get(word, "fp16"), "precision" if reader.get_dotted("precision") else "mixed_precision"
    )
    reader.set_field("optimizer", "adamw_fused", "ColossalAI's HybridAdam is fused")


def _read_colossalai_plugin(reader: ConfigReader, name: str, plugin_word: str) -> None:
    key = "plugin"
    if name == "LowLevelZeroPlugin":
        stage = reader.parse_value("stage", parse_zero_stage) or reader.parse_value("zero_stage", parse_zero_stage)
        reader.set_field("zero", stage or (2 if "2" in plugin_word else 1), key)
    elif name == "GeminiPlugin":
        reader.set_field("zero", 3, key)
        reader.unmodelled.append("Gemini's chunks are counted as ZeRO-3")
        if reader.get_dotted("placement_policy") in ("auto", "cpu") or plugin_word == "gemini_auto":
            reader.lessened.append("what Gemini moves to the host by itself is not counted")
    elif name in ("HybridParallelPlugin", "MoeHybridParallelPlugin"):
        reader.take_counts(tensor_parallel=("tp_size", "tp"))
        reader.take_first("zero", parse_zero_stage, "zero_stage", "zero")
        for other in ("pp_size", "pp", "sp_size", "sp", "ep_size", "ep"):
            if (reader.read_count(other) or 1) > 1:
                reader.lessened.append(f"{other} is not counted")
    elif name == "TorchFSDPPlugin":
        reader.set_field("fsdp", True, key)
    elif name != "TorchDDPPlugin":
        raise ValueError(
            f"{reader.path}: ColossalAI has no plugin {short_repr(name)}; it has {', '.join(sorted(set(COLOSSALAI_PLUGINS.values())))}"
        )
    if reader.is_enabled("cpu_offload") or reader.is_enabled("zero_cpu_offload") or plugin_word.endswith("_cpu"):
        reader.set_field("offload", "optimizer", "cpu_offload")


def read_script(source: str, path: str) -> dict[str, Any]:
    """Return the plugin of ColossalAI that a script creates, with its literal arguments, else what it imports and its calls say.

    The text is parsed, not run.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(
            f"{path} is not Python: {getattr(error, 'msg', None) or error or 'nested too deeply'}"
        ) from None
    arguments: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            value = _literal_value(node.value)
            if value is not None and node in tree.body:
                arguments[node.targets[0].id.lower()] = value
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for node in calls:
        name = str(getattr(node.func, "id", getattr(node.func, "attr", "")))
        if name.endswith("Plugin") and "plugin" not in arguments:
            arguments |= _literal_keywords(node)
            arguments["plugin"] = name
    if isinstance(arguments.get("plugin"), (str, dict)):
        return arguments
    roots = {one.name.partition(".")[0] for node in tree.body if isinstance(node, ast.Import) for one in node.names}
    roots |= {(node.module or "").partition(".")[0] for node in tree.body if isinstance(node, ast.ImportFrom)}
    said = {key: value for node in calls for key, value in _literal_keywords(node).items() if value is not False}
    return {f"import {root}": True for root in roots} | said


def _literal_keywords(call: ast.Call) -> dict[str, Any]:
    """Return the arguments of a call that stand there in full: ``bf16=True``, ``dtype=torch.bfloat16``."""
    return {k.arg: v for k in call.keywords if k.arg and (v := _literal_value(k.value)) is not None}


def _literal_value(node: Any) -> Any:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch":
        return node.attr
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
