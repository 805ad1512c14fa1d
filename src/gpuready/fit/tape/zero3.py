"""DeepSpeed ZeRO 3 on one rank: a shard of every weight, and full weights only around the modules that use
them.

Follows DeepSpeed 0.19 (runtime/zero/partitioned_param_coordinator.py and stage3.py), compared with it on gloo
(benchmarks/fit_sharded.py). The first pass records the order of the modules; from the second on weights are
prefetched, and those reused soon are not released. All ranks hold the same apart from padding.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence

from gpuready.fit.job.records import AUTO_BUCKET, FitJob
from gpuready.fit.tape.autograd import Tensor
from gpuready.fit.tape.model_parts import ModelParts
from gpuready.fit.tape.optimizers import JobOptimizer
from gpuready.fit.tape.torch_ops import Grads, TorchOps
from gpuready.fit.tape.zero12 import (
    GATHER_STREAM,
    NORM_BYTES,
    REDUCE_STREAM,
    LabelledAllocator,
    model_hidden_size,
    resolve_bucket_size,
)


class GatherHandle:
    """A gather in flight: one flat buffer for several weights, freed when each of them was waited for."""

    def __init__(self, tensors: list[Tensor], flat: Tensor | None) -> None:
        self.tensors = tensors
        self.flat = flat
        self.arrived = False


class Zero3Weights(LabelledAllocator):
    """The weights of a model on one rank of ZeRO 3."""

    def __init__(self, ops: TorchOps, model: ModelParts, job: FitJob, trained: list[Tensor]) -> None:
        super().__init__(ops)
        self.job, self.trained, self.world = job, trained, job.shard_ranks
        every = [t for layer in model.layers for t in layer.list_tensors()]
        self.parameter_numbers = {
            id(t): n for n, t in enumerate(dict.fromkeys([*model.list_outer_tensors(), *every], None))
        }
        self.parameter_numbers |= {id(t): n for n, t in enumerate(trained)}
        self.layer_extras = {
            layer.index: [*(t for pair in layer.adapters.values() for t in pair), *layer.moe.values()]
            for layer in model.layers
        }
        self.width = max((t.width for t in trained), default=2)
        self.offloaded = job.offload in ("optimizer", "parameters")
        self.bucket_size = resolve_bucket_size(job, job.reduce_bucket, 1.0)
        self.prefetch_limit = resolve_bucket_size(job, job.prefetch_bucket, 0.9)
        self.persistence_threshold = 10 * model_hidden_size(job) if job.persistence == AUTO_BUCKET else job.persistence
        self.gathered: dict[int, Tensor] = {}
        self.in_flight: dict[int, GatherHandle] = {}
        self.live_elements = self.step_id = 0
        self.mode = "invalid"
        self.module_order: list[list[Tensor]] = []  # modules of a forward and backward pass
        self.uses: dict[int, list[int]] = {}  # weight -> positions in the order of the modules that use it
        self.elements_before = [0]  # per module of the order: values of all weights before it
        self.queue: deque[tuple[Tensor, int]] = deque()
        self.last_fetched: dict[int, int] = {}
        self.active_modules: list[list[Tensor]] = []
        self.bucket_elements = 0
        self.bucket_gradients: list[tuple[Tensor, Tensor | None]] = []
        self.persistent_buffers = self._allocate_shards()

    # --------------------------------------------------------------------------------------------- build
    def shard_size(self, tensor: Tensor) -> int:
        return -(-tensor.numel // self.world)

    def _allocate_shards(self) -> list[Tensor]:
        """Allocate the shards in one buffer, their fp32 copies, the bucket, and this rank's gradients."""
        ops, job = self.ops, self.job
        whole = sum(self.shard_size(t) for t in self.trained)
        persistent: list[Tensor] = []
        with self._label_allocations("parameters", "partition"):
            if job.offload != "parameters":
                persistent.append(ops.new_scratch(whole * self.width))
        self.masters: list[Tensor] = []
        with self._label_allocations("optimizer", "master weights"):
            for count in self._sub_group_sizes():
                if self.offloaded:
                    self.masters.append(Tensor(None, (count,), 4))
                else:
                    converted = ops.new_scratch(4 * count if self.width == 2 else 0)
                    self.masters.append(Tensor(ops.new_scratch(4 * count).memory, (count,), 4))
                    del converted
            if not self.offloaded:
                first = ops.new_scratch(4 * max(self._sub_group_sizes(), default=0))
                del first
        with self._label_allocations("communication", "bucket"):
            if job.contiguous_gradients:
                persistent.append(ops.new_scratch(self.bucket_size * self.width))
        with self._label_allocations("gradients", "partition"):
            if not self.offloaded:
                persistent.append(ops.new_scratch(whole * self.width))
        return persistent

    def _sub_group_sizes(self) -> list[int]:
        """Return the number of this rank's values in each sub-group."""
        sizes, now = [], 0
        for tensor in self.trained:
            now += self.shard_size(tensor)
            if now >= self.job.sub_group:
                sizes.append(now)
                now = 0
        return [*sizes, now] if now else sizes

    # ------------------------------------------------------------------------------------ fetch and release
    def begin_forward(self) -> None:
        """Begin a forward; a recorded module order becomes the prefetch order."""
        for key in list(self.in_flight):
            self._wait_for_weights(self.in_flight[key].tensors)
        if self.mode == "record":
            self.mode = "complete"
        elif self.mode == "invalid":
            self.mode = "record"
        self.queue = deque(
            (t, at) for at, tensors in enumerate(self.module_order) for t in sorted(tensors, key=self._parameter_order)
        ) if self.mode == "complete" else deque()  # fmt: skip
        self.last_fetched = {}
        self.step_id = self.live_elements = 0
        self.enter_module([])  # the model with its head, and without
        self.enter_module([])

    def _parameter_order(self, tensor: Tensor) -> int:
        return self.parameter_numbers.get(id(tensor), -1)

    def enter_module(self, tensors: Sequence[Tensor]) -> None:
        """Gather the weights of a module that is about to run; skipped while a recomputation is muted."""
        if self.ops.tape.muted:
            return
        if self.mode == "record":
            for tensor in tensors:
                self.uses.setdefault(id(tensor), []).append(len(self.module_order))
            self.module_order.append(list(tensors))
            self.elements_before.append(self.elements_before[-1] + sum(t.numel for t in tensors))
        if tensors:
            self._start_gather([t for t in tensors if not self._is_available(t)])
            self._wait_for_weights(tensors)
        if self.mode == "complete":
            self._drop_from_queue(tensors)
            self._prefetch_weights()
        self.step_id += 1

    def _is_available(self, tensor: Tensor) -> bool:
        return id(tensor) in self.gathered or id(tensor) in self.in_flight

    def _start_gather(self, tensors: list[Tensor]) -> None:
        """Start a gather: a single weight lands in place, several in one flat buffer."""
        if not tensors:
            return
        tensors = sorted(tensors, key=self._parameter_order)
        self.live_elements += sum(t.numel for t in tensors)
        with self._label_allocations("gathered weights", "all-gather", GATHER_STREAM):
            size = sum(self.shard_size(t) * self.world * t.width for t in tensors)
            if self.world == 1:  # already complete
                size = size if self.job.offload == "parameters" else 0
            handle = GatherHandle(tensors, self.ops.new_scratch(size))
        for tensor in tensors:
            self.in_flight[id(tensor)] = handle

    def _wait_for_weights(self, tensors: Sequence[Tensor]) -> None:
        for tensor in tensors:
            handle = self.in_flight.pop(id(tensor), None)
            if handle is None:
                continue
            if not handle.arrived:
                self._unpack_gathered(handle)
            if not any(self.in_flight.get(id(t)) is handle for t in handle.tensors):
                handle.flat = None

    def _unpack_gathered(self, handle: GatherHandle) -> None:
        handle.arrived = True
        if len(handle.tensors) == 1 or self.world == 1:
            assert handle.flat is not None
            for tensor in handle.tensors:
                self.gathered[id(tensor)] = handle.flat
            return
        with self._label_allocations("gathered weights", "all-gather", GATHER_STREAM):
            for tensor in handle.tensors:
                self.gathered[id(tensor)] = self.ops.new_scratch(tensor.numel * tensor.width)

    def find_gathered(self, tensor: Tensor | None) -> Tensor | None:
        """Return the buffer that a weight was gathered into: bitsandbytes' graph keeps it after its release."""
        return self.gathered.get(id(tensor))

    def _drop_from_queue(self, tensors: Sequence[Tensor]) -> None:
        """Remove what runs now from the queue."""
        missing = {id(t) for t in tensors if self.last_fetched.get(id(t), -1) < self.step_id}
        while self.queue and missing:
            tensor, at = self.queue.popleft()
            self.last_fetched[id(tensor)] = at
            missing.discard(id(tensor))

    def _prefetch_weights(self) -> None:
        limit = min(self.job.live_parameters - self.live_elements, self.prefetch_limit)
        wanted: dict[int, Tensor] = {}
        count = 0
        while self.queue and count < limit:
            tensor, at = self.queue.popleft()
            self.last_fetched[id(tensor)] = max(self.last_fetched.get(id(tensor), -1), at)
            if not self._is_available(tensor) and id(tensor) not in wanted:
                wanted[id(tensor)] = tensor
                count += tensor.numel
        self._start_gather(list(wanted.values()))

    def leave_module(self, tensors: Sequence[Tensor]) -> None:
        """Release the weights of a module that has run, unless they are persistent or reused soon."""
        if self.ops.tape.muted:
            return
        going = {id(t): t for t in tensors}
        if self.mode == "complete":
            going = {
                k: t for k, t in going.items()
                if t.numel > self.persistence_threshold and self.last_fetched.get(k, -1) <= self.step_id and not self._is_reused_soon(k)
            }  # fmt: skip
        for key, tensor in going.items():
            self._release_weight(key, tensor)

    def _is_reused_soon(self, key: int) -> bool:
        """Whether a weight is reused within the reuse distance."""
        uses = self.uses.get(key, [])
        at = bisect_left(uses, self.step_id)
        return (
            at < len(uses)
            and self.elements_before[uses[at]] - self.elements_before[self.step_id] < self.job.reuse_distance
        )

    def _release_weight(self, key: int, tensor: Tensor) -> None:
        if key in self.gathered:
            del self.gathered[key]
            self.live_elements -= tensor.numel

    def run_module(self, tensors: Sequence[Tensor], call: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Run a module with its weights gathered, forward and backward."""
        self.enter_module(tensors)
        out = call(self.add_backward_hook(x, lambda: self._after_backward(tensors)))
        self.leave_module(tensors)
        return self.add_backward_hook(out, lambda: self._before_backward(tensors))

    def run_attention_module(
        self, call: Callable[[Tensor], tuple[Tensor, Tensor | None]], x: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Run a module with two results and no own weights."""
        self.enter_module([])
        out, attention_weights = call(x)
        return self.mark_module_end(out), attention_weights

    def mark_module_end(self, out: Tensor) -> Tensor:
        """Mark the end of a module without own weights."""
        return self.add_backward_hook(out, lambda: self.enter_module([]))

    def run_table_module(self, tensors: Sequence[Tensor], call: Callable[[], Tensor]) -> Tensor:
        """Run a module whose input has no gradient."""
        self.enter_module(tensors)
        out = call()
        self.leave_module(tensors)
        return self.add_backward_hook(out, lambda: self._before_backward(tensors))

    def _before_backward(self, tensors: Sequence[Tensor]) -> None:
        self.active_modules.append(list(tensors))
        self.enter_module(tensors)

    def _after_backward(self, tensors: Sequence[Tensor]) -> None:
        self.active_modules = [one for one in self.active_modules if one != list(tensors)]
        self.leave_module(tensors)

    def add_backward_hook(self, x: Tensor, hook: Callable[[], None]) -> Tensor:
        """Call a hook at this point of the backward."""
        ops = self.ops
        if not ops.any_requires_grad(x):
            return x
        out = ops.detach(x)

        def backward(g: Grads) -> tuple[Tensor | None, ...]:
            hook()
            return (g[0],)

        ops.add_node(out, "shard", (x,), backward)
        assert out.fn is not None
        out.fn.saver = True  # it belongs to this layer: the recomputation precedes it
        return out

    def wrap_layer_runner(self, run: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """Wrap the layer runner: a layer is a module too, with the weights that its submodules do not hold."""

        def run_sharded_layer(call: Callable[[Tensor], Tensor], x: Tensor, kind: object, index: int = 0) -> Tensor:
            inside = self.layer_extras.get(index, [])
            return run(lambda y: self.run_module(inside, call, y), x, kind)

        return run_sharded_layer

    # ------------------------------------------------------------------------------------------ gradients
    def on_leaf_gradient(self, parameter: Tensor, grad: Tensor) -> bool:
        count = parameter.numel
        if self.bucket_elements and self.bucket_elements + count > self.bucket_size:
            self._reduce_gradients()
        inside = self.job.contiguous_gradients and count <= self.bucket_size
        self.bucket_gradients.append((parameter, None if inside else Tensor(grad.memory, grad.shape, grad.width)))
        self.bucket_elements += count
        return True

    def _reduce_gradients(self) -> None:
        """Reduce-scatter the bucket; a single weight that divides evenly needs no copy."""
        sizes = [self.shard_size(p) * self.world for p, _ in self.bucket_gradients]
        with self._label_allocations("communication", "reduce-scatter", REDUCE_STREAM):
            alone = len(sizes) == 1 and sizes[0] == self.bucket_gradients[0][0].numel
            flat = self.ops.new_scratch(0 if alone else sum(sizes) * self.width)
            if self.offloaded:
                for parameter, _ in self.bucket_gradients:
                    near = self.ops.new_scratch(self.shard_size(parameter) * self.width)
                    wide = self.ops.new_scratch(NORM_BYTES * self.shard_size(parameter))
                    del wide
                    wide = self.ops.new_scratch(4 * self.shard_size(parameter) if self.width == 2 else 0)
                    del near, wide
        del flat
        self.bucket_gradients.clear()
        self.bucket_elements = 0

    def finish_backward(self, boundary: bool) -> None:
        if self.bucket_gradients:
            self._reduce_gradients()
        while self.active_modules:
            for tensor in self.active_modules.pop():
                if tensor.numel > self.persistence_threshold:
                    self._release_weight(id(tensor), tensor)

    def step_optimizers(self, optimizers: list[JobOptimizer]) -> None:
        """Release all weights, take the norm, step each sub-group; finally gather the persistent weights."""
        ops = self.ops
        for tensor in [t for module in self.module_order for t in module]:
            self._release_weight(id(tensor), tensor)
        if not self.offloaded:
            with self._label_allocations("optimizer", "norm"):
                for tensor in self.trained:
                    wide = ops.new_scratch(NORM_BYTES * self.shard_size(tensor))
                    del wide
            for optimizer, master in zip(optimizers, self.masters, strict=True):
                with self._label_allocations("optimizer", "flatten gradients"):
                    flat: Tensor | None = ops.new_scratch(master.numel * self.width)
                    master.grad = flat if self.width == 4 else ops.new_scratch(4 * master.numel)
                    flat = None
                optimizer.step()
                master.grad = None
        with self._label_allocations("gathered weights", "all-gather"):
            small = {id(t): t for module in self.module_order for t in module if t.numel <= self.persistence_threshold}
            for key, tensor in small.items():
                size = 0 if self.world == 1 else self.shard_size(tensor) * self.world * tensor.width
                self.gathered[key] = ops.new_scratch(size)
