"""Record scoring: the log-probabilities of tokens that exist, without training, as RL computes them between its steps."""

from __future__ import annotations

from collections.abc import Callable

from gpuready.fit.job.model_parser import parse_model_config
from gpuready.fit.job.records import FitJob, GpuCard
from gpuready.fit.tape import loss as losses
from gpuready.fit.tape.autograd import Tape, Tensor
from gpuready.fit.tape.ddp_fsdp import FsdpShards
from gpuready.fit.tape.decoder import DecoderModel
from gpuready.fit.tape.dpo import log_probabilities
from gpuready.fit.tape.linear_layers import WeightMaker
from gpuready.fit.tape.torch_ops import TorchOps
from gpuready.fit.tape.training import tensor_parallel_shape
from gpuready.fit.tape.weight_shards import gathers_by_layer


class ScoringRun:
    """A model that only reads, whole or sharded by FSDP."""

    def __init__(self, job: FitJob, card: GpuCard, workspace: int) -> None:
        self.job = job
        self.tape = Tape()
        self.ops = ops = TorchOps(self.tape, workspace=workspace)
        ops.grad_enabled = False
        ops.double_quant = job.double_quant
        shape = tensor_parallel_shape(parse_model_config(job.model), job.tensor_parallel)
        self.model = DecoderModel(ops, shape, job, card, WeightMaker(ops, job, trained=False))
        self.model.training = False
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
