"""Read the settings of a verl job, with verl's defaults for what is missing."""

from collections.abc import Mapping
from typing import Any

from gpuready.fit.roles.records import CRITIC, GENERATE, REFERENCE, REWARD, SCORE, TRAIN, UPDATE, VALUES, RoleSettings
from gpuready.jobs.config_reader import ConfigReader, JobSettings, read_serving_keys, resolve_references, short_repr

DEFAULT_GPUS, DEFAULT_LENGTH, DEFAULT_TOKENS = 8, 512, 16384  # verl/trainer/config/_generated_ppo_trainer.yaml
ACTOR, ROLLOUT, REF = "actor_rollout_ref.actor.", "actor_rollout_ref.rollout.", "actor_rollout_ref.ref."
ROLLOUT_DEFAULTS = {"fraction": 0.5, "tensor_parallel": 2, "batch_tokens": 8192, "max_sequences": 256}


def read_verl(path: str, config: Mapping[str, Any]) -> JobSettings:
    """Read the actor as the job, and all roles for the timeline."""
    reader = ConfigReader("verl", path, resolve_references(config))
    reader.read_model_name("actor_rollout_ref.model.path")
    seq = sum(
        reader.read_count(f"data.{key}") or DEFAULT_LENGTH for key in ("max_prompt_length", "max_response_length")
    )
    reader.set_field("loop", "plain", "verl's own loop")
    gpus = _read_gpus(reader, "trainer.")
    reader.set_field("world", len(gpus), "trainer.n_gpus_per_node x nnodes")
    strategy = str(reader.get_dotted(f"{ACTOR}strategy") or "fsdp")
    if strategy not in ("fsdp", "fsdp2", "megatron", "veomni", "mindspeed"):
        raise ValueError(f"{path}: {ACTOR}strategy must be fsdp, fsdp2 or megatron, not {short_repr(strategy)}")
    for field, value in _trainer_fields(reader, ACTOR, strategy, seq, "ppo_micro_batch_size_per_gpu").items():
        reader.set_field(field, value, ACTOR.rstrip("."))
    if strategy == "megatron":
        reader.add_uncounted("Megatron's own layers and buffers are not counted", "both")
    reader.unmodelled.append("the rollout engine shares the GPUs: what it keeps there is not counted")
    reader.roles = tuple(_read_roles(reader, gpus, strategy, seq))
    return reader.to_job_settings()


def _read_gpus(reader: ConfigReader, at: str) -> tuple[int, ...]:
    each = reader.read_count(f"{at}n_gpus_per_node") or DEFAULT_GPUS
    nodes = reader.read_count(f"{at}nnodes") or 1
    if each * nodes > 1 << 16:
        raise ValueError(f"{reader.path}: {at}nnodes and n_gpus_per_node make more GPUs than there are")
    return tuple(range(each * nodes))


def _trainer_fields(reader: ConfigReader, at: str, strategy: str, seq: int, batch_key: str) -> dict[str, Any]:
    """Return the FitJob fields of the actor or the critic."""
    tokens = _micro_batch(reader, at, seq, batch_key)
    model = f"{at}model." if at != ACTOR else "actor_rollout_ref.model."
    saved = reader.get_dotted(f"{model}enable_gradient_checkpointing") is not False
    fields: dict[str, Any] = {**tokens, "precision": "bf16", "checkpointing": "nonreentrant" if saved else "none"}
    fields["loop"] = "plain"
    fused = reader.get_dotted(f"{model}use_fused_kernels") is True
    fields["loss"] = (
        "value"
        if at == "critic."
        else "fused"
        if fused
        else "logprob"
        if reader.get_dotted(f"{at}entropy_coeff")
        else "logprob_inplace"
    )
    if rank := reader.parse_value(f"{model}lora_rank", _parse_rank):
        fields |= {"method": "lora", "lora_r": rank}
    fields["world"] = len(_read_gpus(reader, "trainer."))
    if strategy in ("fsdp", "fsdp2"):
        fields |= {"fsdp": True, "fsdp_version": 1 if strategy == "fsdp" else 2}
        own = reader.get_dotted(f"{_engine_key(at)}model_dtype")
        fields["fp32_shards"] = own in (None, "fp32", "float32") and "method" not in fields
    return fields


def _engine_key(at: str) -> str:
    return f"{at}model.fsdp_config." if at == "critic." else f"{at}fsdp_config."


