"""The roles of trl's GRPO: the trainer, its reference, and vLLM where it shares the trainer's GPUs."""

from typing import Any

from gpuready.fit.roles.records import GENERATE, REFERENCE, SCORE, TRAIN, UPDATE, RoleSettings
from gpuready.jobs.config_reader import ConfigReader, parse_fraction

GRPO_KEYS = ("num_generations", "max_completion_length", "vllm_mode", "steps_per_generation")
DEFAULT_PROMPT, DEFAULT_COMPLETION, DEFAULT_FRACTION, DEFAULT_BATCH = 512, 256, 0.3, 8  # trl/trainer/grpo_config.py


def is_grpo(config: Any) -> bool:
    return any(key in config for key in GRPO_KEYS)


def read_grpo_roles(reader: ConfigReader) -> tuple[RoleSettings, ...]:
    """Return the roles; those without GPUs are on all GPUs of the job, and take its settings."""
    prompt = reader.read_count("max_prompt_length") or DEFAULT_PROMPT
    answer = reader.read_count("max_completion_length") or DEFAULT_COMPLETION
    batch = reader.read_count("per_device_train_batch_size") or DEFAULT_BATCH
    seq = prompt + answer
    engine = reader.is_enabled("use_vllm") and str(reader.get_dotted("vllm_mode") or "server")
    generates = () if engine else ((GENERATE, "generate"),)
    trainer = RoleSettings(
        "trainer", "train", (), fields={"loss": "logprob", "seq": seq, "dpo": False, "padded": True},
        score={"micro_batch": batch, "seq": seq}, leaves="none",
        serving={"seq": prompt, "new_tokens": answer, "micro_batch": batch},
        phases=(*generates, *(((UPDATE, "update"),) if engine == "colocate" else ()), (SCORE, "score"), (TRAIN, "train")),
        keys={"micro_batch": "per_device_train_batch_size"},
    )  # fmt: skip
    roles = [trainer]
    if engine == "colocate":
        roles.append(_read_engine(reader, seq))
    adapter = reader.fields.get("method", "full") != "full"
    if reader.get_dotted("beta") and not adapter:
        reference = trainer.replace(
            name="reference", kind="score", phases=((REFERENCE, "score"),), keys={}, shares_process=True
        )
        roles.append(reference)
    return tuple(roles)


def _read_engine(reader: ConfigReader, seq: int) -> RoleSettings:
    served: dict[str, Any] = {
        "engine": "vllm",
        "fraction": reader.parse_value("vllm_gpu_memory_utilization", parse_fraction) or DEFAULT_FRACTION,
        "tensor_parallel": reader.read_count("vllm_tensor_parallel_size") or 1,
        "context": reader.read_count("vllm_max_model_length") or seq,
    }
    sleeps = reader.is_enabled("vllm_enable_sleep_mode")
    return RoleSettings(
        "vllm", "serve", (), serving=served, leaves="all" if sleeps else "none",
        phases=((UPDATE, "update"), (GENERATE, "serve")),
        keys={"fraction": "vllm_gpu_memory_utilization", "parallel": "vllm_tensor_parallel_size"}
        | ({} if sleeps else {"leaves": "vllm_enable_sleep_mode: true"}),
    )  # fmt: skip
