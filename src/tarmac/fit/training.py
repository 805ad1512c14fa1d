"""A training job on tape: the weights, then steps of forward, backward, clipping and the optimizer."""

from __future__ import annotations

from tarmac.fit import liger
from tarmac.fit import loss as losses
from tarmac.fit.architecture import read
from tarmac.fit.checkpoint import Checkpointing
from tarmac.fit.layers import Model
from tarmac.fit.ops import Ops
from tarmac.fit.optimizers import Optimizer
from tarmac.fit.projection import Maker
from tarmac.fit.tensor import Tape, Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from tarmac.fit.job import Card, Job


class Training:
    """Everything that lives on the device during training."""

    def __init__(self, job: Job, card: Card) -> None:
        self.job = job
        self.tape = Tape()
        self.ops = Ops(self.tape, workspace=workspace_of(card))
        ops = self.ops
        ops.lora_dropout = job.lora_dropout
        ops.double_quant = job.double_quant
        ops.half_is_fp16 = job.precision == "fp16"
        shape = read(job.model)
        maker = Maker(ops, job)
        self.model = Model(ops, shape, job, card, maker)
        self.maker = maker
        tables = maker.embeddings if job.loop == "trainer" else []
        self.optimizer = Optimizer(ops, job.optimizer, maker.trained, tables)
        self.autocast = 2 if job.precision.startswith("amp") or job.autocast else 0
        self.run: Callable[..., Tensor] = lambda call, x, kind: call(x)
        if job.checkpointing != "none":
            self.run = Checkpointing(ops, job.checkpointing == "reentrant")
        self.tape.mark("build")

    def record(self) -> Tape:
        """The tape of the whole job."""
        job, tape = self.job, self.tape
        batch = self.ops.scratch(8 * job.micro_batch * job.seq)
        for step in range(job.steps):
            for micro in range(job.accumulation):
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
        kept: list[Tensor] = []
        loss = self.forward(kept)
        ops.autocast = 0
        ops.casts = {}
        if self.job.accumulation > 1:
            loss = ops.scale(loss)
        tape.mark(f"fwd{tag}")
        ops.in_backward = True
        ones = [ops.new((), 4)]
        ops.backward(loss, ones)
        del loss
        kept.clear()
        ops.in_backward = False
        tape.mark(f"bwd{tag}")

    def forward(self, kept: list[Tensor]) -> Tensor:
        job, model = self.job, self.model
        hidden = model.forward(job.micro_batch, job.seq, self.run)
        if job.loss != "plain":
            return liger.loss(model, hidden, accumulates=job.loss == "liger")
        self.tape.kind = "loss"
        logits = losses.logits_of(model, hidden)
        if job.keep_outputs:
            kept.append(self.ops.detached(logits))
        loss = losses.plain(model, hidden, logits)
        self.tape.kind = "activations"
        return loss


def workspace_of(card: Card) -> int:
    """The workspace of a cuBLAS handle: 32 MiB from Hopper on, a little over 8 MiB before."""
    return 32 << 20 if int(card.capability.split(".")[0]) >= 9 else (8 << 20) + (128 << 10)
