"""Record inference: a rollout of tokens, and the scores of tokens that exist, as RL computes them between its steps."""

from collections.abc import Callable

from gpuready.fit.job.model_parser import parse_model_config
from gpuready.fit.job.records import FitJob, GpuCard
from gpuready.fit.tape import loss as losses
from gpuready.fit.tape.autograd import Tape, Tensor
from gpuready.fit.tape.ddp_fsdp import FsdpShards
from gpuready.fit.tape.decoder import DecoderModel
from gpuready.fit.tape.linear_layers import WeightMaker
from gpuready.fit.tape.loss import log_probabilities
from gpuready.fit.tape.model_parts import KeyValueCache
from gpuready.fit.tape.torch_ops import TorchOps
from gpuready.fit.tape.training import tensor_parallel_shape
from gpuready.fit.tape.weight_shards import gathers_by_layer

LOOP_KERNELS = 20  # the argmax, and what the loop of generate computes about the lengths of every row
PLAYED_TOKENS = 3  # tokens played at the start and at the end; the others differ only in length


class InferenceRun:
    """A model without gradients."""

    def __init__(self, job: FitJob, card: GpuCard, workspace: int) -> None:
        self.job = job
        self.tape = Tape()
        self.ops = TorchOps(self.tape, workspace=workspace)
        self.ops.grad_enabled = False
        self.ops.double_quant = job.double_quant
        shape = tensor_parallel_shape(parse_model_config(job.model), job.tensor_parallel)
        self.model = DecoderModel(self.ops, shape, job, card, WeightMaker(self.ops, job, trained=False))


class GenerationRun(InferenceRun):
    """A model that only generates."""

    def __init__(self, job: FitJob, card: GpuCard, workspace: int) -> None:
        super().__init__(job, card, workspace)
        self.tape.mark_phase("build")

    def record_tape(self) -> Tape:
        job, ops, tape = self.job, self.ops, self.tape
        ids = ops.new_scratch(8 * job.micro_batch * job.seq)
        alone = self.last_logits(job.seq, job.seq, KeyValueCache(ops))
        tape.mark_phase("prefill")
        del alone
        tape.mark_phase("freed")
        total = job.seq + job.new_tokens
        cache = KeyValueCache(ops, total - 1 if job.cache == "static" else 0)
        more = [ops.new_scratch(8 * job.micro_batch * job.seq) for _ in range(2)]
        self.model.has_row_masks = True
        self.generate_token(job.seq, job.seq, cache)
        tape.kernels.append(("phase", "first token"))
        for length in self._played_lengths(total):
            self.generate_token(1, length, cache)
            tape.kernels.append(("phase", f"token {length}"))
        del more, ids, cache
        tape.mark_phase("generate")
        return tape

    def _played_lengths(self, total: int) -> list[int]:
        first = self.job.seq + 1
        if total - first <= 2 * PLAYED_TOKENS:
            return list(range(first, total))
        return [*range(first, first + PLAYED_TOKENS), *range(total - PLAYED_TOKENS, total)]

    def last_logits(self, seq: int, length: int, cache: KeyValueCache) -> tuple[Tensor, KeyValueCache]:
        """Return the logits of the last position, and the cache."""
        hidden = self.model.forward(self.job.micro_batch, seq, lambda call, x, *_: call(x), cache, length)
        last = Tensor(hidden.memory, (self.job.micro_batch, 1, hidden.shape[-1]), hidden.width)
        return losses.compute_logits(self.model, last), cache

    def generate_token(self, seq: int, length: int, cache: KeyValueCache) -> None:
        """Generate one token: its logits in fp32, then the argmax."""
        logits, _ = self.last_logits(seq, length, cache)
        wide = self.ops.new_empty(logits.shape, 4)
        for _ in range(LOOP_KERNELS):
            self.ops.tape.launch_kernel("move", wide.numel)
        del logits, wide


class ScoringRun(InferenceRun):
    """A model that only reads, whole or sharded by FSDP."""

    def __init__(self, job: FitJob, card: GpuCard, workspace: int) -> None:
        super().__init__(job, card, workspace)
        ops = self.ops
        self.run_layer: Callable[..., Tensor] = lambda call, x, *_: call(x)
        self.shards = FsdpShards(ops, self.model, job, []) if gathers_by_layer(job) else None
        if self.shards is not None:
            self.run_layer = self.shards.wrap_layer_runner(self.run_layer, len(self.model.layers))
        self.tape.mark_phase("build")

    def record_tape(self) -> Tape:
        job, ops = self.job, self.ops
        batch = ops.new_scratch(8 * job.micro_batch * job.seq)
        if self.shards is not None:
            self.shards.gather_group(-1)
        hidden = self.model.forward(job.micro_batch, job.seq, self.run_layer)
        scores = hidden if job.loss == "value" else log_probabilities(ops, losses.compute_logits(self.model, hidden))
        del hidden, scores, batch
        if self.shards is not None:
            self.shards.finish_backward()
        self.tape.mark_phase("score")
        return self.tape
