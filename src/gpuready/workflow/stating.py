"""The job to fit: merge files, model name and flags, and check which flags apply."""

from __future__ import annotations

from gpuready import system
from gpuready.fit import Job, configs, files, models
from gpuready.fit.reading import Stated, shown
from gpuready.workflow.refusal import Refused, named, refusing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from gpuready.fitted import Place

FILES = (".json", ".yml", ".yaml", ".py")
LAUNCHED = ("axolotl", "llama-factory", "trainer", "accelerate", "colossalai")
"""Kinds of files whose launchers use every GPU of the machine."""
ADAPTER = ("lora_r", "lora_targets", "lora_dtype")
GENERATION = ("new_tokens", "cache")
TRAINING = ("optimizer", "checkpointing", "accumulation", "loss", "keep_outputs", "dpo")


def read(arguments: Sequence[str], given: Mapping[str, Any]) -> tuple[str, Stated]:
    """Merge what the files, the model name and the flags say."""
    words = [word for word in arguments if not is_file(word)]
    if not all(word.strip() for word in arguments):
        raise ValueError("a model's name or a file is empty: write it, as in gpuready fit llama-3.1-8b")
    if len(words) > 1:
        raise ValueError(f"one job has one model, and {' and '.join(map(shown, words))} are two")
    several = [one for word in arguments if is_file(word) for one in files.opened(word, _text)]
    several += [Stated("model", word, word, said={"model": word}) for word in words]  # overrides a file's
    whole = files.merged(
        [*several, Stated("flags", fields=given, said=dict.fromkeys(given, "the command line"))]
    )
    if not whole.model:
        named = next((one.path for one in several), "")
        raise ValueError(f"{named} names no model: write it too, as in gpuready fit llama-3.1-8b {named}")
    label, own = _model(whole.model, whole.path, whole.said.get("model", ""))
    if "quant" in whole.fields:  # a requested quantization overrides the checkpoint's
        own = own.but(fields={})
    assert not isinstance(own.model, str)
    whole = files.merged([own, whole]).but(kind=whole.kind, path=whole.path, model=own.model)
    fields = dict(whole.fields)
    if given.get("fsdp") or given.get("zero"):  # a flag replaces the file's choice of either
        fields |= {"zero": given.get("zero", 0), "fsdp": given.get("fsdp", False)}
    notes = list(whole.notes) + configs.loaded(fields, whole.said, own.model)
    if "seq" not in fields and whole.kind not in ("flags", "model"):
        notes.append("how long a sequence is nobody states: counted as 2048 tokens (--seq N)")
    return label, whole.but(fields=fields, notes=tuple(notes))


def is_file(word: str) -> bool:
    return word.endswith(FILES)


def _text(path: str) -> str | None:
    try:
        text = named().read(path, files.LARGEST + 1)
    except system.Blind as blind:
        raise ValueError(f"{path} cannot be read: {blind}") from None
    return text


def _model(model: str | Mapping[str, Any], beside: str, said: str) -> tuple[str, Stated]:
    """Return the model's label and its config.json: given inline, in a folder, or of a known name."""
    if not isinstance(model, str):
        return said.rpartition("/")[2] if said else "config.json", configs.opened(model, said)
    folder = beside.rpartition("/")[0]
    for path in dict.fromkeys(
        (model, f"{folder}/{model}" if folder and not model.startswith("/") else model)
    ):
        where = f"{path.rstrip('/')}/config.json"
        text = _text(where)
        if text is not None:
            return model.rstrip("/").rpartition("/")[2], configs.opened(files.decoded(text, where), where)
    config = models.known(model)
    if config is None:
        if model.startswith(("/", ".", "~")) or named().stat(model) is not None:
            raise ValueError(f"{shown(model)} is no folder with a config.json, and no file of a job")
        near = models.nearest(model)
        hint = f" (nearest: {', '.join(near)})" if near else ""
        raise ValueError(
            f"no model is known as {shown(model)}{hint}: give its config.json, or the folder that it is in"
        )
    plain = configs.opened(config, model)
    return model, (configs.by_name(model, model) or plain).but(model=plain.model, unmodelled=plain.unmodelled)


def job_of(stated: Stated, machine: Sequence[Place]) -> tuple[Job, Stated]:
    """Return the stated job; where the world size is unstated, a sharded job uses the machine's GPUs."""
    fields, said = dict(stated.fields), dict(stated.said)
    sharded = fields.get("zero") or fields.get("fsdp") or fields.get("tensor_parallel", 1) > 1
    count = sum(len(place.indexes) for place in machine)
    notes = list(stated.notes)
    if "world" not in fields and (sharded or (stated.kind in LAUNCHED and count > 1)):
        fields["world"] = max(count, 1)
        said["world"] = "the GPUs of the machine"
        if count < 2:
            notes.append(
                "how many GPUs share the job is not stated: counted as one, so nothing is shared (--world N)"
            )
    split = fields.get("tensor_parallel", 1)
    if split > fields.get("world", 1):
        if said.get("world", "the GPUs of the machine") != "the GPUs of the machine":
            raise Refused(
                f"{split} GPUs cannot share each layer where {fields['world']} share the job (--world)"
            )
        fields["world"] = split
    job = refusing(lambda: Job(dict(stated.model), **fields).checked())  # type: ignore[arg-type]
    _positions(job)
    return job, stated.but(fields=fields, said=said, notes=tuple(notes))


def _positions(job: Job) -> None:
    """Refuse a sequence longer than the table of learned positions."""
    most = job.model.get("n_positions")
    if isinstance(most, int) and job.seq > most > 0:
        raise Refused(f"the model has {most} positions: --seq {job.seq} is beyond them")


def idle(job: Job, given: Mapping[str, Any]) -> list[str]:
    """Return notes on flags that have no effect on this job."""
    from gpuready.fit.proposals import words

    off: list[tuple[tuple[str, ...], str]] = []
    if job.task == "generate":
        off.append((TRAINING, "is of training, and this is generation"))
    else:
        off.append((GENERATION, "is of generation, and this is training (--task generate)"))
    if job.method == "full":
        off.append((ADAPTER, "is of an adapter, and there is none (--method lora)"))
    if job.offload == "activations" and job.checkpointing == "none":
        off.append((("offload",), "moves what checkpointing keeps, and it is off (--gradient-checkpointing)"))
    return [
        f"{words({field: given[field]})[0].partition('=')[0]} {why}: it changes nothing"
        for several, why in off
        for field in several
        if given.get(field)
    ]


def plain(job: Job) -> dict[str, Any]:
    """Return the job as shown in the result: without the model, which is named."""
    return {name: value for name, value in job.to_json().items() if name != "model"}
