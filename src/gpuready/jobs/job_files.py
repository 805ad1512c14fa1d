"""Read files that describe a job, each once. The kind of a file is recognized by its keys; nothing is executed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gpuready.jobs import (
    axolotl,
    config_reader,
    deepspeed_accelerate,
    huggingface,
    llama_factory,
    roll_colossalai,
    verl,
)
from gpuready.jobs.config_reader import ConfigReader, JobSettings, short_repr
from gpuready.jobs.known_keys import find_key_problems
from gpuready.jobs.roll_colossalai import read_script, read_zero_from_name
from gpuready.model.record import Record
from gpuready.system import AccessError

MAX_FILE_BYTES = 1 << 20
"""The largest file that is read."""
MAX_VALUES = 1_000_000
"""The most values of a file, with each alias counted as what it stands for."""

KIND_KEYS = {
    "verl": ("actor_rollout_ref",),
    "roll": ("actor_train", "sft_train", "student_train", "rollout_batch_size", "student_pretrain", "actor_infer"),
    "axolotl": ("base_model",),
    "accelerate": ("distributed_type", "compute_environment"),
    "deepspeed": (
        "zero_optimization",
        "train_micro_batch_size_per_gpu",
        "zero_allow_untested_optimizer",
        "train_batch_size",
    ),
    "colossalai": ("plugin", "tp_size"),
    "model": ("architectures", "hidden_size", "n_embd", "text_config", "vocab_size", "model_type"),
    "llama-factory": ("model_class", "dist_config", "peft_config"),
    "trainer": (
        "per_device_train_batch_size",
        "num_train_epochs",
        "gradient_checkpointing",
        "max_seq_length",
        "finetuning_type",
        "model_name_or_path",
        "optim",
        "cutoff_len",
    ),
}
"""Keys that identify a kind, in the order in which kinds are tried."""

OWN_FILE_FRAMEWORKS = ("axolotl", "colossalai", "llama-factory", "roll", "verl")
"""Kinds that one framework alone takes."""
LLAMA_FACTORY_KEYS = ("finetuning_type", "cutoff_len")
"""Keys that it adds to those of TrainingArguments."""

KNOWN_KINDS = "axolotl, ROLL, verl, ColossalAI, TrainingArguments, LLaMA-Factory, DeepSpeed or accelerate"


class JobFile(Record):
    """A job's file, read once. Its facts (``job_facts``) and its settings for a fit both come from here."""

    path: str
    kind: str  # "" if its keys are those of no known kind
    config: Mapping[str, Any]


def load_job_file(path: str, read: Callable[[str], str | None], flag: str = "") -> JobFile:
    """Load a file; ValueError, one sentence that starts with ``flag`` and the path, if it is no mapping.

    ``read`` returns the text of a path, None if it does not exist; it may raise AccessError.
    """
    config = read_mapping(path, read, flag)
    if config is None:
        raise ValueError(f"{flag} {path} does not exist".lstrip())
    return make_job_file(path, config)


def make_job_file(path: str, config: dict[str, Any]) -> JobFile:
    if path.endswith(".py"):  # of scripts only ColossalAI's plugin is a job
        return JobFile(path, "colossalai" if "plugin" in config else "", config)
    return JobFile(path, _detect_kind(config), config)


def _detect_kind(config: Mapping[str, Any]) -> str:
    return next((kind for kind, keys in KIND_KEYS.items() if any(key in config for key in keys)), "")


def find_framework(file: JobFile) -> str:
    """Return the framework whose file it is; empty where several take such a file."""
    if file.kind == "trainer" and any(key in file.config for key in LLAMA_FACTORY_KEYS):
        return "llama-factory"
    return file.kind if file.kind in OWN_FILE_FRAMEWORKS else ""


def read_mapping(path: str, read: Callable[[str], str | None], flag: str = "") -> dict[str, Any] | None:
    """Read a JSON, YAML or Python file as a mapping; None if it does not exist."""
    try:
        text = read(path)
    except AccessError as error:
        raise ValueError(f"{flag} {path} cannot be read: {error}".lstrip()) from None
    return None if text is None else decode_mapping(text, path, flag)


def decode_mapping(text: str, path: str, flag: str = "") -> dict[str, Any]:
    """Decode a text by the name of its file. ValueError names the file and the line."""
    name = f"{flag} {path}".lstrip()
    if len(text) > MAX_FILE_BYTES:
        raise ValueError(f"{name} is larger than {MAX_FILE_BYTES >> 20} MiB, which no job's configuration is")
    text = text.removeprefix("\ufeff")  # byte order mark of Windows editors
    if path.endswith(".py"):
        return read_script(text, name)
    if path.endswith(".sh"):
        raise ValueError(
            f"{name} is a shell script, which is not read; the script of a verl job writes its settings: "
            f"`bash {shlex.quote(path)} --cfg job > job.yaml`"
        )
    try:
        is_json = path.endswith(".json") or text.lstrip()[:1] == "{"
        config = decode_json_object(text, name) if is_json else _decode_yaml_mapping(text, name)
    except ValueError:
        if not is_json or path.endswith(".json"):
            raise
        config = _decode_yaml_mapping(text, name)  # a YAML flow mapping
    return {str(key): value for key, value in config.items()}


def decode_json_object(text: str, name: str) -> dict[str, Any]:
    try:
        config = json.loads(text)
    except RecursionError:
        raise ValueError(f"{name} is nested too deeply") from None
    except ValueError as error:
        where = f" line {error.lineno}: {error.msg}" if isinstance(error, json.JSONDecodeError) else f": {error}"
        raise ValueError(f"{name}{where}; it must be JSON") from None
    if not isinstance(config, dict):
        raise ValueError(f"{name} line 1: it must be an object, in braces")
    return config


