"""Read files that describe a job. The kind of a file is recognized by its keys; nothing is executed."""

from __future__ import annotations

from gpuready.fit.reading import Stated, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

LARGEST = 4 << 20
"""The largest file that is read, in bytes."""

MARKS = {
    "roll": (
        "actor_train",
        "sft_train",
        "student_train",
        "rollout_batch_size",
        "student_pretrain",
        "actor_infer",
    ),
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

KNOWN = "axolotl, ROLL, ColossalAI, TrainingArguments, LLaMA-Factory, DeepSpeed or accelerate"


def stated(source: str, path: str) -> Stated:
    """Return what a file states. ValueError, one sentence with the file's name, if it describes no job."""
    if path.endswith(".py"):
        from gpuready.fit.pipelines import plugin_in_script

        return _read("colossalai", path, plugin_in_script(source, path))
    found = decoded(source, path)
    kind = next((kind for kind, keys in MARKS.items() if any(key in found for key in keys)), "")
    if kind == "model":
        return Stated("model", path, found, said={"model": path})
    if not kind:
        has = ", ".join(shown(key) for key in list(found)[:3]) or "nothing"
        raise ValueError(f"{path} is no training file of {KNOWN}, and no config.json: it has {has}")
    return _read(kind, path, found)


def _read(kind: str, path: str, found: dict[str, Any]) -> Stated:
    from gpuready.fit import axolotl, dialects, engines, factory, pipelines

    readers = {
        "axolotl": axolotl.axolotl,
        "trainer": dialects.trainer,
        "llama-factory": factory.factory,
        "deepspeed": engines.deepspeed,
        "accelerate": engines.accelerate,
        "roll": pipelines.roll,
        "colossalai": pipelines.colossalai,
    }
    return readers[kind](path, found)


def decoded(source: str, path: str) -> dict[str, Any]:
    """Decode JSON or YAML into a mapping. ValueError names the file and the line."""
    if len(source) > LARGEST:
        raise ValueError(f"{path} is larger than {LARGEST >> 20} MiB, which no configuration is")
    source = source.removeprefix("\ufeff")  # byte order mark of Windows editors
    found = (
        _json(source, path) if path.endswith(".json") or source.lstrip()[:1] == "{" else _yaml(source, path)
    )
    if not isinstance(found, dict):
        raise ValueError(f"{path} line 1: it must be a mapping of names to values")
    return {str(key): value for key, value in found.items()}


def _json(source: str, path: str) -> Any:
    import json

    try:
        return json.loads(source)
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply") from None
    except ValueError as bad:
        where = f" line {bad.lineno}: {bad.msg}" if isinstance(bad, json.JSONDecodeError) else f": {bad}"
        raise ValueError(f"{path}{where}; it must be JSON") from None


def _yaml(source: str, path: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise ValueError(f"{path} needs PyYAML to be read: install the package pyyaml") from None
    try:
        return yaml.safe_load(source)
    except yaml.YAMLError as bad:
        mark = getattr(bad, "problem_mark", None)
        line = f" line {mark.line + 1}" if mark is not None else ""
        what = getattr(bad, "problem", None) or str(bad).partition("\n")[0]
        raise ValueError(f"{path}{line}: {what}; it must be YAML") from None
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply") from None
    except (ValueError, OverflowError) as bad:
        raise ValueError(f"{path} cannot be read as YAML: {bad}") from None


def opened(path: str, read: Callable[[str], str | None]) -> list[Stated]:
    """Read a file and the files that it names. ``read`` returns the text of a path, None if it does not exist."""
    source = read(path)
    if source is None:
        raise ValueError(f"{path} does not exist")
    first = stated(source, path)
    whole = [first]
    for what, name in first.inner:
        whole.append(_inner(first, what, name, read))
    return whole


def _inner(outer: Stated, what: str, name: str | dict[str, Any], read: Callable[[str], str | None]) -> Stated:
    """Read a file named by another: beside it or from the current folder; if missing, its name may tell the stage."""
    if isinstance(name, dict):
        return _read(what, f"{outer.path}: {what}", name)
    for path in _nearby(outer.path, name):
        source = read(path)
        if source is not None:
            return _read(what, path, decoded(source, path))
    from gpuready.fit.pipelines import named
    from gpuready.fit.reading import Reading

    guess = Reading(what, outer.path, {})
    if not named(guess, name, what):
        raise ValueError(f"{outer.path} names the {what} file {name}, which is not there")
    guess.notes.append(f"{name} is not there: its stage is taken from its name")
    return guess.stated()


def _nearby(outer: str, name: str) -> list[str]:
    """Return where a name in a file can point: beside the file, in a parent folder, or the current folder."""
    paths, folder = [name], outer.rpartition("/")[0]
    while folder and not name.startswith("/") and len(paths) < 6:
        paths.insert(-1, f"{folder}/{name}")
        folder = folder.rpartition("/")[0]
    return paths


def merged(several: Iterable[Stated]) -> Stated:
    """Merge settings; later ones win, but defaults never replace stated values. The kind is that of the first
    framework file.
    """
    fields: dict[str, Any] = {}
    said: dict[str, str] = {}
    model: str | Mapping[str, Any] = ""
    unmodelled: list[str] = []
    lessened: list[str] = []
    notes: list[str] = []
    kind = path = ""
    for one in several:
        stands = {field for field in one.supposed if field in fields}
        fields |= {field: value for field, value in one.fields.items() if field not in stands}
        said |= {field: key for field, key in one.said.items() if field not in stands}
        model = one.model or model
        unmodelled += one.unmodelled
        lessened += one.lessened
        notes += one.notes
        if not kind and one.kind not in ("model", "flags"):
            kind, path = one.kind, one.path
    return Stated(
        kind or "flags", path, model, fields, said, (), tuple(unmodelled), tuple(lessened), tuple(notes)
    )
