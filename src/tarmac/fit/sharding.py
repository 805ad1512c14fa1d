"""Several ranks: what one of them holds under DDP, ZeRO 1 to 3 and FSDP2, with the buffers of their collectives.

Nothing here was measured on several GPUs: sizes follow from the sources of torch 2.x and DeepSpeed 0.1x at their
default settings.
"""

from __future__ import annotations

from tarmac.fit.tensor import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from tarmac.fit.job import Job
    from tarmac.fit.layers import Model
    from tarmac.fit.ops import Grads, Ops

BUCKET = 500_000_000  # values in DeepSpeed's reduce and gather buckets
LIVE = 1_000_000_000  # values that ZeRO 3 keeps gathered where they are needed again soon


def splits_weights(job: Job) -> bool:
    """Whether a rank holds only its share of the weights."""
    return job.world > 1 and (job.fsdp or job.zero == 3)


def splits_state(job: Job) -> bool:
    """Whether a rank holds only its share of the optimizer's state."""
    return job.world > 1 and (job.fsdp or job.zero >= 1)


class Shards:
    """The weights of a model as one rank owns them; whole layers exist only while they compute."""

    def __init__(self, ops: Ops, model: Model, job: Job, trained: list[Tensor]) -> None:
        self.ops, self.job = ops, job
        self.gathered: dict[int, Tensor] = {}
        self.owned: dict[int, Tensor] = {}
        self.layer_of: dict[int, int] = {}
        self.sizes: dict[int, int] = {}
        self.waiting: dict[int, int] = {}
        self.grads: dict[int, list[Tensor]] = {}
        for index, layer in enumerate(model.layers):
            for tensor in layer.tensors():
                self._count(index, tensor)
        for tensor in model.outer():
            self._count(-1, tensor)
        for tensor in trained:
            self.owned[id(tensor)] = share(ops, tensor, job.world)
        self.counts = {n: sum(1 for t in trained if self.layer_of.get(id(t), -1) == n) for n in self.sizes}

    def _count(self, layer: int, tensor: Tensor) -> None:
        if id(tensor) not in self.layer_of:
            self.layer_of[id(tensor)] = layer
            self.sizes[layer] = self.sizes.get(layer, 0) + tensor.numel * tensor.width

    def gather(self, layer: int) -> None:
        """Fetch a layer: one flat buffer from all ranks, copied out into the weights."""
        if layer in self.gathered or layer not in self.sizes:
            return
        ops = self.ops
        kind, ops.tape.kind = ops.tape.kind, "gathered weights"
        op, ops.tape.op = ops.tape.op, "all-gather"
        flat = ops.scratch(self.sizes[layer])
        self.gathered[layer] = ops.scratch(self.sizes[layer])
        del flat
        ops.tape.kind, ops.tape.op = kind, op

    def release(self, layer: int) -> None:
        if layer >= 0:
            self.gathered.pop(layer, None)

    def on_leaf(self, parameter: Tensor, grad: Tensor) -> bool:
        """A whole gradient arrived; with the last of its layer they are reduced to this rank's share."""
        layer = self.layer_of.get(id(parameter), -1)
        held = self.grads.setdefault(layer, [])
        held.append(Tensor(grad.memory, grad.shape, grad.width))
        owned = self.owned[id(parameter)]
        if owned.grad is None:
            kind, self.ops.tape.kind = self.ops.tape.kind, "gradients"
            owned.grad = self.ops.new(owned.shape, owned.width)
            self.ops.tape.kind = kind
        if len(held) >= self.counts.get(layer, 1):
            self.gathered.pop(layer, None)
            self.ops.tape.op = "reduce-scatter"
            flat = self.ops.scratch(sum(g.numel * g.width for g in held))
            held.clear()
            del flat
        return True

    def wrap(self, run: Callable[..., Tensor], layers: int) -> Callable[..., Tensor]:
        """A layer's weights come before its pass and go after it, both ways, the next one fetched ahead."""

        def sharded(call: Callable[[Tensor], Tensor], x: Tensor, kind: object, index: int = 0) -> Tensor:
            self.gather(index)
            self.gather(index + 1)
            out = run(call, self._marked(x, None, index), kind)
            self.release(index)
            return self._marked(out, index, None)

        return sharded

    def _marked(self, x: Tensor, fetch: int | None, drop: int | None) -> Tensor:
        """A point on the way back where a layer is fetched, or let go."""
        ops = self.ops
        if not ops.tracked(x):
            return x
        out = ops.detached(x)

        def back(g: Grads) -> tuple[Tensor | None, ...]:
            if fetch is not None:
                self.gather(fetch)
                self.gather(fetch - 1) if fetch else None
            if drop is not None:
                self.release(drop)
            return (g[0],)

        ops.tie(out, "shard", (x,), back)
        return out


def reduce_away(ops: Ops, job: Job) -> Callable[[Tensor, Tensor], bool] | None:
    """ZeRO 2 keeps of every gradient the rank's share; with the optimizer on the host, not even that."""
    if job.zero != 2:
        return None

    def on_leaf(parameter: Tensor, grad: Tensor) -> bool:
        if not job.offload and parameter.grad is None:
            kind, ops.tape.kind = ops.tape.kind, "gradients"
            parameter.grad = ops.new((-(-parameter.numel // job.world),), parameter.width)
            ops.tape.kind = kind
        return True

    return on_leaf


def share(ops: Ops, tensor: Tensor, world: int) -> Tensor:
    """This rank's part of a weight."""
    kind, ops.tape.kind = ops.tape.kind, "parameters"
    made = ops.new((-(-tensor.numel // world),), tensor.width)
    ops.tape.kind = kind
    return made


def buffers(ops: Ops, job: Job, trained: list[Tensor]) -> list[Tensor]:
    """What the framework keeps for its collectives through the whole run."""
    if job.world == 1:
        return []
    kind, ops.tape.kind = ops.tape.kind, "communication"
    whole = sum(t.numel * t.width for t in trained)
    width = max((t.width for t in trained), default=2)
    if job.zero in (1, 2):
        bucket = min(BUCKET * width, whole)
        held = [ops.scratch(bucket), ops.scratch(bucket)]
    elif job.zero == 3:
        held = [ops.scratch(min(LIVE * width, whole))]
    elif not job.fsdp and job.tensor_parallel == 1:
        held = [
            ops.scratch(t.numel * t.width) for t in trained
        ]  # DDP's buckets hold every gradient once more
    else:
        held = []
    ops.tape.kind = kind
    return [one for one in held if one.memory is not None]


def master(ops: Ops, job: Job, trained: list[Tensor]) -> list[Tensor]:
    """DeepSpeed keeps fp32 weights beside 16-bit ones, each rank its share."""
    if not job.zero or job.offload or job.precision not in ("bf16", "fp16"):
        return []
    kind, ops.tape.kind = ops.tape.kind, "optimizer"
    count = sum(t.numel for t in trained)
    made = [ops.scratch(4 * -(-count // job.world))]
    ops.tape.kind = kind
    return made
