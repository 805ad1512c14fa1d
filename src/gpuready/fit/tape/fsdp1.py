"""FSDP1 on one rank: flat parameters that are gathered in place, and flat gradients.

Follows torch's FullyShardedDataParallel (distributed/fsdp/_flat_param.py and _runtime_utils.py), compared with it
on gloo (benchmarks/fit_sharded.py).
"""

from __future__ import annotations

from gpuready.fit.job.records import FitJob
from gpuready.fit.tape.autograd import Tensor
from gpuready.fit.tape.ddp_fsdp import FsdpShards
from gpuready.fit.tape.model_parts import ModelParts
from gpuready.fit.tape.torch_ops import TorchOps
from gpuready.fit.tape.zero12 import GATHER_STREAM, REDUCE_STREAM


class FlatShards(FsdpShards):
    """The weights of a model on one rank of FSDP1.

    A group is gathered into one padded buffer, of which the weights are views. Its gradients are joined into a flat
    one when the last has come, which is padded where the ranks do not divide it.
    """

    def __init__(self, ops: TorchOps, model: ModelParts, job: FitJob, trained: list[Tensor]) -> None:
        self.adapters = {id(t) for t in trained} if job.method != "full" else set()
        super().__init__(ops, model, job, trained)

    def _register_tensor(self, layer: int, tensor: Tensor) -> None:
        """Register a weight; an adapter is gathered for its own product alone, and does not count."""
        if id(tensor) in self.adapters:
            self.layer_of[id(tensor)] = layer
            self.sizes.setdefault(layer, [])
        else:
            super()._register_tensor(layer, tensor)

    def start_gather(self, layer: int) -> None:
        if layer in self.gathered or layer in self.in_flight or layer not in self.sizes:
            return
        world, size = self.job.shard_ranks, sum(self.sizes[layer])
        with self._label_allocations("gathered weights", "all-gather", GATHER_STREAM):
            cast_shard = self.ops.new_scratch(-(-size // world) if self.job.fp32_shards or self.on_host else 0)
            self.in_flight[layer] = self.ops.new_scratch(-(-size // world) * world)
            del cast_shard

    def gather_group(self, layer: int, backwards: bool = False) -> None:
        self.start_gather(layer)
        if layer in self.in_flight:
            self.gathered[layer] = [self.in_flight.pop(layer)]

    def on_leaf_gradient(self, parameter: Tensor, grad: Tensor) -> bool:
        """Take a gradient; an adapter's module is a unit of its own, as peft wraps it, and is reduced at once."""
        if self.job.method == "full":
            return super().on_leaf_gradient(parameter, grad)
        owned = self.owned[id(parameter)]
        with self._label_allocations("gradients", "reduce-scatter", REDUCE_STREAM):
            share = self.ops.new_scratch(grad.width * owned.numel)
        if owned.grad is None:
            owned.grad = Tensor(None if self.on_host else share.memory, owned.shape, grad.width)
        return True

    def _reduce_scatter(self, layer: int, gradients: list[tuple[Tensor, Tensor]]) -> None:
        """Join the gradients, and reduce them into this rank's shard."""
        ops, world = self.ops, self.job.shard_ranks
        width = gradients[0][0].width if self.job.fp32_shards else gradients[0][1].width
        size = sum(grad.numel * grad.width for _, grad in gradients)
        with self._label_allocations("communication", "flat gradient"):
            flat = ops.new_scratch(size)
        owners = [owned for owned, _ in gradients]
        gradients.clear()
        self.gathered.pop(layer, None)
        with self._label_allocations("communication", "reduce-scatter", REDUCE_STREAM):
            padded = ops.new_scratch(-(-size // world) * world if size % world else 0)
        with self._label_allocations("gradients", "reduce-scatter", REDUCE_STREAM):
            shares = ops.new_scratch(width * sum(owned.numel for owned in owners))
        for owned in owners:
            if owned.grad is None:
                owned.grad = Tensor(None if self.on_host else shares.memory, owned.shape, width)
        del flat, padded
