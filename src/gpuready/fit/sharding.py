"""Several ranks: what one holds under DDP and FSDP2, with the buffers of their collectives.

Not measured on several GPUs; compared with the real code on gloo (benchmarks/fit_sharded.py). Everything is
played on one stream: the pools of the collectives' streams are not separated. ZeRO is in zero.py and
gathers.py.
"""

from __future__ import annotations

from gpuready.fit.tensor import Tensor
from gpuready.fit.zero import GATHERING, REDUCING, Labelled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuready.fit.job import Job
    from gpuready.fit.layers import Model
    from gpuready.fit.ops import Grads, Ops

FIRST_BUCKET, NEXT_BUCKET = 1 << 20, 25 << 20  # sizes in bytes at which a DDP bucket is closed


def splits_weights(job: Job) -> bool:
    """Whether a rank holds only its shard of the weights."""
    return gathers_by_layer(job) or (job.zero == 3 and (job.world > 1 or job.task == "train"))


def gathers_by_layer(job: Job) -> bool:
    """Whether weights are gathered layer by layer, by FSDP2."""
    return job.world > 1 and job.fsdp


class Shards(Labelled):
    """The weights of a model on one rank of FSDP2; full layers exist only while they compute.

    A group of weights, a layer or everything outside of layers (-1), is gathered into one flat buffer and
    copied out. FSDP2 frees that buffer when the next group was copied out (forward) or at once (backward),
    prefetches the previous group in the backward, and keeps the input of a reduction until the next one.
    """

    def __init__(self, ops: Ops, model: Model, job: Job, trained: list[Tensor]) -> None:
        super().__init__(ops)
        self.job = job
        self.flat: dict[int, Tensor] = {}  # gathers in flight
        self.gathered: dict[int, list[Tensor]] = {}
        self.elsewhere = on_the_host(job)
        self.last: Tensor | None = None  # flat buffer that outlives its copy
        self.reduced: Tensor | None = None  # input of the previous reduction
        self.owned: dict[int, Tensor] = {}
        self.layer_of: dict[int, int] = {}
        self.sizes: dict[int, list[int]] = {}
        self.grads: dict[int, list[tuple[Tensor, Tensor]]] = {}
        for index, layer in enumerate(model.layers):
            for tensor in layer.tensors():
                self._count(index, tensor)
        for tensor in model.outer():
            self._count(-1, tensor)
        for tensor in trained:
            self.owned[id(tensor)] = share(ops, tensor, job, 4 if job.fp32_shards else 0)
        self.counts = {n: sum(1 for t in trained if self.layer_of.get(id(t), -1) == n) for n in self.sizes}

    def _count(self, layer: int, tensor: Tensor) -> None:
        if id(tensor) not in self.layer_of:
            self.layer_of[id(tensor)] = layer
            self.sizes.setdefault(layer, []).append(tensor.numel * tensor.width)

    def fetch(self, layer: int) -> None:
        """Start to gather a group into one flat buffer."""
        if layer in self.gathered or layer in self.flat or layer not in self.sizes:
            return
        with self._as("gathered weights", "all-gather", GATHERING):
            world, wider = self.job.world, 2 if self.job.fp32_shards else 1
            come = [
                self.ops.scratch(-(-size * wider // world) if self.elsewhere else 0)
                for size in self.sizes[layer]
            ]
            self.flat[layer] = self.ops.scratch(sum(self.sizes[layer]))
            del come  # shards from the host, copied into the buffer

    def gather(self, layer: int, backwards: bool = False) -> None:
        """Gather a group and copy it out into the weights."""
        self.fetch(layer)
        if layer not in self.flat:
            return
        before, self.last = self.last, None  # a variable of FSDP2 holds it until the copy is made
        with self._as("gathered weights", "all-gather"):
            self.gathered[layer] = [self.ops.scratch(size) for size in self.sizes[layer]]
        del before
        flat = self.flat.pop(layer)
        if not backwards:
            self.last = flat

    def release(self, layer: int) -> None:
        if layer >= 0:
            self.gathered.pop(layer, None)

    def done(self) -> None:
        self.gathered.clear()
        self.flat.clear()
        self.last = self.reduced = None

    def on_leaf(self, parameter: Tensor, grad: Tensor) -> bool:
        """Take a full gradient; the last one of a group triggers the reduction to this rank's shard."""
        layer = self.layer_of.get(id(parameter), -1)
        held = self.grads.setdefault(layer, [])
        held.append((self.owned[id(parameter)], Tensor(grad.memory, grad.shape, grad.width)))
        if len(held) >= self.counts.get(layer, 1):
            self.gathered.pop(layer, None)
            self.reduced = None
            self._reduce(held)
        return True

    def _reduce(self, held: list[tuple[Tensor, Tensor]]) -> None:
        """Reduce through one flat input into one flat shard, of which the gradients are views."""
        ops, width = self.ops, held[0][0].width if self.job.fp32_shards else held[0][1].width
        with self._as("communication", "reduce-scatter"):
            flat = ops.scratch(sum(grad.numel * grad.width for _, grad in held))
        owners = [owned for owned, _ in held]
        held.clear()
        with self._as("gradients", "reduce-scatter", REDUCING):
            shares = ops.scratch(width * sum(owned.numel for owned in owners))
        for owned in owners:
            if owned.grad is None:
                owned.grad = Tensor(None if self.elsewhere else shares.memory, owned.shape, width)
        self.reduced = flat

    def wrap(self, run: Callable[..., Tensor], layers: int) -> Callable[..., Tensor]:
        """Wrap the layer runner: gather a layer's weights before it and release them after it, both ways."""

        def sharded(call: Callable[[Tensor], Tensor], x: Tensor, kind: object, index: int = 0) -> Tensor:
            self.gather(index)
            out = run(call, self._marked(x, None, index), kind)
            if self.job.reshard:
                self.release(index)
            return self._marked(out, index, None)

        return sharded

    def before_backward(self) -> None:
        """Prefetch the last layer; the group outside of the layers is still gathered."""
        self.fetch(max(self.sizes))

    def _marked(self, x: Tensor, fetch: int | None, drop: int | None) -> Tensor:
        """Gather or release a layer at this point of the backward."""
        ops = self.ops
        if not ops.tracked(x):
            return x
        out = ops.detached(x)

        def back(g: Grads) -> tuple[Tensor | None, ...]:
            if fetch is not None:
                self.gather(fetch, backwards=True)
                self.fetch(fetch - 1) if fetch else None
            if drop is not None:
                self.release(drop)
            return (g[0],)

        ops.tie(out, "shard", (x,), back)
        return out


def on_the_host(job: Job) -> bool:
    """Whether FSDP's shards and their gradients are in host memory."""
    return gathers_by_layer(job) and job.offload == "parameters"


def share(ops: Ops, tensor: Tensor, job: Job, width: int = 0) -> Tensor:
    """Allocate this rank's shard of a weight."""
    shape, width = (-(-tensor.numel // job.world),), width or tensor.width
    if on_the_host(job):
        return Tensor(None, shape, width)
    kind, ops.tape.kind = ops.tape.kind, "parameters"
    made = ops.new(shape, width)
    ops.tape.kind = kind
    return made


def buffers(ops: Ops, job: Job, trained: list[Tensor]) -> list[Tensor]:
    """Allocate DDP's buckets, which hold every gradient once more; in the first step one bucket."""
    if job.world == 1 or job.zero or job.fsdp or job.tensor_parallel > 1:
        return []
    kind, ops.tape.kind = ops.tape.kind, "communication"
    held = [ops.scratch(sum(t.numel * t.width for t in trained))]
    ops.tape.kind = kind
    return [one for one in held if one.memory is not None]


def rebuild(ops: Ops, job: Job, trained: list[Tensor], held: list[Tensor]) -> None:
    """In the second step DDP rebuilds its buckets in the order of the gradients: at least 1 MiB, then 25."""
    if job.world == 1 or job.zero or job.fsdp or job.tensor_parallel > 1:
        return
    held.clear()
    kind, ops.tape.kind = ops.tape.kind, "communication"
    size, limit = 0, FIRST_BUCKET
    for tensor in reversed(trained):
        size += tensor.numel * tensor.width
        if size >= limit:
            held.append(ops.scratch(size))
            size, limit = 0, NEXT_BUCKET
    if size:
        held.append(ops.scratch(size))
    ops.tape.kind = kind
