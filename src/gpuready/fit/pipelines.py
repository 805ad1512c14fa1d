"""Read ROLL's YAML and ColossalAI plugins. A ColossalAI script is parsed and never run."""

from __future__ import annotations

from gpuready.fit.dialects import WIDE, adapter, attention, optimizer, targets
from gpuready.fit.reading import Reading, Stated, count, mapping, shown, stage, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

ROLES = ("actor_train", "sft_train", "student_train", "student", "critic", "reward_train")
"""ROLL's training roles, the most demanding first."""

MOST = 1 << 16
"""The largest number of GPUs accepted from a device mapping."""


# -- ROLL -----------------------------------------------------------------------------------------------------


def roll(path: str, found: Mapping[str, Any]) -> Stated:
    role = next((name for name in ROLES if isinstance(found.get(name), dict)), "")
    if not role:
        raise ValueError(f"{path}: no role that trains is in it: one of {', '.join(ROLES[:4])} must be")
    one = Reading("roll", path, _resolved(found))
    one.name(f"{role}.model_args.model_name_or_path", "pretrain", "base_model", "student_pretrain")
    one.put("loop", "plain", "ROLL's own loop")
    _roll_lengths(one, role)
    _roll_model(one, f"{role}.model_args.")
    one.take("micro_batch", count, f"{role}.training_args.per_device_train_batch_size")
    one.take("accumulation", count, f"{role}.training_args.gradient_accumulation_steps")
    optimizer(one, f"{role}.training_args.optim")
    used = devices(one.get(f"{role}.device_mapping"))
    if used:
        one.put("world", len(used), f"{role}.device_mapping")
    _roll_strategy(one, f"{role}.strategy_args.", found)
    _roll_others(one, role, used)
    return one.stated()


def _resolved(found: Mapping[str, Any]) -> dict[str, Any]:
    """Replace ``${name}`` at the top level by the value it names, if the file has it."""
    out = dict(found)
    for key, value in found.items():
        if isinstance(value, str) and value.startswith("${") and value.endswith("}"):
            out[key] = found.get(value[2:-1], value)
    for key, value in out.items():
        if isinstance(value, dict) and isinstance(value.get("model_args"), dict):
            args = {k: out.get(v[2:-1], v) if _refers(v) else v for k, v in value["model_args"].items()}
            out[key] = value | {"model_args": args}
    return out


def _refers(value: object) -> bool:
    return isinstance(value, str) and value.startswith("${") and value.endswith("}")


def _roll_lengths(one: Reading, role: str) -> None:
    if one.take("seq", count, "sequence_length") is None:
        prompt, answer = one.value("prompt_length", count), one.value("response_length", count)
        if prompt and answer:
            one.put("seq", prompt + answer, "prompt_length + response_length")
    if role == "actor_train" and one.get("pipeline") == "dpo":
        one.put("dpo", True, "pipeline")


def _roll_model(one: Reading, at: str) -> None:
    word = one.value(f"{at}dtype", text) or one.value(f"{at}compute_dtype", text)
    if word and word in WIDE:
        one.put("precision", WIDE[word], f"{at}dtype")
    attention(one, f"{at}attn_implementation", f"{at}flash_attn")
    if not one.on(f"{at}disable_gradient_checkpointing"):
        one.put("checkpointing", "nonreentrant", f"{at}disable_gradient_checkpointing")
    if one.value(f"{at}lora_rank", count):
        one.put("method", "lora", f"{at}lora_rank")
        adapter(one, f"{at}lora_rank", f"{at}lora_dropout", f"{at}use_dora")
        targets(one, f"{at}lora_target")


def _roll_strategy(one: Reading, at: str, found: Mapping[str, Any]) -> None:
    name = str(one.get(f"{at}strategy_name") or "")
    inner = one.found
    for part in f"{at}strategy_config".split("."):
        inner = inner.get(part, {}) if isinstance(inner, dict) else {}
    if name.startswith("deepspeed"):
        _roll_deepspeed(one, inner, at, found)
    elif name.startswith("fsdp"):
        one.put("fsdp", True, f"{at}strategy_name")
        if not (isinstance(inner, dict) and inner.get("param_dtype")):
            one.put("fp32_shards", True, f"{at}strategy_config.param_dtype (ROLL's default)")
        if isinstance(inner, dict) and inner.get("offload_policy"):
            one.put("offload", "parameters", f"{at}strategy_config")
    elif name.startswith("megatron"):
        _roll_megatron(one, at)
    elif name and name != "hf_train":
        one.unmodelled.append(f"the strategy {shown(name)} is not counted")
        one.lessened.append(f"the strategy {shown(name)} is not counted")


