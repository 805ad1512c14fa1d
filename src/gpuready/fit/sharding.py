"""Several ranks: what one of them holds under DDP and FSDP2, with the buffers of their collectives.

Nothing here was measured on several GPUs: it was held against the real code on gloo (benchmarks/fit_sharded.py). All of it is
played on one stream: the pools of the streams that collectives run on are not kept apart. ZeRO is in zero.py and gathers.py.
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

FIRST_BUCKET, NEXT_BUCKET = 1 << 20, 25 << 20  # bytes that close a bucket of DDP


def splits_weights(job: Job) -> bool:
    """Whether a rank holds only its share of the weights."""
    return gathers_by_layer(job) or (job.zero == 3 and (job.world > 1 or job.task == "train"))


def gathers_by_layer(job: Job) -> bool:
    """Whether they are FSDP2's, which gathers layer by layer."""
    return job.world > 1 and job.fsdp


class Shards(Labelled):
    """The weights of a model as one rank owns them; whole layers exist only while they compute.

    A group of weights, a layer or all that lies outside of layers (-1), is gathered into one flat buffer and copied out.
    FSDP2 lets go of that buffer when the next group was copied out (forwards) or at once (backwards), fetches the group
    before it ahead on the way back, and keeps the input of a reduction until the next one.
    """

    def __init__(self, ops: Ops, model: Model, job: Job, trained: list[Tensor]) -> None:
        super().__init__(ops)
        self.job = job
        self.flat: dict[int, Tensor] = {}  # on their way
        self.gathered: dict[int, list[Tensor]] = {}
        self.elsewhere = on_the_host(job)
        self.last: Tensor | None = None  # the flat buffer that outlives its copy
        self.reduced: Tensor | None = None  # the input of the reduction before
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
        """Begin to gather a group: one flat buffer from all ranks."""
        if layer in self.gathered or layer in self.flat or layer not in self.sizes:
            return
        with self._as("gathered weights", "all-gather", GATHERING):
            world, wider = self.job.world, 2 if self.job.fp32_shards else 1
            come = [
                self.ops.scratch(-(-size * wider // world) if self.elsewhere else 0)
                for size in self.sizes[layer]
            ]
            self.flat[layer] = self.ops.scratch(sum(self.sizes[layer]))
            del come  # the shares from the host, which are copied into the buffer

    def gather(self, layer: int, backwards: bool = False) -> None:
        """Have a group: what was fetched is copied out into the weights."""
        self.fetch(layer)
        if layer not in self.flat:
            return
        before, self.last = self.last, None  # which a name of FSDP2's holds until the copy is made
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
        """A backward is over."""
        self.gathered.clear()
        self.flat.clear()
        self.last = self.reduced = None

    def on_leaf(self, parameter: Tensor, grad: Tensor) -> bool:
        """A whole gradient arrived; with the last of its group they are reduced to this rank's share."""
        layer = self.layer_of.get(id(parameter), -1)
        held = self.grads.setdefault(layer, [])
        held.append((self.owned[id(parameter)], Tensor(grad.memory, grad.shape, grad.width)))
        if len(held) >= self.counts.get(layer, 1):
            self.gathered.pop(layer, None)
            self.reduced = None
            self._reduce(held)
        return True

    def _reduce(self, held: list[tuple[Tensor, Tensor]]) -> None:
        """One flat input, and one flat share that the gradients are views of."""
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
        """A layer's weights come before its pass and go after it, both ways."""

        def sharded(call: Callable[[Tensor], Tensor], x: Tensor, kind: object, index: int = 0) -> Tensor:
            self.gather(index)
            out = run(call, self._marked(x, None, index), kind)
            if self.job.reshard:
                self.release(index)
            return self._marked(out, index, None)

        return sharded

    def before_backward(self) -> None:
        """The group outside of the layers is still whole; the last layer is fetched ahead."""
        self.fetch(max(self.sizes))

    def _marked(self, x: Tensor, fetch: int | None, drop: int | None) -> Tensor:
        """A point on the way back where a layer is fetched, or let go."""
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
    """Whether the shares of FSDP wait in the host's memory, and their gradients go there."""
    return gathers_by_layer(job) and job.offload == "parameters"


def share(ops: Ops, tensor: Tensor, job: Job, width: int = 0) -> Tensor:
    """This rank's part of a weight."""
    shape, width = (-(-tensor.numel // job.world),), width or tensor.width
    if on_the_host(job):
        return Tensor(None, shape, width)
    kind, ops.tape.kind = ops.tape.kind, "parameters"
    made = ops.new(shape, width)
    ops.tape.kind = kind
    return made


def buffers(ops: Ops, job: Job, trained: list[Tensor]) -> list[Tensor]:
    """DDP holds every gradient once more through the whole run, for the first step in one bucket."""
    if job.world == 1 or job.zero or job.fsdp or job.tensor_parallel > 1:
        return []
    kind, ops.tape.kind = ops.tape.kind, "communication"
    held = [ops.scratch(sum(t.numel * t.width for t in trained))]
    ops.tape.kind = kind
    return [one for one in held if one.memory is not None]


def rebuild(ops: Ops, job: Job, trained: list[Tensor], held: list[Tensor]) -> None:
    """With the second step DDP makes its buckets anew, in the order in which gradients came: 1 MiB at least, then 25."""
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
