"""DeepSpeed ZeRO 3 on one rank: a shard of every weight, and full weights only around the modules that use
them.

Follows DeepSpeed 0.19 (runtime/zero/partitioned_param_coordinator.py and stage3.py), compared with it on gloo
(benchmarks/fit_sharded.py). The first pass records the order of the modules; from the second on weights are
prefetched, and those reused soon are not released. All ranks hold the same apart from padding.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque

from gpuready.fit.job import AUTO
from gpuready.fit.tensor import Tensor
from gpuready.fit.zero import GATHERING, NORM, REDUCING, Labelled, bucket_of, hidden_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuready.fit.job import Job
    from gpuready.fit.layers import Model
    from gpuready.fit.ops import Grads, Ops
    from gpuready.fit.optimizers import Optimizer


class Handle:
    """A gather in flight: one flat buffer for several weights, freed when each of them was waited for."""

    def __init__(self, tensors: list[Tensor], flat: Tensor | None) -> None:
        self.tensors = tensors
        self.flat = flat
        self.arrived = False


class Gathers(Labelled):
    """The weights of a model on one rank of ZeRO 3."""

    def __init__(self, ops: Ops, model: Model, job: Job, trained: list[Tensor]) -> None:
        super().__init__(ops)
        self.job, self.trained, self.world = job, trained, job.world
        every = [t for layer in model.layers for t in layer.tensors()]
        self.number = {id(t): n for n, t in enumerate(dict.fromkeys([*model.outer(), *every], None))}
        self.number |= {id(t): n for n, t in enumerate(trained)}
        self.within = {
            layer.index: [*(t for pair in layer.adapters.values() for t in pair), *layer.moe.values()]
            for layer in model.layers
        }
        self.width = max((t.width for t in trained), default=2)
        self.offloaded = job.offload in ("optimizer", "parameters")
        self.most = bucket_of(job, job.reduce_bucket, 1.0)
        self.ahead = bucket_of(job, job.prefetch_bucket, 0.9)
        self.small = 10 * hidden_of(job) if job.persistence == AUTO else job.persistence
        self.gathered: dict[int, Tensor] = {}
        self.flying: dict[int, Handle] = {}
        self.available = self.step_id = 0
        self.mode = "invalid"
        self.order: list[list[Tensor]] = []  # modules of a forward and backward pass
        self.uses: dict[
            int, list[int]
        ] = {}  # weight -> positions in the order of the modules that use it
        self.sums = [0]  # per module of the order: values of all weights before it
        self.queue: deque[tuple[Tensor, int]] = deque()
        self.latest: dict[int, int] = {}
        self.active: list[list[Tensor]] = []
        self.elements = 0
        self.waiting: list[tuple[Tensor, Tensor | None]] = []
        self.kept = self._build()

    # --------------------------------------------------------------------------------------------- build
    def share(self, tensor: Tensor) -> int:
        return -(-tensor.numel // self.world)

    def _build(self) -> list[Tensor]:
        """Allocate the shards in one buffer, their fp32 copies, the bucket, and this rank's gradients."""
        ops, job = self.ops, self.job
        whole = sum(self.share(t) for t in self.trained)
        kept: list[Tensor] = []
        with self._as("parameters", "partition"):
            if job.offload != "parameters":
                kept.append(ops.scratch(whole * self.width))
        self.masters: list[Tensor] = []
        with self._as("optimizer", "master weights"):
            for count in self._groups():
                if self.offloaded:
                    self.masters.append(Tensor(None, (count,), 4))
                else:
                    converted = ops.scratch(4 * count if self.width == 2 else 0)
                    self.masters.append(Tensor(ops.scratch(4 * count).memory, (count,), 4))
                    del converted
            if not self.offloaded:
                first = ops.scratch(4 * max(self._groups(), default=0))
                del first
        with self._as("communication", "bucket"):
            if job.contiguous_gradients:
                kept.append(ops.scratch(self.most * self.width))
        with self._as("gradients", "partition"):
            if not self.offloaded:
                kept.append(ops.scratch(whole * self.width))
        return kept

    def _groups(self) -> list[int]:
        """Return the number of this rank's values in each sub-group."""
        made, now = [], 0
        for tensor in self.trained:
            now += self.share(tensor)
            if now >= self.job.sub_group:
                made.append(now)
                now = 0
        return [*made, now] if now else made

    # ------------------------------------------------------------------------------------ fetch and release
    def begin(self) -> None:
        """Begin a forward; a recorded module order becomes the prefetch order."""
        for key in list(self.flying):
            self._wait(self.flying[key].tensors)
        if self.mode == "record":
            self.mode = "complete"
        elif self.mode == "invalid":
            self.mode = "record"
        self.queue = deque(
            (t, at) for at, tensors in enumerate(self.order) for t in sorted(tensors, key=self._number)
        ) if self.mode == "complete" else deque()  # fmt: skip
        self.latest = {}
        self.step_id = self.available = 0
        self.visit([])  # the model with its head, and without
        self.visit([])

    def _number(self, tensor: Tensor) -> int:
        return self.number.get(id(tensor), -1)

    def visit(self, tensors: Sequence[Tensor]) -> None:
        """Gather the weights of a module that is about to run; skipped while a recomputation is muted."""
        if self.ops.tape.muted:
            return
        if self.mode == "record":
            for tensor in tensors:
                self.uses.setdefault(id(tensor), []).append(len(self.order))
            self.order.append(list(tensors))
            self.sums.append(self.sums[-1] + sum(t.numel for t in tensors))
        if tensors:
            self._gather([t for t in tensors if not self._here(t)])
            self._wait(tensors)
        if self.mode == "complete":
            self._discard(tensors)
            self._prefetch()
        self.step_id += 1

    def _here(self, tensor: Tensor) -> bool:
        return id(tensor) in self.gathered or id(tensor) in self.flying

    def _gather(self, tensors: list[Tensor]) -> None:
        """Start a gather: a single weight lands in place, several in one flat buffer."""
        if not tensors:
            return
        tensors = sorted(tensors, key=self._number)
        self.available += sum(t.numel for t in tensors)
        with self._as("gathered weights", "all-gather", GATHERING):
            size = sum(self.share(t) * self.world * t.width for t in tensors)
            if self.world == 1:  # already complete
                size = size if self.job.offload == "parameters" else 0
            handle = Handle(tensors, self.ops.scratch(size))
        for tensor in tensors:
            self.flying[id(tensor)] = handle

    def _wait(self, tensors: Sequence[Tensor]) -> None:
        for tensor in tensors:
            handle = self.flying.pop(id(tensor), None)
            if handle is None:
                continue
            if not handle.arrived:
                self._arrive(handle)
            if not any(self.flying.get(id(t)) is handle for t in handle.tensors):
                handle.flat = None

    def _arrive(self, handle: Handle) -> None:
        handle.arrived = True
        if len(handle.tensors) == 1 or self.world == 1:
            assert handle.flat is not None
            for tensor in handle.tensors:
                self.gathered[id(tensor)] = handle.flat
            return
        with self._as("gathered weights", "all-gather", GATHERING):
            for tensor in handle.tensors:
                self.gathered[id(tensor)] = self.ops.scratch(tensor.numel * tensor.width)

    def _discard(self, tensors: Sequence[Tensor]) -> None:
        """Remove what runs now from the queue."""
        missing = {id(t) for t in tensors if self.latest.get(id(t), -1) < self.step_id}
        while self.queue and missing:
            tensor, at = self.queue.popleft()
            self.latest[id(tensor)] = at
            missing.discard(id(tensor))

    def _prefetch(self) -> None:
        limit = min(self.job.live_parameters - self.available, self.ahead)
        wanted: dict[int, Tensor] = {}
        count = 0
        while self.queue and count < limit:
            tensor, at = self.queue.popleft()
            self.latest[id(tensor)] = max(self.latest.get(id(tensor), -1), at)
            if not self._here(tensor) and id(tensor) not in wanted:
                wanted[id(tensor)] = tensor
                count += tensor.numel
        self._gather(list(wanted.values()))

    def leave(self, tensors: Sequence[Tensor]) -> None:
        """Release the weights of a module that has run, unless they are persistent or reused soon."""
        if self.ops.tape.muted:
            return
        going = {id(t): t for t in tensors}
        if self.mode == "complete":
            going = {
                k: t for k, t in going.items()
                if t.numel > self.small and self.latest.get(k, -1) <= self.step_id and not self._soon(k)
            }  # fmt: skip
        for key, tensor in going.items():
            self._release(key, tensor)

    def _soon(self, key: int) -> bool:
        """Whether a weight is reused within the reuse distance."""
        uses = self.uses.get(key, [])
        at = bisect_left(uses, self.step_id)
        return at < len(uses) and self.sums[uses[at]] - self.sums[self.step_id] < self.job.reuse_distance

    def _release(self, key: int, tensor: Tensor) -> None:
        if key in self.gathered:
            del self.gathered[key]
            self.available -= tensor.numel

    def around(self, tensors: Sequence[Tensor], call: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Run a module with its weights gathered, forward and backward."""
        self.visit(tensors)
        out = call(self.marked(x, lambda: self._after(tensors)))
        self.leave(tensors)
        return self.marked(out, lambda: self._before(tensors))

    def attending(
        self, call: Callable[[Tensor], tuple[Tensor, Tensor | None]], x: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Run a module with two results and no own weights."""
        self.visit([])
        out, beside = call(x)
        return self.passed(out), beside

    def passed(self, out: Tensor) -> Tensor:
        """Mark the end of a module without own weights."""
        return self.marked(out, lambda: self.visit([]))

    def table(self, tensors: Sequence[Tensor], call: Callable[[], Tensor]) -> Tensor:
        """Run a module whose input has no gradient."""
        self.visit(tensors)
        out = call()
        self.leave(tensors)
        return self.marked(out, lambda: self._before(tensors))

    def _before(self, tensors: Sequence[Tensor]) -> None:
        self.active.append(list(tensors))
        self.visit(tensors)

    def _after(self, tensors: Sequence[Tensor]) -> None:
        self.active = [one for one in self.active if one != list(tensors)]
        self.leave(tensors)

    def marked(self, x: Tensor, act: Callable[[], None]) -> Tensor:
        """Call a hook at this point of the backward."""
        ops = self.ops
        if not ops.tracked(x):
            return x
        out = ops.detached(x)

        def back(g: Grads) -> tuple[Tensor | None, ...]:
            act()
            return (g[0],)

        ops.tie(out, "shard", (x,), back)
        assert out.fn is not None
        out.fn.saver = True  # it belongs to this layer: the recomputation precedes it
        return out

    def wrap(self, run: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """Wrap the layer runner: a layer is a module too, with the weights that its submodules do not hold."""

        def sharded(call: Callable[[Tensor], Tensor], x: Tensor, kind: object, index: int = 0) -> Tensor:
            inside = self.within.get(index, [])
            return run(lambda y: self.around(inside, call, y), x, kind)

        return sharded

    # ------------------------------------------------------------------------------------------ gradients
    def on_leaf(self, parameter: Tensor, grad: Tensor) -> bool:
        count = parameter.numel
        if self.elements and self.elements + count > self.most:
            self._reduce()
        inside = self.job.contiguous_gradients and count <= self.most
        self.waiting.append((parameter, None if inside else Tensor(grad.memory, grad.shape, grad.width)))
        self.elements += count
        return True

    def _reduce(self) -> None:
        """Reduce-scatter the bucket; a single weight that divides evenly needs no copy."""
        sizes = [self.share(p) * self.world for p, _ in self.waiting]
        with self._as("communication", "reduce-scatter", REDUCING):
            alone = len(sizes) == 1 and sizes[0] == self.waiting[0][0].numel
            flat = self.ops.scratch(0 if alone else sum(sizes) * self.width)
            if self.offloaded:
                for parameter, _ in self.waiting:
                    near = self.ops.scratch(self.share(parameter) * self.width)
                    wide = self.ops.scratch(NORM * self.share(parameter))
                    del wide
                    wide = self.ops.scratch(4 * self.share(parameter) if self.width == 2 else 0)
                    del near, wide
        del flat
        self.waiting.clear()
        self.elements = 0

    def done(self, boundary: bool) -> None:
        if self.waiting:
            self._reduce()
        while self.active:
            for tensor in self.active.pop():
                if tensor.numel > self.small:
                    self._release(id(tensor), tensor)

    def step(self, optimizers: list[Optimizer]) -> None:
        """Release all weights, take the norm, step each sub-group; finally gather the persistent weights."""
        ops = self.ops
        for tensor in [t for module in self.order for t in module]:
            self._release(id(tensor), tensor)
        if not self.offloaded:
            with self._as("optimizer", "norm"):
                for tensor in self.trained:
                    wide = ops.scratch(NORM * self.share(tensor))
                    del wide
            for optimizer, master in zip(optimizers, self.masters, strict=True):
                with self._as("optimizer", "flatten gradients"):
                    flat: Tensor | None = ops.scratch(master.numel * self.width)
                    master.grad = flat if self.width == 4 else ops.scratch(4 * master.numel)
                    flat = None
                optimizer.step()
                master.grad = None
        with self._as("gathered weights", "all-gather"):
            small = {id(t): t for module in self.order for t in module if t.numel <= self.small}
            for key, tensor in small.items():
                size = 0 if self.world == 1 else self.share(tensor) * self.world * tensor.width
                self.gathered[key] = ops.scratch(size)