def _parse_rank(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 16:
        raise ValueError("a whole number from 0 up")
    return value


def _micro_batch(reader: ConfigReader, at: str, seq: int, key: str) -> dict[str, int]:
    """Return sequences and tokens of a micro-batch: by count, or packed up to a number of tokens."""
    dynamic = "use_dynamic_bsz" if key.startswith("ppo") else "log_prob_use_dynamic_bsz"
    packed = reader.get_dotted(at + dynamic)
    if packed is None and at != ACTOR:
        packed = reader.get_dotted(f"{ACTOR}use_dynamic_bsz")
    spread = reader.read_count(f"{ACTOR}ulysses_sequence_parallel_size") or 1
    if packed is True:
        limit = "ppo_max_token_len_per_gpu" if key.startswith("ppo") else "log_prob_max_token_len_per_gpu"
        tokens = (
            reader.read_count(at + limit) or reader.read_count(f"{ACTOR}ppo_max_token_len_per_gpu") or DEFAULT_TOKENS
        )
        return {"micro_batch": 1, "seq": max(tokens, seq // spread)}
    count = reader.read_count(at + key) or reader.read_count(f"{ACTOR}ppo_micro_batch_size_per_gpu") or 1
    return {"micro_batch": count, "seq": -(-seq // spread)}


def _read_roles(reader: ConfigReader, gpus: tuple[int, ...], strategy: str, seq: int) -> list[RoleSettings]:
    actor = _make_trainer(
        reader, "actor", ACTOR, gpus, strategy, seq, ((UPDATE, "update"), (SCORE, "score"), (TRAIN, "train"))
    )
    score = _micro_batch(reader, ROLLOUT, seq, "log_prob_micro_batch_size_per_gpu")
    actor = actor.replace(score=score, keys=dict(actor.keys) | {"score": f"{ROLLOUT}log_prob_micro_batch_size_per_gpu"})
    roles = [actor, _make_rollout(reader, gpus, seq)]
    keeps_close = reader.get_dotted(f"{ACTOR}use_kl_loss") or reader.get_dotted("algorithm.use_kl_in_reward")
    if keeps_close and "method" not in actor.fields:
        ref = _make_trainer(reader, "ref", REF, gpus, strategy, seq, ((REFERENCE, "score"),))
        score = _micro_batch(reader, REF, seq, "log_prob_micro_batch_size_per_gpu")
        key = f"{REF}log_prob_micro_batch_size_per_gpu"
        roles.append(
            ref.replace(kind="score", model=actor.model, score=score, keys={"score": key}, fields=actor.fields)
        )
    if (
        reader.get_dotted("algorithm.adv_estimator") in (None, "gae")
        and reader.get_dotted("critic.enable") is not False
    ):
        critic = _make_trainer(reader, "critic", "critic.", gpus, strategy, seq, ((VALUES, "score"), (CRITIC, "train")))
        roles.append(critic)
    if reader.get_dotted("reward_model.enable") is True:
        size = reader.read_count("reward_model.micro_batch_size_per_gpu") or 1
        reward = RoleSettings("reward_model", "score", gpus, _model_path(reader, "reward_model.model.path"))
        fields = {
            "world": len(gpus),
            "fsdp": True,
            "precision": "bf16",
            "seq": seq,
            "micro_batch": size,
            "loss": "value",
        }
        leaves = "all" if reader.is_enabled("reward_model.model.fsdp_config.param_offload") else "none"
        phases = ((REWARD, "score"),)
        roles.append(
            reward.replace(
                fields=fields,
                score={"micro_batch": size, "seq": seq},
                phases=phases,
                leaves=leaves,
                shares_process=True,
            )
        )
    return roles


def _model_path(reader: ConfigReader, key: str) -> str:
    value = reader.get_dotted(key) or reader.get_dotted("actor_rollout_ref.model.path")
    return value if isinstance(value, str) else ""


def _make_trainer(
    reader: ConfigReader, name: str, at: str, gpus: tuple[int, ...], strategy: str, seq: int, phases: tuple[tuple[str, str], ...]
) -> RoleSettings:  # fmt: skip
    """Return a role that trains or scores with the actor's strategy, in the actor's process."""
    model = _model_path(reader, "critic.model.path" if name == "critic" else "actor_rollout_ref.model.path")
    fields = _trainer_fields(reader, at, strategy, seq, "ppo_micro_batch_size_per_gpu")
    inside = f"{at}megatron." if strategy == "megatron" else _engine_key(at)
    param, state = reader.is_enabled(f"{inside}param_offload"), reader.is_enabled(f"{inside}optimizer_offload")
    leaves = "all" if param and (state or name == "ref") else "weights" if param else "optimizer" if state else "none"
    keys = {"micro_batch": f"{at}ppo_micro_batch_size_per_gpu"}
    if leaves != "all":
        keys["leaves"] = f"{inside}param_offload: true, {inside}optimizer_offload: true"
    score = {name: fields[name] for name in ("micro_batch", "seq")}
    return RoleSettings(
        name, "train", gpus, model, fields, score, is_megatron=strategy == "megatron", leaves=leaves, phases=phases,
        shares_process=name != "actor", keys=keys,
    )  # fmt: skip


def _make_rollout(reader: ConfigReader, gpus: tuple[int, ...], seq: int) -> RoleSettings:
    engine = str(reader.get_dotted(f"{ROLLOUT}name") or "vllm")
    if engine not in ("vllm", "sglang"):
        raise ValueError(f"{reader.path}: {ROLLOUT}name {short_repr(engine)} is not counted: vllm or sglang is")
    served = ROLLOUT_DEFAULTS | read_serving_keys(reader, ROLLOUT, engine)
    served.setdefault("context", seq)
    served["tensor_parallel"] = min(served["tensor_parallel"], len(gpus))
    waits = reader.get_dotted(f"{ROLLOUT}free_cache_engine") is not False
    if isinstance(reader.get_dotted("rollout"), dict) and reader.read_count("rollout.n_gpus_per_node"):
        own = _read_gpus(reader, "rollout.")  # GPUs of its own: it never sleeps
        gpus, waits = tuple(len(gpus) + gpu for gpu in own), False
    keys = {"fraction": f"{ROLLOUT}gpu_memory_utilization", "parallel": f"{ROLLOUT}tensor_model_parallel_size"}
    return RoleSettings(
        "rollout", "serve", gpus, _model_path(reader, "actor_rollout_ref.model.path"), serving=served,
        leaves="all" if waits else "none", phases=((UPDATE, "update"), (GENERATE, "serve")), keys=keys,
    )  # fmt: skip