def _roll_deepspeed(one: Reading, inner: Any, at: str, found: Mapping[str, Any]) -> None:
    """Read settings from the file, or from a name in ROLL's own folder such as ${deepspeed_zero3}."""
    from gpuready.fit.engines import deepspeed

    key = f"{at}strategy_config"
    if _refers(inner) and isinstance(found.get(inner[2:-1]), dict):
        inner = found[inner[2:-1]]
    if isinstance(inner, dict) and "zero_optimization" in inner:
        inside = deepspeed(f"{one.path}: {key}", inner)
        one.fields |= inside.fields
        one.said |= inside.said
    elif isinstance(inner, str):
        named(one, inner, key)


def named(one: Reading, name: str, key: str) -> bool:
    """Read stage and offload from the name of a DeepSpeed file: zero3, zero2_cpuoffload."""
    low = name.lower().replace("-", "").replace("_", "")
    marks = ("zero", "stage", "dsz")
    level = next((n for n in (3, 2, 1, 0) if any(f"{mark}{n}" in low for mark in marks)), None)
    if level is None:
        return False
    one.put("zero", level, f"{key} ({name}, by its name)")
    if "offload" in low:
        one.put(
            "offload",
            "parameters" if level == 3 and "optim" not in low else "optimizer",
            f"{key} (by its name)",
        )
    return True


def _roll_megatron(one: Reading, at: str) -> None:
    inside = f"{at}strategy_config."
    one.take("tensor_parallel", count, f"{inside}tensor_model_parallel_size")
    if one.on(f"{inside}use_distributed_optimizer"):
        one.put("zero", 1, f"{inside}use_distributed_optimizer")
    one.unmodelled.append("Megatron's own layers and buffers are counted as those of transformers")
    for key in ("pipeline_model_parallel_size", "expert_model_parallel_size", "context_parallel_size"):
        if (one.value(inside + key, count) or 1) > 1:
            one.lessened.append(f"{key} is not counted")


def _roll_others(one: Reading, role: str, used: set[int]) -> None:
    """Note other roles on the same GPUs: ROLL offloads their weights in between, but their contexts stay."""
    for name, value in one.found.items():
        if name == role or not isinstance(value, dict) or "strategy_args" not in value:
            continue
        if used & devices(value.get("device_mapping")):
            one.unmodelled.append(f"{name} shares GPUs with {role}: what it keeps there is not counted")


def devices(value: object) -> set[int]:
    """Parse ``list(range(0,8))``, ``[0, 1]`` or a list into GPU indexes, without evaluating it."""
    if isinstance(value, list):
        return {item for item in value if isinstance(item, int) and not isinstance(item, bool)}
    if not isinstance(value, str) or len(value) > 500:
        return set()
    import re

    found: set[int] = set()
    for start, stop in re.findall(r"range\(\s*(?:(\d{1,5})\s*,\s*)?(\d{1,5})\s*(?:,\s*1\s*)?\)", value):
        found |= set(range(int(start or 0), min(int(stop), MOST)))
    if not found and re.fullmatch(r"\[?[\d,\s]+\]?", value.strip()):
        found = {int(number) for number in re.findall(r"\d{1,5}", value)}
    return found


# -- ColossalAI -----------------------------------------------------------------------------------------------

PLUGINS = {
    "zero2": "LowLevelZeroPlugin", "zero2_cpu": "LowLevelZeroPlugin", "low_level_zero": "LowLevelZeroPlugin",
    "gemini": "GeminiPlugin", "gemini_auto": "GeminiPlugin", "3d": "HybridParallelPlugin", "3d_cpu": "HybridParallelPlugin",
    "hybrid_parallel": "HybridParallelPlugin", "ddp": "TorchDDPPlugin", "torch_ddp": "TorchDDPPlugin",
    "torch_ddp_fp16": "TorchDDPPlugin", "fsdp": "TorchFSDPPlugin", "torch_fsdp": "TorchFSDPPlugin",
    "moe": "MoeHybridParallelPlugin",
}  # fmt: skip


