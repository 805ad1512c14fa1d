"""What can be changed in a job, what each change costs the user, and how it is written.

An axis is one setting with successive steps; a later step needs less memory and costs more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuready.fit.job.records import FitJob
from gpuready.model.record import Record

SHARDED_WEIGHTS = "weights are gathered for every layer: slower without NVLink"
EXPANDABLE_SEGMENTS = "expandable_segments:True"
MIN_BF16_MAJOR = 8
"""First major compute capability with native bf16; below it bf16 is not proposed."""


class TuningStep(Record):
    """One step of an axis. ``cost`` in points: 1 is a line in a file, 10 a third of the speed, 20 another training."""

    changes: Mapping[str, Any]
    cost: float
    says: str
    costs: str


def list_tuning_axes(job: FitJob, gpus: int = 1, capability: str = "") -> list[list[TuningStep]]:
    """Return the axes of a job on ``gpus`` GPUs, each with its steps in order."""
    several = _generation_axes(job, gpus) if job.task != "train" else _training_axes(job, gpus)
    if capability and int(capability.partition(".")[0]) < MIN_BF16_MAJOR:
        several = [[step for step in steps if step.changes.get("precision") != "bf16"] for steps in several]
    return [steps for steps in several if steps]


def is_sensible_job(job: FitJob) -> bool:
    """Whether a combination of settings is usual; others are not proposed."""
    adapter, sharded = job.method != "full", bool(job.zero or job.fsdp)
    if job.task != "train":
        return True
    if adapter and job.offload in ("optimizer", "parameters"):
        return False
    if sharded and (job.optimizer.endswith("8bit") or (job.quant and job.zero == 3)):
        return False
    return not (job.offload in ("optimizer", "parameters") and job.optimizer.endswith("8bit"))


def _training_axes(job: FitJob, gpus: int) -> list[list[TuningStep]]:
    fused_loss = job.loss == "plain" and not job.dpo  # DPO needs the probabilities of all tokens
    slower = "each layer is computed twice"
    return [
        _allocator_steps(job),
        _step_if(job.keep_outputs, {"keep_outputs": False}, 0.5, "let go of the outputs before the backward", "a line in your loop"),
        _step_if(fused_loss, {"loss": "fused"}, 1, "a fused loss", "needs liger-kernel"),
        _attention_steps(job),
        _optimizer_steps(job),
        _micro_batch_steps(job, 3, "micro-batch {}", "a little speed"),  # accumulation keeps the total batch
        _step_if(job.checkpointing == "none", {"checkpointing": "nonreentrant"}, 7, "gradient checkpointing", slower),
        [step for step in list_sharding_steps(job, gpus) if "zero" in step.changes],
        _precision_steps(job),
        _offload_steps(job),
        _method_steps(job),
        _sequence_steps(job, 16),
    ]  # fmt: skip


def _generation_axes(job: FitJob, gpus: int) -> list[list[TuningStep]]:
    return [
        _allocator_steps(job),
        _attention_steps(job),
        _micro_batch_steps(job, 4, "a batch of {} at a time", "fewer sequences at once"),
        _tensor_parallel_steps(job, gpus),
        _quantisation_steps(job),
        _precision_steps(job),
        _sequence_steps(job, 16),
    ]


def _step_if(applies: bool, changes: Mapping[str, Any], cost: float, says: str, costs: str) -> list[TuningStep]:
    return [TuningStep(changes, cost, says, costs)] if applies else []


def _tensor_parallel_steps(job: FitJob, gpus: int) -> list[TuningStep]:
    """Split each layer over GPUs; the engine checks whether the number divides the heads."""
    if job.quant or job.zero or job.fsdp or job.tensor_parallel > 1:
        return []
    costs = "each layer waits for the others"
    return [
        TuningStep({"world": n, "tensor_parallel": n}, 5 + i, f"tensor parallel over {n} GPUs", costs)
        for i, n in enumerate(n for n in (2, 4, 8) if n <= gpus)
    ]


def _allocator_steps(job: FitJob) -> list[TuningStep]:
    title, costs = f"PYTORCH_ALLOC_CONF={EXPANDABLE_SEGMENTS}", "nothing: less is lost to fragmentation"
    return _step_if(not job.alloc_conf, {"alloc_conf": EXPANDABLE_SEGMENTS}, 0.7, title, costs)


def _attention_steps(job: FitJob) -> list[TuningStep]:
    return _step_if(job.attention == "eager", {"attention": "sdpa"}, 0.8, "SDPA attention", "nothing, and it is faster")


def _optimizer_steps(job: FitJob) -> list[TuningStep]:
    adam = job.optimizer in ("adamw", "adamw_fused", "adamw_forloop")
    unsharded = adam and job.zero == 0 and not job.fsdp
    momentum = job.optimizer == "sgd_momentum"
    return [
        *_step_if(
            adam and job.optimizer != "adamw_fused",
            {"optimizer": "adamw_fused"}, 0.6, "the fused AdamW", "nothing: the same mathematics",
        ),
        *_step_if(
            unsharded,
            {"optimizer": "adamw_8bit"}, 6, "AdamW with 8-bit state", "state is rounded; needs bitsandbytes",
        ),
        *_step_if(
            unsharded,
            {"optimizer": "paged_adamw_8bit"}, 8, "paged 8-bit AdamW", "slower where state is paged; needs bitsandbytes",
        ),
        *_step_if(momentum, {"optimizer": "sgd"}, 12, "SGD without momentum", "converges differently"),
    ]  # fmt: skip


def _micro_batch_steps(job: FitJob, cost: float, title: str, costs: str) -> list[TuningStep]:
    sizes = _halved_divisors(job.micro_batch, 1)
    return [TuningStep({"micro_batch": n}, cost + i, title.format(n), costs) for i, n in enumerate(sizes)]


def _halved_divisors(value: int, least: int) -> list[int]:
    """Return divisors of a value, about halved each time, so that the total batch can stay the same."""
    divisors = []
    while value > least:
        value = next(d for d in range(value // 2, 0, -1) if value % d == 0) if value % 2 else value // 2
        divisors.append(value)
    return divisors


def list_sharding_steps(job: FitJob, gpus: int) -> list[TuningStep]:
    """Shard over the job's ranks; else over the machine's GPUs."""
    if job.fsdp or job.tensor_parallel > 1 or max(job.world, gpus) < 2:
        return []
    world = job.world if job.world > 1 else gpus
    more: dict[str, Any] = {"world": world}
    if job.trainer != "plain":  # DeepSpeed casts by itself, and peft does not prepare a sharded base
        more |= {"autocast": "", "kbit": False}
    extra, over = (5.0 if job.world == 1 else 0.0), f" over {world} GPUs"
    fsdp = _step_if(not (job.zero or job.quant), more | {"fsdp": True}, extra + 8, f"FSDP{over}", SHARDED_WEIGHTS)
    steps = [
        TuningStep(more | {"zero": n}, extra + cost, f"ZeRO stage {n}{over}", costs)
        for n, cost, costs in (
            (1, 3, "needs DeepSpeed; the state is spread"),
            (2, 4, "needs DeepSpeed; some more traffic"),
            (3, 9, f"needs DeepSpeed; {SHARDED_WEIGHTS}"),
        )
        if n > job.zero and not (job.quant and n == 3)
    ]
    return [*(steps if job.method == "full" or job.zero else steps[2:]), *fsdp]


def _precision_steps(job: FitJob) -> list[TuningStep]:
    if job.precision in ("bf16", "fp16"):
        return []
    own = "fp16" if job.precision == "amp-fp16" else "bf16"
    if own == "fp16" and job.task == "train":
        return []
    more = {"autocast": own} if job.trainer != "plain" and not (job.zero or job.fsdp) else {}
    return [TuningStep({"precision": own, **more}, 10, f"weights in {own}", "updates are rounded to 16 bits")]


def _offload_steps(job: FitJob) -> list[TuningStep]:
    """FSDP moves weights and state together; DeepSpeed the state, or both."""
    if job.offload or job.method != "full":
        return []
    if job.fsdp:
        title = "weights and optimizer state in host memory"
        return [TuningStep({"offload": "parameters"}, 15, title, "much slower: each step waits for the host")]
    needs = "" if job.zero else "; needs DeepSpeed"
    slow = f"each step waits for the host{needs}"
    return [
        TuningStep({"offload": "optimizer"}, 13, "optimizer state in host memory", slow),
        TuningStep({"offload": "parameters"}, 17, "weights in host memory too", f"much slower{needs}"),
    ]


def _method_steps(job: FitJob) -> list[TuningStep]:
    steps = []
    if job.method == "full":
        steps.append(
            TuningStep({"method": "lora"}, 20, f"LoRA of rank {job.lora_r}", "an adapter is trained, not the model")
        )
    if job.method in ("full", "lora") and not job.quant:
        cost = 26 if job.method == "full" else 11
        title = f"QLoRA of rank {job.lora_r}" if job.method == "full" else "QLoRA: the base in 4 bits"
        more = {"kbit": True} if job.trainer != "plain" and not (job.zero or job.fsdp) else {}
        costs = "the base is rounded to 4 bits; slower; needs bitsandbytes"
        steps.append(TuningStep({"method": "qlora", **more}, cost, title, costs))
    return steps


def _quantisation_steps(job: FitJob) -> list[TuningStep]:
    if job.quant:
        return []
    return [
        TuningStep({"quant": "int8"}, 9, "weights in 8 bits", "slower; needs bitsandbytes"),
        TuningStep({"quant": "nf4"}, 11, "weights in 4 bits", "rounded; needs bitsandbytes"),
    ]


def _sequence_steps(job: FitJob, cost: float) -> list[TuningStep]:
    lengths: list[int] = []
    value = job.seq
    while value >= 1024 and len(lengths) < 4:
        value //= 2
        lengths.append(value)
    return [
        TuningStep({"seq": n}, cost + 8 * i, f"sequences of {n}", "what is longer is cut")
        for i, n in enumerate(lengths)
    ]


# -- how a change is written ----------------------------------------------------------------------------------

FLAG_FIELDS = (
    "method", "micro_batch", "seq", "precision", "optimizer", "attention", "accumulation", "loss", "lora_r", "lora_targets",
    "lora_dtype", "lora_dropout", "trainer", "alloc_conf", "task", "new_tokens", "cache", "world", "zero", "offload", "quant", "tensor_parallel",
    "packing",
)  # fmt: skip
SWITCH_FIELDS = ("keep_outputs", "padded", "dpo", "fsdp", "dora", "double_quant")


def format_job_flags(fields: Mapping[str, Any]) -> list[str]:
    """Return job fields as command-line words."""
    out: list[str] = []
    for field, value in fields.items():
        flag = f"--{field.replace('_', '-')}"
        if field == "checkpointing":
            kind = {"nonreentrant": "", "reentrant": "=reentrant", "none": "=off"}[value]
            out.append(f"--gradient-checkpointing{kind}")
        elif field == "kbit":
            out += [flag, "on" if value else "off"]
        elif field == "autocast":
            out += [flag, value or "off"]
        elif field in SWITCH_FIELDS:
            out += [flag] if value else []
        elif field in FLAG_FIELDS:
            out += [flag, ",".join(value) if isinstance(value, tuple) else str(value)]
    return out


FILE_KEYS = {
    "axolotl": {
        "micro_batch": "micro_batch_size", "accumulation": "gradient_accumulation_steps", "seq": "sequence_len",
        "optimizer": "optimizer", "checkpointing": "gradient_checkpointing",
    },
    "trainer": {
        "micro_batch": "per_device_train_batch_size", "accumulation": "gradient_accumulation_steps", "seq": "max_length",
        "optimizer": "optim", "checkpointing": "gradient_checkpointing", "attention": "attn_implementation",
    },
    "llama-factory": {
        "micro_batch": "per_device_train_batch_size", "accumulation": "gradient_accumulation_steps", "seq": "cutoff_len",
        "optimizer": "optim", "checkpointing": "gradient_checkpointing",
    },
    "deepspeed": {"micro_batch": "train_micro_batch_size_per_gpu", "accumulation": "gradient_accumulation_steps"},
    "roll": {
        "micro_batch": "per_device_train_batch_size", "accumulation": "gradient_accumulation_steps", "seq": "sequence_length",
        "optimizer": "optim",
    },
    "colossalai": {
        "micro_batch": "batch_size", "accumulation": "accumulation_steps", "seq": "max_length",
        "checkpointing": "grad_checkpoint",
    },
}  # fmt: skip
"""The name of a field in each kind of file."""

OPTIMIZER_FILE_NAMES = {"adamw_fused": "adamw_torch_fused", "adamw_8bit": "adamw_bnb_8bit", "adamw": "adamw_torch"}
FILE_SETTINGS: dict[tuple[str, str, Any], tuple[str, ...]] = {
    ("axolotl", "loss", "fused"): (
        "plugins: [axolotl.integrations.liger.LigerPlugin]",
        "liger_fused_linear_cross_entropy: true",
    ),
    ("trainer", "loss", "fused"): ("use_liger_kernel: true",),
    ("llama-factory", "loss", "fused"): ("enable_liger_kernel: true",),
    ("axolotl", "attention", "sdpa"): ("sdp_attention: true",),
    ("axolotl", "method", "lora"): ("adapter: lora", "lora_r: 16", "lora_alpha: 32", "lora_target_linear: true"),
    ("axolotl", "method", "qlora"): ("adapter: qlora", "load_in_4bit: true"),
    ("llama-factory", "method", "lora"): ("finetuning_type: lora",),
    ("llama-factory", "method", "qlora"): ("finetuning_type: lora", "quantization_bit: 4"),
    ("trainer", "method", "lora"): ("use_peft: true",),
    ("trainer", "method", "qlora"): ("use_peft: true", "load_in_4bit: true"),
    ("colossalai", "offload", "optimizer"): ("cpu_offload: true",),
    ("axolotl", "fsdp", True): ("fsdp_version: 2", "fsdp_config: {reshard_after_forward: true}"),
    ("trainer", "fsdp", True): ("fsdp: full_shard auto_wrap",),
    ("llama-factory", "fsdp", True): ("in the accelerate file: distributed_type: FSDP",),
    ("axolotl", "precision", "bf16"): ("bf16: true",),
    ("trainer", "precision", "bf16"): ("bf16: true", "dtype: bfloat16"),
    ("llama-factory", "precision", "bf16"): ("bf16: true", "pure_bf16: true"),
}
ZERO_FILE_SETTINGS = {
    "axolotl": "deepspeed: deepspeed_configs/zero{}.json",
    "llama-factory": "deepspeed: examples/deepspeed/ds_z{}_config.json",
    "deepspeed": "zero_optimization: {{stage: {}}}",
    "trainer": "deepspeed: a file with zero_optimization.stage {}",
}
OFFLOAD_FILE_SETTINGS = {
    "optimizer": "zero_optimization: {offload_optimizer: {device: cpu}}",
    "parameters": "zero_optimization: {offload_param: {device: cpu}}",
}


FSDP_OFFLOAD_SETTINGS = {
    "axolotl": "fsdp_config: {offload_params: true}",
    "trainer": "fsdp_config: {offload_params: true}",
    "roll": "strategy_config: {offload_policy: true}",
}


def format_file_settings(kind: str, changes: Mapping[str, Any], fsdp: bool = False) -> tuple[str, ...]:
    """Return changes as settings of the job's file; as flags if the job came from flags."""
    if kind not in FILE_KEYS:
        return tuple(
            " ".join(format_job_flags({field: value}))
            for field, value in changes.items()
            if format_job_flags({field: value})
        )
    out: list[str] = []
    for field, value in changes.items():
        if field == "offload" and fsdp:
            out.append(FSDP_OFFLOAD_SETTINGS.get(kind, "in the accelerate file: fsdp_offload_params: true"))
        else:
            out += _format_file_setting(kind, field, value)
    return tuple(out)


def _format_file_setting(kind: str, field: str, value: Any) -> tuple[str, ...]:
    ready = FILE_SETTINGS.get((kind, field, value))
    if ready:
        return ready
    if field == "alloc_conf":
        return (f"export PYTORCH_ALLOC_CONF={value}",)
    if field == "zero" and kind in ZERO_FILE_SETTINGS:
        return (ZERO_FILE_SETTINGS[kind].format(value),)
    if field == "offload" and value in OFFLOAD_FILE_SETTINGS:
        where = "" if kind == "deepspeed" else "in the DeepSpeed file: "
        return (where + OFFLOAD_FILE_SETTINGS[value],)
    key = FILE_KEYS[kind].get(field)
    if key is None:
        return tuple([" ".join(format_job_flags({field: value}))] if field != "world" else [])
    if isinstance(value, str):
        value = {"nonreentrant": "true", "none": "false"}.get(value, OPTIMIZER_FILE_NAMES.get(value, value))
    return (f"{key}: {value}",)
