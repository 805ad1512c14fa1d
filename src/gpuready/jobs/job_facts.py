"""Facts that a job's file states: Hugging Face arguments, axolotl or ROLL YAML, or a model's config.json.

Only explicit settings count. ``auto``, templates and framework defaults state nothing.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from gpuready.catalog import load_catalog
from gpuready.jobs import model_config
from gpuready.jobs.config_reader import is_off, short_repr
from gpuready.jobs.job_files import JobFile, find_framework
from gpuready.jobs.known_keys import find_key_problems
from gpuready.model import Fact
from gpuready.system import HostAccess

MAX_VALUES = 20_000
"""Limit on the values read per file: aliases can make a small file endless."""

MODEL_KEYS = ("base_model", "model_name_or_path", "pretrain", "model_name", "pretrained_model_name_or_path")
ACCELERATE_GPU_TYPES = ("MULTI_GPU", "FSDP", "DEEPSPEED", "MEGATRON_LM")
"""Kinds of ``distributed_type`` whose processes have a GPU each."""


def job_file_facts(host: HostAccess, file: JobFile) -> list[Fact]:
    """Return the facts that the file states."""
    config, path = file.config, file.path
    stated: dict[str, Any] = {"job.config": path}
    if file.kind == "model" and "model_type" in config and ("architectures" in config or "vocab_size" in config):
        stated["job.parameters"] = model_config.count_config_parameters(config, path, "--config")
    needs = list(find_job_needs(file))
    wants = tuple(dict.fromkeys([row["want"] for row, _ in needs if "want" in row] + _find_parallel_wants(config)))
    brought = [
        {"packages": row["packages"], "because": said, "source": row["source"]}
        for row, said in needs
        if "packages" in row
    ]
    stated |= {"job.wants": wants} if wants else {}
    stated |= {"job.packages": tuple(brought)} if brought else {}
    stated |= _find_gpu_count(file) | _find_model_facts(host, config) | _find_key_facts(file)
    return [Fact(key, value, path if key != "job.config" else "--config", "stated") for key, value in stated.items()]


def walk_pairs(config: Any) -> Iterator[tuple[str, Any]]:
    """Yield every key and value at any depth, each mapping once, up to MAX_VALUES."""
    waiting, seen, count = [config], set(), 0
    while waiting and count < MAX_VALUES:
        node = waiting.pop()
        if isinstance(node, (dict, list)):
            if id(node) in seen:
                continue
            seen.add(id(node))
        if isinstance(node, dict):
            for key, value in node.items():
                count += 1
                yield str(key).lower(), value
            waiting += node.values()
        elif isinstance(node, list):
            count += len(node)
            waiting += node


def find_job_needs(file: JobFile) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield the rows of catalog/job_needs.toml that a file's settings meet, with the setting: ``use_peft: true``."""
    pairs, framework = list(walk_pairs(file.config)), find_framework(file)
    present = {key for key, _ in pairs}
    for row in load_catalog("job_needs")["need"]:
        if framework not in row.get("frameworks", (framework,)) or not present.isdisjoint(row.get("unless", ())):
            continue
        said = next((f"{key}: {short_repr(value)}" for key, value in pairs if _meets_row(row, key, value)), "")
        if said:
            yield row, said


def _meets_row(row: Mapping[str, Any], key: str, value: Any) -> bool:
    if key not in row["keys"]:
        return False
    if "values" not in row:
        return not is_off(value)
    words = [
        str(word).lower() for word in (value if isinstance(value, list) else [value]) if isinstance(word, (str, int))
    ]
    return any(
        word.startswith(wanted[:-1]) if wanted.endswith("*") else word == wanted
        for word in words
        for wanted in row["values"]
    )


def _find_parallel_wants(config: Mapping[str, Any]) -> list[str]:
    """What follows from settings together, or from a number."""
    pairs = dict(walk_pairs(config))
    fsdp = "" if is_off(pairs.get("fsdp")) else "fsdp2" if config.get("fsdp_version") in (2, "2") else "fsdp"
    ranks = pairs.get("tensor_parallel_size")
    return [word for word in (fsdp, "tensor-parallel" if isinstance(ranks, int) and ranks > 1 else "") if word]


def _find_key_facts(file: JobFile) -> dict[str, Any]:
    """What the framework's own schema does not have, and the values that it does not take."""
    found = find_key_problems(file.kind, file.config)
    strange = [{"key": key, "nearest": near} for key, near in (*found.misspelt, *((key, "") for key in found.unknown))]
    wrong = [{"key": key, "takes": takes, "found": value} for key, takes, value in found.wrong]
    stated = {"job.unknown_keys": tuple(strange), "job.wrong_values": tuple(wrong)}
    return {key: rows for key, rows in stated.items() if rows}


def _find_gpu_count(file: JobFile) -> dict[str, Any]:
    """The GPUs of one node."""
    for key, value in walk_pairs(file.config):
        if key in ("num_gpus_per_node", "n_gpus_per_node") and _is_gpu_count(value):
            return {"job.gpus": value}
    return _find_accelerate_count(file.config) if file.kind == "accelerate" else {}


def _find_accelerate_count(config: Mapping[str, Any]) -> dict[str, Any]:
    """accelerate's ``num_processes`` is the total of all its ``num_machines``; each process has a GPU."""
    processes, machines = config.get("num_processes"), config.get("num_machines", 1)
    on_gpus = str(config.get("distributed_type", "MULTI_GPU")).upper() in ACCELERATE_GPU_TYPES and is_off(
        config.get("use_cpu", False)
    )
    if on_gpus and _is_gpu_count(processes) and _is_gpu_count(machines) and processes % machines == 0:
        return {"job.gpus": processes // machines}
    return {}


def _is_gpu_count(value: Any) -> bool:
    return type(value) is int and 0 < value <= 1024


def _find_model_facts(host: HostAccess, config: Mapping[str, Any]) -> dict[str, Any]:
    """The model, its size from its name or its files, and the device map."""
    stated: dict[str, Any] = {}
    for key, value in walk_pairs(config):
        if key == "device_map" and isinstance(value, (str, dict)) and value:
            stated.setdefault("job.device_map", value if isinstance(value, str) else "custom")
        if key in MODEL_KEYS and isinstance(value, str) and value and "${" not in value:
            stated.setdefault("job.model", value)
    name = stated.get("job.model")
    if name:
        is_path = name.startswith(("/", "./", "../"))
        local = model_config.count_parameters_at_path(host, name, "--config") if is_path else None
        count = local or model_config.find_size_in_name(name)
        stated |= {"job.parameters": count} if count else {}
    return stated
