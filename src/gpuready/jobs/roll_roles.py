"""The roles of a ROLL file: which run on which GPUs, and what each keeps there between its phases."""

import re
from collections.abc import Iterator
from typing import Any

from gpuready.fit.roles.records import GENERATE, REFERENCE, SCORE, TRAIN, UPDATE, RoleSettings
from gpuready.jobs.config_reader import ConfigReader, parse_positive_int, read_serving_keys

MAX_DEVICES = 1 << 16
"""The largest number of GPUs accepted from a device mapping."""


def parse_device_mapping(value: object) -> set[int]:
    """Parse ``list(range(0,8))``, ``[0, 1]`` or a list into GPU indexes, without evaluating it."""
    if isinstance(value, list):
        return {item for item in value if isinstance(item, int) and not isinstance(item, bool)}
    if not isinstance(value, str) or len(value) > 500:
        return set()
    indexes: set[int] = set()
    for start, stop in re.findall(r"range\(\s*(?:(\d{1,5})\s*,\s*)?(\d{1,5})\s*(?:,\s*1\s*)?\)", value):
        indexes |= set(range(int(start or 0), min(int(stop), MAX_DEVICES)))
    if not indexes and re.fullmatch(r"\[?[\d,\s]+\]?", value.strip()):
        indexes = {int(number) for number in re.findall(r"\d{1,5}", value)}
    return indexes


ROLLOUT_ROLES = ("actor_infer", "student_infer")
TRAINED_FOR_ROLLOUT = ("actor_train", "student", "student_train")
LEARNED_BASES = {"critic": "reward_pretrain", "reward": "reward_pretrain", "teacher": "teacher_pretrain",
                 "student": "student_pretrain", "student_train": "student_pretrain"}  # fmt: skip
VALUE_ROLES = ("critic", "reward", "reward_train")
"""Roles whose model has one value for each token, and no vocabulary at its end."""
DEFAULT_SCORE_BATCH = 16
"""ROLL's default of ``infer_batch_size``."""


def read_roll_roles(reader: ConfigReader, seq: int, read_fields: Any) -> tuple[RoleSettings, ...]:
    """Return the roles that have GPUs; ``read_fields(path)`` returns the FitJob fields of one that trains or scores."""
    found = [(name, path) for name, path in _list_roles(reader) if not _is_unused(reader, name)]
    waits = not reader.get_dotted("async_generation_ratio")
    rollout = any(name in ROLLOUT_ROLES for name, _ in found)
    return tuple(_read_role(reader, name, path, seq, read_fields, waits, rollout) for name, path in found)


def _list_roles(reader: ConfigReader) -> Iterator[tuple[str, str]]:
    """Yield name and path of every role with a strategy and GPUs; those of ``rewards`` lie one level deeper."""
    paths = [(str(name), str(name)) for name, value in reader.config.items() if isinstance(value, dict)]
    for outer in ("rewards", "teachers", "references"):
        inner = reader.get_dotted(outer)
        paths += [(str(name), f"{outer}.{name}") for name in inner] if isinstance(inner, dict) else []
    for name, path in paths:
        if reader.get_dotted(f"{path}.strategy_args.strategy_name") and parse_device_mapping(
            reader.get_dotted(f"{path}.device_mapping")
        ):
            yield name, path


def _is_unused(reader: ConfigReader, name: str) -> bool:
    """Whether ROLL makes no such role: a critic only for GAE, no reference beside an adapter."""
    if name == "critic":
        return reader.get_dotted("adv_estimator") not in (None, "gae")
    if name == "reference":
        adapter = reader.get_dotted("actor_train.model_args.lora_rank")
        return bool(adapter) or reader.get_dotted("enable_reference") is False
    return False