def colossalai(path: str, found: Mapping[str, Any]) -> Stated:
    """Read a plugin and its arguments: flat beside ``plugin``, or as a mapping."""
    plugin = found.get("plugin")
    flat = dict(found)
    if isinstance(plugin, dict):
        flat |= plugin
        plugin = plugin.get("name") or plugin.get("type") or plugin.get("plugin")
    if not isinstance(plugin, str):
        raise ValueError(
            f"{path}: plugin must name a ColossalAI plugin, such as HybridParallelPlugin or zero2"
        )
    name = PLUGINS.get(plugin.lower(), plugin)
    one = Reading("colossalai", path, flat)
    one.name("pretrain", "pretrained", "model_name_or_path", "model", "model_path")
    _colossal_job(one)
    _colossal_plugin(one, name, plugin.lower())
    return one.stated()


def _colossal_job(one: Reading) -> None:
    one.take("micro_batch", count, "microbatch_size", "batch_size", "micro_batch_size")
    one.take("seq", count, "max_length", "max_len", "seq_length", "max_seq_length")
    one.take("accumulation", count, "accumulation_steps", "gradient_accumulation_steps", "grad_accum")
    one.take("world", count, "world_size", "nproc_per_node", "num_gpus")
    if one.value("lora_rank", lambda v: 0 if v == 0 else count(v)):
        one.put("method", "lora", "lora_rank")
        one.take("lora_r", count, "lora_rank")
    if one.on("grad_checkpoint") or one.on("gradient_checkpointing"):
        one.put("checkpointing", "nonreentrant", "grad_checkpoint")
    if one.on("use_flash_attn") or one.on("enable_flash_attention"):
        one.put("attention", "flash", "use_flash_attn")
    word = str(one.get("mixed_precision") or one.get("precision") or "fp16").lower()
    one.put("precision", WIDE.get(word, "fp16"), "precision" if one.get("precision") else "mixed_precision")
    one.put("optimizer", "adamw_fused", "ColossalAI's HybridAdam is fused")


def _colossal_plugin(one: Reading, name: str, asked: str) -> None:
    key = "plugin"
    if name == "LowLevelZeroPlugin":
        one.put(
            "zero",
            one.value("stage", stage) or one.value("zero_stage", stage) or (2 if "2" in asked else 1),
            key,
        )
    elif name == "GeminiPlugin":
        one.put("zero", 3, key)
        one.unmodelled.append("Gemini's chunks are counted as ZeRO-3")
        if one.get("placement_policy") in ("auto", "cpu") or asked == "gemini_auto":
            one.lessened.append("what Gemini moves to the host by itself is not counted")
    elif name in ("HybridParallelPlugin", "MoeHybridParallelPlugin"):
        one.take("tensor_parallel", count, "tp_size", "tp")
        one.take("zero", stage, "zero_stage", "zero")
        for other in ("pp_size", "pp", "sp_size", "sp", "ep_size", "ep"):
            if (one.value(other, count) or 1) > 1:
                one.lessened.append(f"{other} is not counted")
    elif name == "TorchFSDPPlugin":
        one.put("fsdp", True, key)
    elif name != "TorchDDPPlugin":
        raise ValueError(
            f"{one.path}: ColossalAI has no plugin {shown(name)}; it has {', '.join(sorted(set(PLUGINS.values())))}"
        )
    if one.on("cpu_offload") or one.on("zero_cpu_offload") or asked.endswith("_cpu"):
        one.put("offload", "optimizer", "cpu_offload")


def plugin_in_script(source: str, path: str) -> dict[str, Any]:
    """Return the plugin that a Python file creates, with its literal arguments; the text is parsed, not run."""
    import ast

    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as bad:
        raise ValueError(
            f"{path} is not Python: {getattr(bad, 'msg', None) or bad or 'nested too deeply'}"
        ) from None
    found: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            value = _literal(node.value)
            if value is not None and node in tree.body:
                found[node.targets[0].id.lower()] = value
    for node in ast.walk(tree):
        name = _called(node)
        if isinstance(node, ast.Call) and name.endswith("Plugin") and "plugin" not in found:
            found |= {k.arg: v for k in node.keywords if k.arg and (v := _literal(k.value)) is not None}
            found["plugin"] = name
    if not isinstance(found.get("plugin"), (str, dict)):
        raise ValueError(f"{path} makes no ColossalAI plugin with arguments that stand there in full")
    return mapping(found)


def _called(node: object) -> str:
    import ast

    if not isinstance(node, ast.Call):
        return ""
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def _literal(node: Any) -> Any:
    import ast

    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
