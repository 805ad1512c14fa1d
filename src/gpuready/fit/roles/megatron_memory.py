"""A rank of Megatron: weights, the gradient buffer and the optimizer's share by their sizes, activations from a tape.

The sizes follow megatron/core/distributed/param_and_grad_buffer.py and optimizer/distrib_optimizer.py: 16-bit weights,
one buffer for all gradients, and 12 bytes of state for each value, shared among the replicas by the distributed optimizer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuready.fit.job.model_parser import parse_model_config
from gpuready.fit.job.model_shape import ModelShape
from gpuready.fit.job.parameter_counts import count_parameters
from gpuready.fit.job.records import FitJob, GpuCard
from gpuready.fit.roles.records import MegatronSplit
from gpuready.fit.search.prediction import phase_stacks
from gpuready.model.record import Record

FP32_LOGITS = 2  # bytes that Megatron's cross entropy, in fp32 and in place, takes of a logit beside the played ones
STATE_BYTES = 12  # an fp32 copy and two moments for each value
LASTING_KINDS = ("parameters", "gradients", "optimizer", "adapters")
DENSE_LAYER_KEYS = ("first_k_dense_replace", "max_window_layers")
LAYER_KEYS = ("num_hidden_layers", "n_layer", "num_layers")


class RankMemory(Record):
    """Bytes of one rank, on the stage that has the most."""

    weights: int
    gradients: int
    optimizer: int
    working: int  # activations, logits and workspaces, with the micro-batches that a pipeline keeps

    def training_peak(self, late_optimizer: bool, share: float = 1.0) -> int:
        """Return the peak of a step; a late optimizer is not there while activations are.

        ``share`` is the part of the activations that is sure to be kept.
        """
        step = self.weights + self.gradients + self.optimizer
        passes = self.weights + self.gradients + int(self.working * share)
        return max(step, passes) if late_optimizer else passes + self.optimizer


def count_rank_parameters(config: Mapping[str, Any], split: MegatronSplit) -> tuple[int, int]:
    """Return a rank's parameters outside of experts and in experts, on the largest stage."""
    shape = parse_model_config(config)
    layers = stage_layers(shape, split)
    experts = _count_expert_parameters(shape)
    tables = shape.vocabulary * (1 if shape.tied else 2) + shape.positions
    dense = count_parameters(shape) - experts - tables * shape.hidden
    own_tables = -(-shape.vocabulary // split.tensor) * (1 if shape.tied or split.pipeline > 1 else 2)
    share = layers / shape.layers
    return (
        int(dense * share / split.tensor) + own_tables * shape.hidden,
        int(experts * share / (split.expert * split.expert_tensor)),
    )


def stage_layers(shape: ModelShape, split: MegatronSplit) -> int:
    """Return the layers of the largest stage. ValueError where there are more stages than layers."""
    if split.pipeline > shape.layers:
        raise ValueError(f"{split.pipeline} pipeline stages are more than the model's {shape.layers} layers")
    return -(-shape.layers // split.pipeline)


def _count_expert_parameters(shape: ModelShape) -> int:
    sparse = sum(shape.is_sparse_layer(layer) for layer in range(shape.layers))
    return sparse * shape.experts * (3 if shape.gated else 2) * shape.hidden * shape.expert_inner


def measure_rank(job: FitJob, split: MegatronSplit, card: GpuCard) -> RankMemory:
    """Return the memory of a rank that trains, or scores where the job's task says so."""
    dense, experts = count_rank_parameters(job.model, split)
    weights = 2 * (dense + experts)
    working = _measure_activations(job, split, card)
    if job.task != "train":
        return RankMemory(weights, 0, 0, working)
    if job.method != "full":
        dense, experts = count_adapter_parameters(job, split), 0
        weights += 2 * dense
    ranks = split.world // split.pipeline if split.distributed_optimizer else 1
    replicas, others = (max(1, ranks // each) for each in (split.tensor, split.expert * split.expert_tensor))
    return RankMemory(
        weights,
        (4 if split.fp32_gradients else 2) * (dense + experts),
        0 if split.host_optimizer else int(STATE_BYTES * (dense / replicas + experts / others)),
        working,
    )


def count_adapter_parameters(job: FitJob, split: MegatronSplit) -> int:
    """Return the values of a rank's adapters on all linear layers."""
    shape = parse_model_config(job.model)
    queries, keys = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    sizes = 2 * (shape.hidden + queries) + 2 * (shape.hidden + keys)
    inner = shape.experts * shape.expert_inner // split.expert if shape.experts else shape.inner
    sizes += (3 if shape.gated else 2) * (shape.hidden + inner)
    return job.lora_r * sizes * stage_layers(shape, split) // split.tensor


def _measure_activations(job: FitJob, split: MegatronSplit, card: GpuCard) -> int:
    """Return what a rank needs beside weights and state: on the first stage, which keeps the most micro-batches, or
    on the last, which has the logits.
    """
    shape = parse_model_config(job.model)
    tokens = job.micro_batch * max(1, -(-job.seq // split.context))
    vocabulary = 64 if job.loss == "value" else -(-shape.vocabulary // split.tensor)
    with_logits = _play_layer(job, split, card, vocabulary) + FP32_LOGITS * tokens * vocabulary
    if job.task != "train":
        return with_logits
    saved = stage_layers(shape, split) * saved_values(shape, split) * tokens * 2
    if split.pipeline == 1:
        return saved + with_logits
    kept = min(split.pipeline * (1 + (split.pipeline - 1) / (split.pipeline * split.virtual)), split.accumulation)
    if split.virtual == 1:
        kept = min(split.pipeline, split.accumulation)
    return max(int(kept * saved) + _play_layer(job, split, card, 64), saved + with_logits)


def saved_values(shape: ModelShape, split: MegatronSplit) -> int:
    """Return the values that one layer keeps of a token for its backward."""
    part = split.tensor if split.sequence_parallel else 1
    hidden = -(-shape.hidden // part)
    if split.recompute == "full":
        return hidden
    dropped = split.modules if split.recompute == "selective" else ()
    queries, keys = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    attention = 2 * hidden + (3 * queries + 4 * keys) // split.tensor
    if "moe" in dropped or "mlp" in dropped:
        return attention + hidden
    if shape.experts:
        routed = shape.experts_per_token * (2 * shape.hidden + 3 * shape.expert_inner // split.expert_tensor)
        routed //= max(part // split.expert_tensor, 1)  # each tensor rank sends its own part of the tokens
        return attention + hidden + routed + 3 * shape.shared_inner // split.tensor
    return attention + hidden + 3 * shape.inner // split.tensor


def _play_layer(job: FitJob, split: MegatronSplit, card: GpuCard, vocabulary: int) -> int:
    """Return the highest moment of one layer that is recomputed, with the loss: without what lasts."""
    shape = parse_model_config(job.model)
    played = FitJob(
        _shrink_config(job.model, shape, vocabulary), micro_batch=job.micro_batch,
        seq=max(1, -(-job.seq // split.context)), precision="bf16", optimizer="sgd", clip=False, steps=1, loss="value" if job.loss == "value" else "logprob",
        checkpointing="nonreentrant" if job.task == "train" else "none", attention=job.attention, task=job.task,
        world=split.tensor, tensor_parallel=split.tensor,
    )  # fmt: skip
    return max(
        sum(size for kind, size in kinds.items() if kind not in LASTING_KINDS)
        for kinds in phase_stacks(played, card).values()
    )


def _shrink_config(config: Mapping[str, Any], shape: ModelShape, vocabulary: int) -> dict[str, Any]:
    """Return the config of one of the last layers, which mixtures have their experts in."""
    cut = {
        key: value[-1:] if isinstance(value, list) and len(value) == shape.layers else value
        for key, value in config.items()
    }
    cut |= {key: 1 for key in LAYER_KEYS if key in cut}
    cut |= {key: 0 for key in DENSE_LAYER_KEYS if key in cut}
    return cut | {"vocab_size": vocabulary}