def _read_role(
    reader: ConfigReader, name: str, path: str, seq: int, read_fields: Any, waits: bool, rollout: bool
) -> RoleSettings:
    gpus = tuple(sorted(parse_device_mapping(reader.get_dotted(f"{path}.device_mapping"))))
    strategy = str(reader.get_dotted(f"{path}.strategy_args.strategy_name"))
    inside = f"{path}.strategy_args.strategy_config."
    role = RoleSettings(name, "train", gpus, _role_model(reader, name, path))
    if strategy in ("vllm", "sglang"):
        phases = ((UPDATE, "update"), (GENERATE, "serve")) if name in ROLLOUT_ROLES else ((GENERATE, "serve"),)
        leaves = "all" if waits else "none"
        share = "gpu_memory_utilization" if strategy == "vllm" else "mem_fraction_static"
        keys = {"fraction": inside + share, "parallel": f"{inside}tensor_parallel_size"}
        return role.replace(
            kind="serve", serving=_read_serving(reader, inside, path, strategy), phases=phases, leaves=leaves, keys=keys
        )
    scores = reader.parse_value(f"{path}.infer_batch_size", parse_positive_int) or DEFAULT_SCORE_BATCH
    role = role.replace(
        kind="train" if strategy.endswith("train") else "score",
        fields=read_fields(path) | _read_packing(reader, path, "train", seq),
        score={"micro_batch": scores, "seq": seq} | _read_packing(reader, path, "infer", seq),
        is_megatron=strategy.startswith("megatron"),
        keys={
            "micro_batch": f"{path}.training_args.per_device_train_batch_size",
            "score": f"{path}.infer_batch_size",
            "offload": f"{inside}offload_policy",
        },
    )
    if strategy.startswith("fsdp") and not reader.get_dotted(f"{inside}offload_policy"):
        role = role.replace(leaves="weights" if role.kind == "train" else "all")
    if name in VALUE_ROLES:
        role = role.replace(fields={**role.fields, "loss": "value"})
    elif rollout and role.kind == "train":
        role = role.replace(fields={**role.fields, "loss": "logprob"})
    return role.replace(phases=_role_phases(name, role.kind, rollout))


def _read_packing(reader: ConfigReader, path: str, what: str, seq: int) -> dict[str, int]:
    """Return one sequence of as many tokens as ROLL packs, or puts in a dynamic batch; empty where it does neither."""
    tokens = None
    if reader.is_enabled(f"{path}.use_sequence_packing"):
        suffix = "train" if what == "train" else "forward"
        tokens = reader.read_count(f"{path}.sequence_packing_args.max_packed_sequence_length_{suffix}")
    elif reader.is_enabled(f"{path}.use_dynamic_batching_in_{what}"):
        tokens = reader.read_count(f"{path}.max_tokens_per_microbatch_in_{what}")
    return {"micro_batch": 1, "seq": max(tokens, seq)} if tokens else {}


def _role_phases(name: str, kind: str, rollout: bool) -> tuple[tuple[str, str], ...]:
    if kind == "score":
        return ((GENERATE, "score"),) if "reward" in name or "judge" in name else ((REFERENCE, "score"),)
    if name in TRAINED_FOR_ROLLOUT and rollout:
        return ((UPDATE, "update"), (SCORE, "score"), (TRAIN, "train"))
    return ((SCORE, "score"), (TRAIN, "train")) if name == "critic" else ((TRAIN, "train"),)


def _role_model(reader: ConfigReader, name: str, path: str) -> str:
    base = LEARNED_BASES.get(name, "pretrain")
    for key in (f"{path}.model_args.model_name_or_path", base, "pretrain"):
        value = reader.get_dotted(key)
        if isinstance(value, str) and value.strip():
            return value.strip()
    return ""


def _read_serving(reader: ConfigReader, inside: str, path: str, engine: str) -> dict[str, Any]:
    served = read_serving_keys(reader, inside, engine)
    word = reader.get_dotted(f"{path}.model_args.dtype")
    return served | {"engine": engine, "precision": "fp32" if word == "fp32" else "bf16"}
