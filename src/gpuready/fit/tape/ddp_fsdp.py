"""Several ranks: what one holds under DDP, FSDP2 and FSDP1, with the buffers of their collectives.

Not measured on several GPUs; compared with the real code on gloo (benchmarks/fit_sharded.py). Everything is
played on one stream: the pools of the collectives' streams are not separated. ZeRO is in
zero12.py and zero3.py.
"""

from collections.abc import Callable

from gpuready.fit.job.records import FitJob
from gpuready.fit.tape.autograd import Tensor
from gpuready.fit.tape.model_parts import ModelParts
from gpuready.fit.tape.torch_ops import Grads, TorchOps
from gpuready.fit.tape.weight_shards import new_shard, shards_on_host
from gpuready.fit.tape.zero12 import GATHER_STREAM, REDUCE_STREAM, LabelledAllocator

FIRST_BUCKET, NEXT_BUCKET = 1 << 20, 25 << 20  # sizes in bytes at which a DDP bucket is closed


class FsdpShards(LabelledAllocator):
    """The weights of a model on one rank of FSDP2; full layers exist only while they compute.

    A group of weights, a layer or everything outside of layers (-1), is gathered into one flat buffer and
    copied out. FSDP2 frees that buffer when the next group was copied out (forward) or at once (backward),
    prefetches the previous group in the backward, and keeps the input of a reduction until the next one.
    """

    def __init__(self, ops: TorchOps, model: ModelParts, job: FitJob, trained: list[Tensor]) -> None:
        super().__init__(ops)
        self.job = job
        self.in_flight: dict[int, Tensor] = {}  # gathers in flight
        self.gathered: dict[int, list[Tensor]] = {}
        self.on_host = shards_on_host(job)
        self.last_flat: Tensor | None = None  # flat buffer that outlives its copy
        self.last_reduced: Tensor | None = None  # input of the previous reduction
        self.owned: dict[int, Tensor] = {}
        self.layer_of: dict[int, int] = {}
        self.sizes: dict[int, list[int]] = {}
        self.grads: dict[int, list[tuple[Tensor, Tensor]]] = {}
        for index, layer in enumerate(model.layers):
            for tensor in layer.list_tensors():
                self._register_tensor(index, tensor)
        for tensor in model.list_outer_tensors():
            self._register_tensor(-1, tensor)
        for tensor in trained:
            self.owned[id(tensor)] = new_shard(ops, tensor, job, 4 if job.fp32_shards else 0)
        self.counts = {n: sum(1 for t in trained if self.layer_of.get(id(t), -1) == n) for n in self.sizes}

    def _register_tensor(self, layer: int, tensor: Tensor) -> None:
        if id(tensor) not in self.layer_of:
            self.layer_of[id(tensor)] = layer
            self.sizes.setdefault(layer, []).append(tensor.numel * tensor.width)

    def start_gather(self, layer: int) -> None:
        """Start to gather a group into one flat buffer."""
        if layer in self.gathered or layer in self.in_flight or layer not in self.sizes:
            return
        with self._label_allocations("gathered weights", "all-gather", GATHER_STREAM):
            world, wider = self.job.shard_ranks, 2 if self.job.fp32_shards else 1
            host_shards = [
                self.ops.new_scratch(-(-size * wider // world) if self.on_host else 0) for size in self.sizes[layer]
            ]
            self.in_flight[layer] = self.ops.new_scratch(sum(self.sizes[layer]))
            del host_shards  # shards from the host, copied into the buffer

    def gather_group(self, layer: int, backwards: bool = False) -> None:
        """Gather a group and copy it out into the weights."""
        self.start_gather(layer)
        if layer not in self.in_flight:
            return
        before, self.last_flat = self.last_flat, None  # a variable of FSDP2 holds it until the copy is made
        with self._label_allocations("gathered weights", "all-gather"):
            self.gathered[layer] = [self.ops.new_scratch(size) for size in self.sizes[layer]]
        del before
        flat = self.in_flight.pop(layer)
        if not backwards:
            self.last_flat = flat

    def release_group(self, layer: int) -> None:
        if layer >= 0:
            self.gathered.pop(layer, None)

    def finish_backward(self) -> None:
        self.gathered.clear()
        self.in_flight.clear()
        self.last_flat = self.last_reduced = None

    def on_leaf_gradient(self, parameter: Tensor, grad: Tensor) -> bool:
        """Take a full gradient; the last one of a group triggers the reduction to this rank's shard."""
        layer = self.layer_of.get(id(parameter), -1)
        gradients = self.grads.setdefault(layer, [])
        gradients.append((self.owned[id(parameter)], Tensor(grad.memory, grad.shape, grad.width)))
        if len(gradients) >= self.counts.get(layer, 1):
            self._reduce_scatter(layer, gradients)
        return True

    def _reduce_scatter(self, layer: int, gradients: list[tuple[Tensor, Tensor]]) -> None:
        """Reduce through one flat input into one flat shard, of which the gradients are views."""
        self.gathered.pop(layer, None)
        self.last_reduced = None
        ops, width = self.ops, gradients[0][0].width if self.job.fp32_shards else gradients[0][1].width
        with self._label_allocations("communication", "reduce-scatter"):
            flat = ops.new_scratch(sum(grad.numel * grad.width for _, grad in gradients))
        owners = [owned for owned, _ in gradients]
        gradients.clear()
        with self._label_allocations("gradients", "reduce-scatter", REDUCE_STREAM):
            shares = ops.new_scratch(width * sum(owned.numel for owned in owners))
        for owned in owners:
            if owned.grad is None:
                owned.grad = Tensor(None if self.on_host else shares.memory, owned.shape, width)
        self.last_reduced = flat

    def wrap_layer_runner(self, run: Callable[..., Tensor], layers: int) -> Callable[..., Tensor]:
        """Wrap the layer runner: gather a layer's weights before it and release them after it, both ways."""

        def run_sharded_layer(call: Callable[[Tensor], Tensor], x: Tensor, kind: object, index: int = 0) -> Tensor:
            self.gather_group(index)
            out = run(call, self._add_backward_hook(x, None, index), kind)
            if self.job.reshard:
                self.release_group(index)
            return self._add_backward_hook(out, index, None)

        return run_sharded_layer

    def prefetch_last_layer(self) -> None:
        """Prefetch the last layer; the group outside of the layers is still gathered."""
        self.start_gather(max(self.sizes))

    def _add_backward_hook(self, x: Tensor, fetch: int | None, drop: int | None) -> Tensor:
        """Gather or release a layer at this point of the backward."""
        ops = self.ops
        if not ops.any_requires_grad(x):
            return x
        out = ops.detach(x)

        def backward(g: Grads) -> tuple[Tensor | None, ...]:
            if fetch is not None:
                self.gather_group(fetch, backwards=True)
                self.start_gather(fetch - 1) if fetch else None
            if drop is not None:
                self.release_group(drop)
            return (g[0],)

        ops.add_node(out, "shard", (x,), backward)
        return out


def new_ddp_buckets(ops: TorchOps, job: FitJob, trained: list[Tensor]) -> list[Tensor]:
    """Allocate DDP's buckets, which hold every gradient once more; in the first step one bucket."""
    if job.world == 1 or job.zero or job.fsdp or job.tensor_parallel > 1:
        return []
    kind, ops.tape.kind = ops.tape.kind, "communication"
    buckets = [ops.new_scratch(sum(t.numel * t.width for t in trained))]
    ops.tape.kind = kind
    return [one for one in buckets if one.memory is not None]


def rebuild_ddp_buckets(ops: TorchOps, job: FitJob, trained: list[Tensor], buckets: list[Tensor]) -> None:
    """In the second step DDP rebuilds its buckets in the order of the gradients: at least 1 MiB, then 25."""
    if job.world == 1 or job.zero or job.fsdp or job.tensor_parallel > 1:
        return
    buckets.clear()
    kind, ops.tape.kind = ops.tape.kind, "communication"
    size, limit = 0, FIRST_BUCKET
    for tensor in reversed(trained):
        size += tensor.numel * tensor.width
        if size >= limit:
            buckets.append(ops.new_scratch(size))
            size, limit = 0, NEXT_BUCKET
    if size:
        buckets.append(ops.new_scratch(size))
    ops.tape.kind = kind


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
