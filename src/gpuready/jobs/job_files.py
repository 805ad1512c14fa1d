"""Read files that describe a job. The kind of a file is recognized by its keys; nothing is executed."""

from __future__ import annotations

from gpuready.jobs.config_reader import JobSettings, short_repr

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

MAX_FILE_SIZE = 4 << 20
"""The largest file that is read, in bytes."""

KIND_KEYS = {
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

KNOWN_KINDS = "axolotl, ROLL, ColossalAI, TrainingArguments, LLaMA-Factory, DeepSpeed or accelerate"


def read_job_text(source: str, path: str) -> JobSettings:
    """Return what a file states. ValueError, one sentence with the file's name, if it describes no job."""
    if path.endswith(".py"):
        from gpuready.jobs.roll_colossalai import find_plugin_in_script

        return _read_kind("colossalai", path, find_plugin_in_script(source, path))
    config = decode_config(source, path)
    kind = next((kind for kind, keys in KIND_KEYS.items() if any(key in config for key in keys)), "")
    if kind == "model":
        return JobSettings("model", path, config, said={"model": path})
    if not kind:
        present_keys = ", ".join(short_repr(key) for key in list(config)[:3]) or "nothing"
        raise ValueError(f"{path} is no training file of {KNOWN_KINDS}, and no config.json: it has {present_keys}")
    return _read_kind(kind, path, config)


def _read_kind(kind: str, path: str, config: dict[str, Any]) -> JobSettings:
    from gpuready.jobs import axolotl, deepspeed_accelerate, huggingface, llama_factory, roll_colossalai

    readers = {
        "axolotl": axolotl.read_axolotl,
        "trainer": huggingface.read_trainer,
        "llama-factory": llama_factory.read_llama_factory,
        "deepspeed": deepspeed_accelerate.read_deepspeed,
        "accelerate": deepspeed_accelerate.read_accelerate,
        "roll": roll_colossalai.read_roll,
        "colossalai": roll_colossalai.read_colossalai,
    }
    return readers[kind](path, config)


def decode_config(source: str, path: str) -> dict[str, Any]:
    """Decode JSON or YAML into a mapping. ValueError names the file and the line."""
    if len(source) > MAX_FILE_SIZE:
        raise ValueError(f"{path} is larger than {MAX_FILE_SIZE >> 20} MiB, which no configuration is")
    source = source.removeprefix("\ufeff")  # byte order mark of Windows editors
    config = (
        _decode_json(source, path)
        if path.endswith(".json") or source.lstrip()[:1] == "{"
        else _decode_yaml(source, path)
    )
    if not isinstance(config, dict):
        raise ValueError(f"{path} line 1: it must be a mapping of names to values")
    return {str(key): value for key, value in config.items()}


def _decode_json(source: str, path: str) -> Any:
    import json

    try:
        return json.loads(source)
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply") from None
    except ValueError as error:
        where = f" line {error.lineno}: {error.msg}" if isinstance(error, json.JSONDecodeError) else f": {error}"
        raise ValueError(f"{path}{where}; it must be JSON") from None


def _decode_yaml(source: str, path: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise ValueError(f"{path} needs PyYAML to be read: install the package pyyaml") from None
    try:
        return yaml.safe_load(source)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}" if mark is not None else ""
        what = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise ValueError(f"{path}{line}: {what}; it must be YAML") from None
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply") from None
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{path} cannot be read as YAML: {error}") from None


def read_job_files(path: str, read: Callable[[str], str | None]) -> list[JobSettings]:
    """Read a file and the files that it names. ``read`` returns the text of a path, None if it does not exist."""
    source = read(path)
    if source is None:
        raise ValueError(f"{path} does not exist")
    first = read_job_text(source, path)
    settings = [first]
    for what, name in first.inner:
        settings.append(_read_nested_file(first, what, name, read))
    return settings


def _read_nested_file(
    outer: JobSettings, what: str, name: str | dict[str, Any], read: Callable[[str], str | None]
) -> JobSettings:
    """Read a file named by another: beside it or from the current folder; if missing, its name may tell the stage."""
    if isinstance(name, dict):
        return _read_kind(what, f"{outer.path}: {what}", name)
    for path in _candidate_paths(outer.path, name):
        source = read(path)
        if source is not None:
            return _read_kind(what, path, decode_config(source, path))
    from gpuready.jobs.config_reader import ConfigReader
    from gpuready.jobs.roll_colossalai import read_zero_from_name

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


def merge_settings(several: Iterable[JobSettings]) -> JobSettings:
    """Merge settings; later ones win, but defaults never replace stated values. The kind is that of the first
    framework file.
    """
    fields: dict[str, Any] = {}
    sources: dict[str, str] = {}
    model: str | Mapping[str, Any] = ""
    unmodelled: list[str] = []
    lessened: list[str] = []
    notes: list[str] = []
    kind = path = ""
    for settings in several:
        already_stated = {field for field in settings.supposed if field in fields}
        fields |= {field: value for field, value in settings.fields.items() if field not in already_stated}
        sources |= {field: key for field, key in settings.said.items() if field not in already_stated}
        model = settings.model or model
        unmodelled += settings.unmodelled
        lessened += settings.lessened
        notes += settings.notes
        if not kind and settings.kind not in ("model", "flags"):
            kind, path = settings.kind, settings.path
    return JobSettings(
        kind or "flags", path, model, fields, sources, (), tuple(unmodelled), tuple(lessened), tuple(notes)
    )