def _decode_yaml_mapping(text: str, name: str) -> dict[str, Any]:
    import yaml

    try:
        config = yaml.load(text, config_reader.make_bounded_loader())
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} {config_reader.describe_yaml_error(error)}") from None
    if not isinstance(config, dict):
        raise ValueError(f"{name} line 1: it must be a mapping of names to values")
    return config


def read_job_settings(file: JobFile) -> JobSettings:
    """Return what a file sets for a fit. ValueError, one sentence with the file's name, if it describes no job."""
    if file.kind == "model":
        _refuse_endless(file.path, file.config)
        return JobSettings("model", file.path, file.config, said={"model": file.path})
    if not file.kind:
        raise ValueError(describe_unknown_kind(file))
    return _read_kind(file.kind, file.path, file.config)


def describe_unknown_kind(file: JobFile) -> str:
    if file.path.endswith(".py"):
        read = "without running it, only calls of ColossalAI's plugins with plain arguments are read, and it has none"
        return f"{file.path} is a script: {read}; `gpuready fit {file.path}` runs it, with flags such as --on before its name"
    present_keys = ", ".join(short_repr(key) for key in list(file.config)[:3]) or "nothing"
    return f"{file.path} is not a training file of {KNOWN_KINDS}, nor a config.json: it has {present_keys}"


def _read_kind(kind: str, path: str, config: Mapping[str, Any]) -> JobSettings:
    _refuse_endless(path, config)
    readers = {
        "axolotl": axolotl.read_axolotl,
        "trainer": huggingface.read_trainer,
        "llama-factory": llama_factory.read_llama_factory,
        "deepspeed": deepspeed_accelerate.read_deepspeed,
        "accelerate": deepspeed_accelerate.read_accelerate,
        "roll": roll_colossalai.read_roll,
        "colossalai": roll_colossalai.read_colossalai,
        "verl": verl.read_verl,
    }
    return _note_key_problems(readers[kind](path, config), config)


def _note_key_problems(settings: JobSettings, config: Mapping[str, Any]) -> JobSettings:
    """Add what the framework's schema says of the keys. A key that decides the fit was refused by its reader."""
    found = find_key_problems(settings.kind, config)
    notes = (*settings.notes, *(f"{settings.path}: {sentence}" for sentence in found.sentences))
    return settings.replace(notes=notes, unknown_keys=found.unknown)


def _refuse_endless(path: str, config: Mapping[str, Any]) -> None:
    """Refuse a file whose YAML aliases multiply: a value written out in a message would fill the memory."""
    sizes: dict[int, float] = {}

    def count_values(node: Any) -> float:
        if not isinstance(node, (dict, list)):
            return 1
        if id(node) not in sizes:
            sizes[id(node)] = float("inf")  # an alias to itself
            sizes[id(node)] = 1 + sum(map(count_values, node.values() if isinstance(node, dict) else node))
        return sizes[id(node)]

    try:
        count = count_values(config)
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply") from None
    if count > MAX_VALUES:
        raise ValueError(f"{path} has more than {MAX_VALUES} values, counted with its aliases")


def read_settings_with_nested(file: JobFile, read: Callable[[str], str | None]) -> list[JobSettings]:
    """Read a file's settings and those of the files that it names."""
    first = read_job_settings(file)
    return [first, *(_read_nested_file(first, what, name, read) for what, name in first.inner)]


def _read_nested_file(
    outer: JobSettings, what: str, name: str | dict[str, Any], read: Callable[[str], str | None]
) -> JobSettings:
    """Read a file named by another: beside it or from the current folder; if missing, its name may tell the stage."""
    if isinstance(name, dict):
        return _read_kind(what, f"{outer.path}: {what}", name)
    for path in _candidate_paths(outer.path, name):
        config = read_mapping(path, read)
        if config is not None:
            return _read_kind(what, path, config)
    reader = ConfigReader(what, outer.path, {})
    if not read_zero_from_name(reader, name, what):
        raise ValueError(f"{outer.path} names the {what} file {name}, which is not there")
    reader.notes.append(f"{name} is not there: its stage is taken from its name")
    return reader.to_job_settings()


def _candidate_paths(outer: str, name: str) -> list[str]:
    """Return where a name in a file can point: beside the file, in a parent folder, or the current folder."""
    paths, folder = [name], outer.rpartition("/")[0]
    while folder and not name.startswith("/") and len(paths) < 6:
        paths.insert(-1, f"{folder}/{name}")
        folder = folder.rpartition("/")[0]
    return paths


LISTED_SETTINGS = ("unmodelled", "lessened", "notes", "unknown_keys")
LAST_SETTINGS = ("model", "run_steps", "epochs", "datasets", "roles")
"""What all files say together, and what the last of them says."""


def merge_settings(several: Iterable[JobSettings]) -> JobSettings:
    """Merge settings; later ones win, but defaults never replace stated values. The kind is that of the first
    framework file.
    """
    merged = list(several)
    fields: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for settings in merged:
        already_stated = {field for field in settings.supposed if field in fields}
        fields |= {field: value for field, value in settings.fields.items() if field not in already_stated}
        sources |= {field: key for field, key in settings.said.items() if field not in already_stated}
    first = next((one for one in merged if one.kind not in ("", "model", "flags")), JobSettings("flags"))
    found: dict[str, Any] = {
        name: tuple(text for one in merged for text in getattr(one, name)) for name in LISTED_SETTINGS
    }
    for name in LAST_SETTINGS:
        found |= next(({name: value} for one in reversed(merged) if (value := getattr(one, name))), {})
    return JobSettings(first.kind, first.path, fields=fields, said=sources, **found)
