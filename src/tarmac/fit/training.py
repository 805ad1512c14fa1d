"""A training job on tape: the weights, then steps of forward, backward, clipping and the optimizer."""

from __future__ import annotations

from tarmac.fit import liger
from tarmac.fit import loss as losses
from tarmac.fit.architecture import read
from tarmac.fit.checkpoint import Checkpointing
from tarmac.fit.job import Undecided
from tarmac.fit.layers import Model
from tarmac.fit.ops import Ops
from tarmac.fit.optimizers import Optimizer
from tarmac.fit.preference import log_probabilities
from tarmac.fit.projection import Maker
from tarmac.fit.sharding import (
    Shards,
    bucket,
    buffers,
    master,
    rebuild,
    reduce_away,
    splits_state,
    splits_weights,
)
from tarmac.fit.tensor import Tape, Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from tarmac.fit.architecture import Shape
    from tarmac.fit.job import Card, Job


class Training:
    """Everything that lives on the device during training."""

    def __init__(self, job: Job, card: Card) -> None:
        self.job = job
        self.tape = tape = Tape()
        self.ops = ops = Ops(tape, workspace=workspace_of(card))
        ops.lora_dropout = job.lora_dropout
        ops.double_quant = job.double_quant
        ops.half_is_fp16 = job.precision == "fp16"
        shape = parallel(read(job.model), job.tensor_parallel)
        if shape.experts and job.method != "full" and job.lora_targets in ("all", "all-linear"):
            raise Undecided(
                "adapters on all layers of a mixture of experts are not counted: peft adapts the experts' weights as a whole; "
                "name the layers, as in --lora-targets q_proj,k_proj,v_proj,o_proj"
            )
        self.rows = job.micro_batch * (2 if job.dpo else 1)
        maker = Maker(ops, job)
        self.model = Model(ops, shape, job, card, maker)
        self.reference = None
        if job.dpo and (
            job.method == "full" or job.loop == "plain"
        ):  # the Trainer takes the base of an adapter
            other = job.but(method="full", quant="", dpo=False)
            self.reference = Model(ops, shape, other, card, Maker(ops, other, trained=False))
        self.maker = maker
        self.autocast = 2 if job.precision.startswith("amp") or job.autocast else 0
        self.run: Callable[..., Tensor] = lambda call, x, *_: call(x)
        if job.checkpointing != "none":
            self.run = Checkpointing(ops, job.checkpointing == "reentrant", job.offload == "activations")
        self._spread()
        tape.mark("build")

    def _spread(self) -> None:
        """What several ranks change: shares of the weights and of the state, and buffers."""
        job, ops, maker = self.job, self.ops, self.maker
        self.shards = None
        owned = maker.trained
        ops.on_leaf = reduce_away(ops, job)
        if splits_weights(job):
            self.shards = Shards(ops, self.model, job, maker.trained)
            ops.on_leaf = self.shards.on_leaf
            self.run = self.shards.wrap(self.run, len(self.model.layers))
            owned = list(self.shards.owned.values())
        self.held = buffers(ops, job, maker.trained)
        self.masters = master(ops, job, maker.trained)
        tables = maker.embeddings if job.loop == "trainer" else []
        self.optimizer = Optimizer(ops, job.optimizer, owned, tables)
        if splits_state(job) and self.shards is None:
            self.optimizer.ranks = job.world
        self.optimizer.width = 4 if job.zero and job.precision in ("bf16", "fp16") else 0
        if self.optimizer.width:  # DeepSpeed steps over one flat share, its gradient in fp32
            self.optimizer.flat = -(-sum(t.numel for t in maker.trained) // job.world)
        self.optimizer.elsewhere = job.offload in ("optimizer", "parameters")

    def record(self) -> Tape:
        """The tape of the whole job."""
        job, tape = self.job, self.tape
        batch = self.ops.scratch(8 * self.rows * job.seq)
        for step in range(job.steps):
            if step == 1:
                rebuild(self.ops, job, self.maker.trained, self.held)
            for micro in range(min(job.accumulation, 2)):  # from the second on they are the same again
                tag = f"{step}" if job.accumulation == 1 else f"{step}.{micro}"
                self.micro_step(tag)
            if job.clip:
                self.optimizer.clip()
            tape.mark(f"clip{step}")
            self.optimizer.step()
            tape.mark(f"opt{step}")
            self.optimizer.zero()
            tape.mark(f"zero{step}")
        del batch
        return tape

    def micro_step(self, tag: str) -> None:
        ops, tape = self.ops, self.tape
        ops.autocast = self.autocast
        if self.shards is not None:
            self.shards.gather(-1)
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
        collected = bucket(ops, self.job, self.maker.trained)
        ops.backward(loss, ones)
        del loss, collected
        kept.clear()
        ops.in_backward = False
        if self.shards is not None:
            self.shards.done()
        tape.mark(f"bwd{tag}")

    def forward(self, kept: list[Tensor]) -> Tensor:
        job, model = self.job, self.model
        hidden = model.forward(self.rows, job.seq, self.run)
        if job.loss != "plain":
            return liger.loss(model, hidden, accumulates=job.loss == "liger")
        self.tape.kind = "loss"
        logits = losses.logits_of(model, hidden)
        if job.keep_outputs:
            kept.append(self.ops.detached(logits))
        loss = losses.plain(model, hidden, logits)
        self.tape.kind = "activations"
        return loss

    def preference(self, tag: str) -> Tensor:
        """The loss of DPO: the reference's log-probabilities first, without a graph."""
        ops, job = self.ops, self.job
        ops.grad = False
        model = self.reference or self.model
        plain: Callable[..., Tensor] = lambda call, x, *_: call(x)  # noqa: E731
        theirs = log_probabilities(model, model.forward(self.rows, job.seq, plain))
        ops.grad = True
        self.tape.mark(f"ref{tag}")
        mine = log_probabilities(self.model, self.model.forward(self.rows, job.seq, self.run))
        return losses.mean_of(ops, ops.add(mine, theirs))


def parallel(shape: Shape, ranks: int) -> Shape:
    """The share of every layer that one rank of a tensor-parallel group computes."""
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
    """The workspace of a cuBLAS handle: 32 MiB from Hopper on, a little over 8 MiB before."""
    return 32 << 20 if int(card.capability.split(".")[0]) >= 9 else (8 << 20) + (128 << 10)
