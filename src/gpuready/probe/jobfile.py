"""A job's configuration file: Hugging Face arguments, axolotl or ROLL YAML, or a model's config.json.

Only explicit settings count. ``auto``, templates and framework defaults state nothing.
"""

from __future__ import annotations

from gpuready.model import Fact
from gpuready.probe import modelfile, size, yamls
from gpuready.system import Blind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from gpuready.system import Door

LARGEST = 1 << 20
NODES = 20_000
"""Limit on the values read per file: aliases can make a small file endless."""

SWITCHES = {
    "bf16": "bf16", "fp16": "fp16", "tf32": "tf32", "fp8": "fp8", "bfloat16": "bf16", "float16": "fp16",
    "load_in_4bit": "bnb-4bit", "load_in_8bit": "bnb-8bit", "gptq": "gptq", "torch_compile": "torch-compile",
    "flash_attention": "flash-attn", "use_flash_attn": "flash-attn", "xformers_attention": "xformers",
    "sdp_attention": "sdpa", "flex_attention": "flex-attention", "sage_attention": "sage-attention",
    "use_liger_kernel": "liger", "deepspeed": "deepspeed", "fsdp": "fsdp", "use_ray": "ray",
    "cut_cross_entropy": "cut-cross-entropy", "use_vllm": "vllm", "full_determinism": "determinism",
}  # fmt: skip
"""Keys that request a capability unless their value is false."""

WORDS = {
    "flash_attention_2": "flash-attn", "flash_attention_3": "flash-attn-3", "fa2": "flash-attn",
    "flash_attention_4": "flash-attn-4", "sdpa": "sdpa", "flex_attention": "flex-attention",
    "xformers": "xformers", "lora": "lora", "qlora": "qlora", "bf16": "bf16", "bfloat16": "bf16",
    "fp16": "fp16", "float16": "fp16", "grpo": "grpo", "megatron_train": "megatron",
    "megatron_infer": "megatron", "deepspeed_train": "deepspeed", "deepspeed_infer": "deepspeed",
    "fsdp2_train": "fsdp2", "vllm": "vllm", "sglang": "sglang",
    "axolotl.integrations.liger.ligerplugin": "liger",
    "axolotl.integrations.cut_cross_entropy.cutcrossentropyplugin": "cut-cross-entropy",
}  # fmt: skip
ASKING = (
    "attn_implementation", "attn", "flash_attn", "adapter", "peft_type", "mixed_precision", "torch_dtype",
    "dtype", "strategy_name", "rl", "plugins", "infer_backend",
)  # fmt: skip
"""Keys whose value names a capability."""

MODELS = ("base_model", "model_name_or_path", "pretrain", "model_name", "pretrained_model_name_or_path")
OFF: tuple[Any, ...] = (None, False, "", 0, "no", "none", "false", "auto", "off", [], {})


def look(door: Door, path: str) -> list[Fact]:
    """Return the facts that the file states. ValueError names file and line if it cannot be parsed."""
    found = load(door, path)
    stated: dict[str, Any] = {"job.config": path}
    if _is_model(found):
        stated["job.parameters"] = modelfile.parameters(found, path, "--config")
    wants = tuple(dict.fromkeys(_wants(found)))
    stated |= {"job.wants": wants} if wants else {}
    stated |= _gpus(found) | _model(door, found, path)
    return [
        Fact(key, value, path if key != "job.config" else "--config", "stated")
        for key, value in stated.items()
    ]


def load(door: Door, path: str) -> dict[str, Any]:
    """Load the file as a mapping, JSON or YAML by its name."""
    try:
        text = door.read(path, LARGEST + 1)
    except Blind as blind:
        raise ValueError(f"--config {path} cannot be read: {blind}") from None
    if text is None:
        raise ValueError(f"--config {path} does not exist")
    if len(text) > LARGEST:
        raise ValueError(
            f"--config {path} is larger than {LARGEST >> 20} MiB, which no job's configuration is"
        )
    if path.endswith(".json"):
        return modelfile.decoded(text, path, "--config")
    return _yaml(text, path)


def _yaml(text: str, path: str) -> dict[str, Any]:
    try:
        import yaml
    except ImportError:
        raise ValueError(f"--config {path} needs PyYAML to be read: install the package pyyaml") from None
    try:
        found = yaml.load(text, yamls.loader())
    except (yaml.YAMLError, RecursionError, ValueError) as bad:
        raise ValueError(f"--config {path} {yamls.fault(bad)}") from None
    if not isinstance(found, dict):
        raise ValueError(f"--config {path} line 1: it must be a mapping of names to values")
    return found


def _is_model(found: dict[str, Any]) -> bool:
    return "model_type" in found and ("architectures" in found or "vocab_size" in found)


def pairs(found: Any) -> Iterator[tuple[str, Any]]:
    """Yield every key and value at any depth, each mapping once, up to MAX_VALUES."""
    waiting, seen, count = [found], set(), 0
    while waiting and count < NODES:
        here = waiting.pop()
        if isinstance(here, (dict, list)):
            if id(here) in seen:
                continue
            seen.add(id(here))
        if isinstance(here, dict):
            for key, value in here.items():
                count += 1
                yield str(key).lower(), value
            waiting += here.values()
        elif isinstance(here, list):
            count += len(here)
            waiting += here


def _wants(found: dict[str, Any]) -> Iterator[str]:
    for key, value in pairs(found):
        if key in SWITCHES and not _off(value):
            second = key == "fsdp" and found.get("fsdp_version") in (2, "2")
            yield "fsdp2" if second else SWITCHES[key]
        if key in ASKING:
            for word in value if isinstance(value, list) else [value]:
                if isinstance(word, str) and word.lower() in WORDS:
                    yield WORDS[word.lower()]
        if key == "tensor_parallel_size" and isinstance(value, int) and value > 1:
            yield "tensor-parallel"


def _off(value: Any) -> bool:
    return (value.lower() if isinstance(value, str) else value) in OFF


def _gpus(found: dict[str, Any]) -> dict[str, Any]:
    for key, value in pairs(found):
        if key in ("num_gpus_per_node", "n_gpus_per_node") and isinstance(value, int) and 0 < value <= 1024:
            return {"job.gpus": value}
    return {}


def _model(door: Door, found: dict[str, Any], path: str) -> dict[str, Any]:
    """The model, its size from its name or its files, and the device map."""
    stated: dict[str, Any] = {}
    for key, value in pairs(found):
        if key == "device_map" and isinstance(value, (str, dict)) and value:
            stated.setdefault("job.device_map", value if isinstance(value, str) else "custom")
        if key in MODELS and isinstance(value, str) and value and "${" not in value:
            stated.setdefault("job.model", value)
    name = stated.get("job.model")
    if name:
        local = modelfile.of_path(door, name, "--config") if name.startswith(("/", "./", "../")) else None
        count = local or size.in_name(name)
        stated |= {"job.parameters": count} if count else {}
    return stated
