"""Record a training job: the weights, then steps of forward, backward, clipping and the optimizer."""

from __future__ import annotations

from gpuready.fit import liger
from gpuready.fit import loss as losses
from gpuready.fit.architecture import read
from gpuready.fit.checkpoint import Checkpointing
from gpuready.fit.gathers import Gathers
from gpuready.fit.job import Undecided
from gpuready.fit.layers import Model
from gpuready.fit.ops import Ops
from gpuready.fit.optimizers import Optimizer
from gpuready.fit.preference import log_probabilities
from gpuready.fit.projection import Maker
from gpuready.fit.refrain import Refrain
from gpuready.fit.sharding import (
    Shards,
    buffers,
    gathers_by_layer,
    rebuild,
)
from gpuready.fit.tensor import Tape, Tensor
from gpuready.fit.zero import Partitions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuready.fit.architecture import Shape
    from gpuready.fit.job import Card, Job


class Training:
    """Everything on the device during training."""

    def __init__(self, job: Job, card: Card, rank: int | None = None) -> None:
        self.job = job
        self.tape = tape = Tape()
        self.ops = ops = Ops(tape, workspace=workspace_of(card))
        ops.lora_dropout = job.lora_dropout
        ops.double_quant = job.double_quant
        ops.half_is_fp16 = job.precision == "fp16"
        shape = parallel(read(job.model), job.tensor_parallel)
        whole = shape.experts and job.method != "full" and job.lora_targets in ("all", "all-linear")
        if whole and shape.family != "qwen2_moe" and (job.dora or job.lora_dropout):
            raise Undecided(
                "peft adapts the experts of this model as a whole, and refuses to with DoRA or dropout: "
                "name the layers, as in --lora-targets q_proj,k_proj,v_proj,o_proj"
            )
        self.rows = job.micro_batch * (2 if job.dpo else 1)
        maker = Maker(ops, job)
        self.model = Model(ops, shape, job, card, maker)
        if job.method != "full" and not maker.trained:
            raise ValueError(
                f"no layer of the model is called {_named(job)}, so there is nothing to train: name others (--lora-targets)"
            )
        self.reference = None
        if job.dpo and (
            job.method == "full" or job.loop == "plain"
        ):  # the Trainer uses the adapter's base model
            other = job.but(method="full", quant="", dpo=False)
            self.reference = Model(ops, shape, other, card, Maker(ops, other, trained=False))
            self.reference.training = False
        self.maker = maker
        self.autocast = 2 if job.precision.startswith("amp") or job.autocast else 0
        self.run: Callable[..., Tensor] = lambda call, x, *_: call(x)
        if job.checkpointing != "none":
            self.run = Checkpointing(ops, job.checkpointing == "reentrant", job.offload == "activations")
        self._spread(card, rank)
        tape.mark("build")

    def _spread(self, card: Card, rank: int | None) -> None:
        """Set up what several ranks change: shards of weights and state, and buffers."""
        job, ops, maker = self.job, self.ops, self.maker
        self.shards: Shards | None = None
        self.zero: Partitions | Gathers | None = None
        owned = maker.trained
        tables = maker.embeddings if job.loop == "trainer" else []
        if gathers_by_layer(job):
            self.shards = Shards(ops, self.model, job, maker.trained)
            ops.on_leaf = self.shards.on_leaf
            self.run = self.shards.wrap(self.run, len(self.model.layers))
            owned = list(self.shards.owned.values())
        elif job.zero == 3:
            ops.tape.mark("load")
            self.zero = ops.modules = Gathers(ops, self.model, job, maker.trained)
            self.run = self.zero.wrap(self.run)
        elif job.zero:
            ops.tape.mark("load")
            self.zero = Partitions(ops, job, card, maker.trained, rank)
        self.held = buffers(ops, job, maker.trained)
        groups = [owned]
        if self.zero is not None:  # DeepSpeed steps over flat fp32 shards
            ops.on_leaf = self.zero.on_leaf
            groups, tables = [[one] for one in self.zero.masters], []
        self.optimizers = [Optimizer(ops, job.optimizer, group, tables) for group in groups]
        for optimizer in self.optimizers:
            optimizer.elsewhere = job.offload in ("optimizer", "parameters")

    def record(self) -> Tape:
        """Record the tape of the whole job."""
        job, tape, ops = self.job, self.tape, self.ops
        batch = ops.scratch(8 * self.rows * job.seq)
        refrains: dict[int, Refrain] = {}
        first = int(
            job.zero == 3
        )  # the step that later ones repeat: ZeRO 3 only records in the first
        for step in range(job.steps):
            if step == 1:
                rebuild(ops, job, self.maker.trained, self.held)
            for micro in range(min(job.accumulation, 2)):  # from the second on they are the same
                tag = f"{step}" if job.accumulation == 1 else f"{step}.{micro}"
                alike = 0 if job.zero == 3 else micro
                if alike in refrains:
                    refrains[alike].sing(tag)
                    continue
                refrain = Refrain(tape, len(tape.events), len(tape.kinds))
                self.micro_step(tag, boundary=micro == min(job.accumulation, 2) - 1)
                if step == first and alike == micro and refrain.learned(tag, self._holders(), ops.once()):
                    refrains[micro] = refrain
            if job.clip and self.zero is None:
                self.optimizers[0].clip()
            tape.mark(f"clip{step}")
            self.zero.step(self.optimizers) if self.zero else self.optimizers[0].step()
            tape.mark(f"opt{step}")
            self.optimizers[0].zero()
            tape.mark(f"zero{step}")
        del batch
        return tape

    def _holders(self) -> list[Tensor]:
        """Return the tensors that can hold a gradient."""
        return [parameter for optimizer in self.optimizers for parameter in optimizer.parameters]

    def micro_step(self, tag: str, boundary: bool) -> None:
        ops, tape = self.ops, self.tape
        ops.autocast = self.autocast
        if self.shards is not None:
            self.shards.gather(-1)
        if ops.modules is not None:
            ops.modules.begin()
        kept: list[Tensor] = []
        loss = self.preference(tag) if self.job.dpo else self.forward(kept)
        ops.autocast = 0
        ops.casts = {}
        if self.job.accumulation > 1 or self.job.precision == "amp-fp16":
            loss = ops.scale(loss)
        if self.shards is not None:
            self.shards.last = None
        tape.mark(f"fwd{tag}")
        ops.in_backward = True
        ones: list[Tensor | None] = [ops.new((), 4)]
        if self.shards is not None:
            self.shards.before_backward()
        if ops.modules is not None:
            ops.modules.visit([])
        ops.backward(loss, ones)
        del loss
        kept.clear()
        ops.unasked.clear()
        ops.in_backward = False
        if self.shards is not None:
            self.shards.done()
        if self.zero is not None:
            self.zero.done(boundary)
        tape.mark(f"bwd{tag}")

    def forward(self, kept: list[Tensor]) -> Tensor:
        job, model = self.job, self.model
        hidden = model.forward(self.rows, job.seq, self.run)
        if job.loss != "plain":
            return liger.loss(model, hidden)
        self.tape.kind = "loss"
        logits = losses.logits_of(model, hidden)
        if job.keep_outputs:
            kept.append(self.ops.detached(logits))
        loss = losses.plain(model, hidden, logits)
        self.tape.kind = "activations"
        return loss

    def preference(self, tag: str) -> Tensor:
        """The DPO loss: the reference's log-probabilities first, without a graph."""
        ops, job = self.ops, self.job
        ops.grad = False
        model = self.reference or self.model
        plain: Callable[..., Tensor] = lambda call, x, *_: call(x)  # noqa: E731
        logits = losses.logits_of(model, model.forward(self.rows, job.seq, plain))
        theirs = log_probabilities(ops, logits)  # the model has returned: its hidden states are freed
        del logits
        ops.grad = True
        self.tape.mark(f"ref{tag}")
        logits = losses.logits_of(self.model, self.model.forward(self.rows, job.seq, self.run))
        mine = log_probabilities(ops, logits)
        del logits
        return losses.mean_of(ops, ops.add(mine, theirs))


def parallel(shape: Shape, ranks: int) -> Shape:
    """Return the part of every layer that one tensor-parallel rank computes."""
    if ranks == 1:
        return shape
    for name in ("heads", "inner"):
        if getattr(shape, name) % ranks:
            raise Undecided(
                f"{ranks} tensor-parallel ranks do not divide the model's {name} ({getattr(shape, name)})"
            )
    return shape.but(
        heads=shape.heads // ranks,
        kv_heads=max(1, shape.kv_heads // ranks),
        inner=shape.inner // ranks,
        expert_inner=shape.expert_inner // ranks,
        shared_inner=shape.shared_inner // ranks,
    )


def workspace_of(card: Card) -> int:
    """Return the workspace of a cuBLAS handle: 32 MiB from Hopper on, 8 MiB + 128 KiB before."""
    return 32 << 20 if int(card.capability.split(".")[0]) >= 9 else (8 << 20) + (128 << 10)


def _named(job: Job) -> str:
    names = (job.lora_targets,) if isinstance(job.lora_targets, str) else job.lora_targets
    return " or ".join(map(str, names[:4]))
