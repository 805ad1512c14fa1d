"""Records of a prediction: the job, the card that it runs on, and the predicted memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuready.model.record import Record, field

TRAINING_METHODS = ("full", "lora", "qlora")
PRECISION_CHOICES = ("fp32", "bf16", "fp16", "amp-bf16", "amp-fp16")
OPTIMIZER_CHOICES = (
    "adamw", "adamw_fused", "adamw_forloop", "sgd", "sgd_momentum", "adafactor", "adafactor_torch",
    "adamw_8bit", "paged_adamw_8bit", "paged_adamw",
)  # fmt: skip
FIELD_CHOICES = {
    "method": TRAINING_METHODS,
    "precision": PRECISION_CHOICES,
    "optimizer": OPTIMIZER_CHOICES,
    "checkpointing": ("none", "nonreentrant", "reentrant"),
    "attention": ("sdpa", "eager", "flash"),
    "loss": ("plain", "fused", "liger", "logprob", "logprob_inplace", "value"),
    "lora_dtype": ("fp32", "bf16", "fp16"),
    "autocast": ("", "bf16", "fp16"),
    "quant": ("", "nf4", "fp4", "int8"),
    "task": ("train", "generate", "score"),
    "cache": ("dynamic", "static"),
    "zero": (0, 1, 2, 3),
    "offload": ("", "optimizer", "parameters", "activations"),
    "loop": ("plain", "trainer"),
    "trainer": ("transformers", "trl", "axolotl", "llama-factory", "plain"),
    "fsdp_version": (1, 2),
    "packing": ("", "rows", "flat"),
}
FIELD_MAXIMA = {  # largest accepted value
    "micro_batch": 1 << 16, "seq": 1 << 26, "accumulation": 1 << 24, "lora_r": 1 << 16, "new_tokens": 1 << 26,
    "world": 1 << 20, "tensor_parallel": 1 << 10, "context_parallel": 1 << 10, "steps": 16,
}  # fmt: skip
AUTO_BUCKET = -1
BUCKET_FIELDS = ("reduce_bucket", "prefetch_bucket", "persistence", "live_parameters", "reuse_distance", "sub_group")


class FitUndecided(ValueError):
    """The engine has no model for a valid question; the message says for what."""


class UnknownLayers(FitUndecided):
    """No template here has the model's layers; a trace plays them."""


