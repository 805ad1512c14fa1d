"""The job to fit: merge files, model name and flags, and check which flags apply."""

from collections.abc import Mapping, Sequence
from json import loads
from typing import Any

from gpuready import system
from gpuready.fit import FitJob
from gpuready.fit.job import known_models
from gpuready.fit.job.known_models import count_positions
from gpuready.fit.search.tuning_steps import format_job_flags
from gpuready.jobs import job_files, model_config
from gpuready.jobs.config_reader import JobSettings, short_repr
from gpuready.jobs.job_files import JobFile
from gpuready.jobs.trainer_settings import apply_trainer
from gpuready.model.fit import GpuCandidate
from gpuready.probe.hub import find_hub_cache
from gpuready.system.download import fetch_text
from gpuready.workflow import machine_facts
from gpuready.workflow.refusal import Refused, call_or_refuse, host_for_named_files

JOB_SUFFIXES = (".json", ".yml", ".yaml", ".py", ".sh")
ADAPTER_FIELDS = ("lora_r", "lora_targets", "lora_dtype", "lora_dropout", "dora")
GENERATION_FIELDS = ("new_tokens", "cache")
TRAINING_FIELDS = ("optimizer", "checkpointing", "accumulation", "loss", "keep_outputs", "dpo")


def read_job(arguments: Sequence[str], job_flags: Mapping[str, Any], download: bool = False) -> tuple[str, JobSettings]:
    """Merge what the files, the model name and the flags say; ``download`` fetches the config of an unknown model."""
    words = [word for word in arguments if not is_job_file(word)]
    if not all(word.strip() for word in arguments):
        raise ValueError("a model's name or a file is empty: write it, as in gpuready fit llama-3.1-8b")
    if len(words) > 1:
        count = next((f"; --world {word} states how many GPUs share the job" for word in words if word.isdecimal()), "")
        raise ValueError(f"one job has one model, and {' and '.join(map(short_repr, words))} are two{count}")
    files = [job_files.load_job_file(word, machine_facts.read_job_text) for word in arguments if is_job_file(word)]
    return merge_job(files, words, job_flags, download)


def merge_job(
    files: Sequence[JobFile], words: Sequence[str], job_flags: Mapping[str, Any], download: bool = False
) -> tuple[str, JobSettings]:
    """Merge what loaded files, the model's name and the flags say."""
    parts = [one for file in files for one in job_files.read_settings_with_nested(file, machine_facts.read_job_text)]
    parts += [JobSettings("model", word, word, said={"model": word}) for word in words]  # overrides a file's
    merged = job_files.merge_settings(
        [*parts, JobSettings("flags", fields=job_flags, said=dict.fromkeys(job_flags, "the command line"))]
    )
    if not merged.model:
        first_path = next((one.path for one in parts), "")
        raise ValueError(f"{first_path} names no model: write it too, as in gpuready fit llama-3.1-8b {first_path}")
    label, model_spec = load_model_config(merged.model, merged.path, merged.said.get("model", ""), download)
    if "quant" in merged.fields:  # a requested quantization overrides the checkpoint's
        model_spec = model_spec.replace(fields={})
    assert not isinstance(model_spec.model, str)
    merged = job_files.merge_settings([model_spec, merged]).replace(
        kind=merged.kind, path=merged.path, model=model_spec.model
    )
    fields = dict(merged.fields)
    if job_flags.get("fsdp") or job_flags.get("zero"):  # a flag replaces the file's choice of either
        fields |= {"zero": job_flags.get("zero", 0), "fsdp": job_flags.get("fsdp", False)}
    said = dict(merged.said)
    apply_trainer(fields, said, merged.kind)
    merged = merged.replace(said=said)
    positions = count_positions(model_spec.model)
    if "seq" not in fields and 0 < positions < FitJob._defaults["seq"]:
        fields["seq"], said["seq"] = positions, "the model's positions"
    notes = list(merged.notes) + model_config.resolve_precision(fields, merged.said, model_spec.model)
    if "seq" not in fields and merged.kind not in ("flags", "model"):
        notes.append("how long a sequence is nobody states: counted as 2048 tokens (--seq N)")
    return label, merged.replace(fields=fields, notes=tuple(notes))


def is_job_file(word: str) -> bool:
    return word.endswith(JOB_SUFFIXES)


def load_model_config(
    model: str | Mapping[str, Any], beside: str, origin: str, download: bool = False
) -> tuple[str, JobSettings]:
    """Return the model's label and its config.json: inline, in a folder, in the hub cache, or of a known name."""
    if not isinstance(model, str):
        return origin.rpartition("/")[2] if origin else "config.json", model_config.read_model_settings(model, origin)
    folder = beside.rpartition("/")[0]
    for path in dict.fromkeys((model, f"{folder}/{model}" if folder and not model.startswith("/") else model)):
        where = f"{path.rstrip('/')}/config.json"
        config = job_files.read_mapping(where, machine_facts.read_job_text)
        if config is not None:
            return model.rstrip("/").rpartition("/")[2], model_config.read_model_settings(config, where)
    cached = find_cached_config(model)
    if cached is not None:
        return model, model_config.read_model_settings(cached[1], cached[0])
    config = known_models.find_model_config(model)
    if config is None and download:
        url, config = download_config(model)
        return model, model_config.read_model_settings(config, url)
    if config is None:
        if model.startswith(("/", ".", "~")) or host_for_named_files().stat_path(model) is not None:
            raise ValueError(f"{short_repr(model)} is not a folder with a config.json, nor a job file")
        near = known_models.similar_model_names(model)
        hint = f" (nearest: {', '.join(near)})" if near else ""
        raise ValueError(
            f"no model is known as {short_repr(model)}{hint}: give its config.json, or the folder that it is in; "
            "--download fetches the config of a hub id"
        )
    plain = model_config.read_model_settings(config, model)
    return model, (model_config.settings_from_model_name(model, model) or plain).replace(
        model=plain.model, unmodelled=plain.unmodelled
    )


def make_fit_job(spec: JobSettings, machine: Sequence[GpuCandidate]) -> tuple[FitJob, JobSettings]:
    """Return the stated job; where nobody states the world, all GPUs of the machine train: trainers start DDP on them."""
    fields, origins = dict(spec.fields), dict(spec.said)
    split = fields.get("tensor_parallel", 1) * fields.get("context_parallel", 1)
    sharded = fields.get("zero") or fields.get("fsdp") or split > 1
    count = sum(len(place.indexes) for place in machine)
    notes = list(spec.notes)
    is_stated = "world" in origins
    if "world" not in fields and (sharded or (fields.get("task", "train") == "train" and count > 1)):
        fields["world"] = max(count, 1)
        origins["world"] = "the GPUs of the machine, as torchrun or accelerate starts them"
        if count < 2:
            notes.append("how many GPUs share the job is not stated: counted as one, so nothing is shared (--world N)")
    if split > fields.get("world", 1):
        if is_stated:
            raise Refused(f"{split} GPUs cannot share each layer where {fields['world']} share the job (--world)")
        fields["world"] = split
    job = call_or_refuse(lambda: FitJob(dict(spec.model), **fields).validate_fields())  # type: ignore[arg-type]
    _check_positions(job)
    return job, spec.replace(fields=fields, said=origins, notes=tuple(notes))


def _check_positions(job: FitJob) -> None:
    """Refuse a sequence longer than the table of learned positions."""
    most = call_or_refuse(count_positions, job.model)
    if job.seq > most > 0:
        raise Refused(f"the model has {most} positions: --seq {job.seq} is beyond them")


def unused_flag_notes(job: FitJob, job_flags: Mapping[str, Any]) -> list[str]:
    """Return notes on flags that have no effect on this job."""
    unused: list[tuple[tuple[str, ...], str]] = []
    if job.task != "train":
        unused.append((TRAINING_FIELDS, f"is of training, and this is --task {job.task}"))
    else:
        unused.append((GENERATION_FIELDS, "is of generation, and this is training (--task generate)"))
    if job.method == "full":
        unused.append((ADAPTER_FIELDS, "is of an adapter, and there is none (--method lora)"))
    if job.offload == "activations" and job.checkpointing == "none":
        unused.append((("offload",), "moves what checkpointing keeps, and it is off (--gradient-checkpointing)"))
    return [
        f"{format_job_flags({field: job_flags[field]})[0].partition('=')[0]} {why}: it changes nothing"
        for several, why in unused
        for field in several
        if job_flags.get(field)
    ]


def job_without_model(job: FitJob) -> dict[str, Any]:
    """Return the job as shown in the result: without the model, which is named."""
    return {name: value for name, value in job.to_json().items() if name != "model"}


MAX_CONFIG_BYTES = 1 << 20
DEFAULT_ENDPOINT = "https://huggingface.co"
OFFLINE_VARIABLES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
FETCH_SECONDS = 20.0


def is_hub_id(name: str) -> bool:
    """``org/name`` or ``name``, as the hub spells them."""
    parts = name.split("/")
    return len(parts) <= 2 and all(
        part and part[0] not in ".-" and all(c.isalnum() or c in "._-" for c in part) for part in parts
    )


def find_cached_config(name: str) -> tuple[str, dict[str, Any]] | None:
    """Return path and content of a model's config in the local hub cache; None if it is not there."""
    host = host_for_named_files()
    try:
        folder = f"{find_hub_cache(host)}/models--{name.replace('/', '--')}" if is_hub_id(name) else ""
        if not folder or host.stat_path(folder) is None:
            return None
        revision = (host.read_text(f"{folder}/refs/main", 200) or "").strip()
        others = host.list_directory(f"{folder}/snapshots") or ()
        for snapshot in dict.fromkeys((revision, *sorted(others))):
            path = f"{folder}/snapshots/{snapshot}/config.json"
            if snapshot in others:
                config = job_files.read_mapping(path, lambda one: host.read_text(one, MAX_CONFIG_BYTES + 1))
                if config is not None:
                    return path, config
    except system.AccessError:
        return None
    return None


def download_config(name: str) -> tuple[str, dict[str, Any]]:
    """Fetch a model's config.json from the hub, and nothing else; refused where that cannot be."""
    host = system.LiveHost()
    if not is_hub_id(name):
        raise Refused(f"--download fetches a model by its hub id, such as openai/gpt-oss-20b, not {name!r}")
    if any((host.get_env_var(one) or "").strip().lower() in ("1", "on", "yes", "true") for one in OFFLINE_VARIABLES):
        raise Refused("--download asks the hub, and HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE forbids it")
    endpoint = (host.get_env_var("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")
    url, token = f"{endpoint}/{name}/resolve/main/config.json", host.get_env_var("HF_TOKEN")
    try:
        text = fetch_text(url, MAX_CONFIG_BYTES, f"Bearer {token}" if token else "", FETCH_SECONDS)
        config = loads(text)
    except system.AccessError as error:
        raise Refused(f"the config of {name} could not be fetched from {endpoint}: {error}") from None
    except (ValueError, RecursionError):
        raise Refused(f"what {endpoint} gave for the config of {name} is no JSON") from None
    if not isinstance(config, dict):
        raise Refused(f"the config of {name} must be an object with fields such as hidden_size")
    return url, config