class FitJob(Record):
    """One training or generation set-up on one rank. ``model`` is the model's config.json."""

    model: Mapping[str, Any]
    method: str = "full"
    micro_batch: int = 1
    seq: int = 2048
    precision: str = "bf16"
    optimizer: str = "adamw"
    checkpointing: str = "none"
    attention: str = "sdpa"
    accumulation: int = 1
    loss: str = "plain"
    lora_r: int = 16
    lora_targets: str | tuple[str, ...] = "all"
    lora_dtype: str = "fp32"
    lora_dropout: float = 0.0
    dora: bool = False
    autocast: str = ""  # on top of the weights' precision; amp-* is fp32 weights with autocast
    quant: str = ""
    double_quant: bool = False
    kbit: bool = False  # prepare_model_for_kbit_training: unquantised weights become fp32
    keep_outputs: bool = False
    padded: bool = False  # rows of a batch differ in length: their mask reaches attention
    packing: str = ""  # samples fill every row, or one row that has the tokens of all (TRL's, without padding)
    dpo: bool = False
    clip: bool = True
    loop: str = "plain"
    trainer: str = "plain"  # whose defaults the other fields were set by
    alloc_conf: str = ""
    task: str = "train"
    new_tokens: int = 32
    cache: str = "dynamic"
    world: int = 1
    zero: int = 0
    reduce_bucket: int = 500_000_000  # DeepSpeed's, in values; AUTO_BUCKET derives it from the hidden size
    prefetch_bucket: int = 50_000_000
    persistence: int = 100_000
    live_parameters: int = 1_000_000_000
    reuse_distance: int = 1_000_000_000
    sub_group: int = 1_000_000_000  # values of a shard per ZeRO 3 optimizer step
    contiguous_gradients: bool = True
    overlap: bool = False  # ZeRO 1 and 2 then hold two buckets; ZeRO 3 always overlaps
    fsdp: bool = False
    fsdp_version: int = 2  # 1: flat parameters, gathered in place
    reshard: bool = True  # FSDP frees gathered weights after the forward; if False, only after the backward
    fp32_shards: bool = False  # FSDP under accelerate's mixed precision: fp32 shards of weights that compute in 16 bit
    tensor_parallel: int = 1
    context_parallel: int = 1  # ranks that share each sequence, by rings or by heads
    offload: str = ""
    steps: int = 2  # played steps: the first creates the optimizer state, the second is like all others

    @property
    def shard_ranks(self) -> int:
        """Ranks that share weights and state: all but those that share each layer."""
        return max(1, self.world // self.tensor_parallel)

    def played_batch(self) -> FitJob:
        """Return the job with the batch that a rank computes: its part of every sequence, and one row where they are joined."""
        seq = -(-self.seq // self.context_parallel)
        if self.packing != "flat" or self.task != "train":
            return self.replace(seq=seq)
        return self.replace(seq=self.micro_batch * seq, micro_batch=1, padded=self.attention != "flash")

    def validate_fields(self) -> FitJob:
        """Return the job with implied fields set; ValueError if a field is invalid."""
        for name, allowed in FIELD_CHOICES.items():
            if getattr(self, name) not in allowed:
                choices = ", ".join(str(one) for one in allowed if one != "") + " or nothing" * ("" in allowed)
                raise ValueError(f"{name} must be one of {choices}, not {getattr(self, name)!r}")
        for name, maximum in FIELD_MAXIMA.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= maximum:
                raise ValueError(f"{name} must be a whole number from 1 to {maximum}, not {value!r}")
        for name in BUCKET_FIELDS:
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not AUTO_BUCKET <= value <= 1 << 63:
                raise ValueError(f"{name} must be a whole number of values, not {value!r}")
        if self.world > 1 and self.world % self.tensor_parallel:
            raise ValueError(f"world ({self.world}) must be a multiple of tensor_parallel ({self.tensor_parallel})")
        if self.world % self.context_parallel:
            raise ValueError(f"world ({self.world}) must be a multiple of context_parallel ({self.context_parallel})")
        if self.zero and self.fsdp:
            raise ValueError("ZeRO and FSDP share the same things among the GPUs: choose one")
        casts_weights = self.zero and self.precision in ("bf16", "fp16")  # DeepSpeed casts every weight
        if casts_weights and self.method != "full" and self.lora_dtype != self.precision:
            return self.replace(lora_dtype=self.precision).validate_fields()
        if self.method == "qlora" and not self.quant:  # as in the QLoRA paper and its scripts
            return self.replace(quant="nf4", double_quant=True)
        if self.quant and self.method == "full" and self.task == "train":
            raise ValueError("a quantised base cannot be trained in full: take the method lora or qlora")
        return self


class GpuCard(Record):
    """A GPU's memory. ``in_use`` is used by other processes, in bytes."""

    name: str
    capability: str
    memory: int
    in_use: int = 0


H200 = GpuCard("NVIDIA H200", "9.0", 150_109_880_320)


class FitPrediction(Record):
    """Predicted memory of a job on a card, in bytes."""

    peak_allocated: int  # live tensors, as torch.cuda.max_memory_allocated reports
    peak_reserved: int  # as torch.cuda.max_memory_reserved reports when memory is not scarce
    minimum: int  # smallest reserve with which the allocator does not run out of memory
    overhead: tuple[int, int]  # context and libraries outside the allocator: at least, at most
    parts: Mapping[str, int]  # memory live at the peak, by kind
    phases: Mapping[str, int]  # the highest allocation in each phase of a step
    peak_at: tuple[str, str] = ("", "")  # the phase and the operation at the peak
    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)  # of the environment that was traced
    # Memory live at the peak of each phase, by kind.
    stacks: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def peak_device(self) -> int:
        """Upper bound of what nvidia-smi shows when memory is not scarce."""
        return self.peak_reserved + self.overhead[1]
