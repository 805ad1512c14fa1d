"""DeepSpeed ZeRO 1 and 2 on one rank: one flat copy of the weights, a shard of the state, gradients in buckets.

Follows DeepSpeed 0.19 (runtime/zero/stage_1_and_2.py), compared with it on gloo (benchmarks/fit_sharded.py).
The ranks differ a little: ZeRO 1 collects its gradients from the first weight on, ZeRO 2 from the last, so the
first or the last rank holds the most, and that one is played.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from gpuready.fit.job.records import AUTO_BUCKET, FitJob, GpuCard
from gpuready.fit.tape.autograd import Tensor
from gpuready.fit.tape.optimizers import JobOptimizer
from gpuready.fit.tape.torch_ops import TorchOps

NORM_BYTES = 8  # bytes per value while the gradient norm is computed
SHARE_ALIGNMENT = 2  # every rank's shard is a multiple of so many values


def resolve_bucket_size(job: FitJob, size: int, per_square: float) -> int:
    """Return a bucket's size in values; ``AUTO_BUCKET`` derives it from the hidden size, as transformers and
    accelerate do.
    """
    if size != AUTO_BUCKET:
        return size
    return max(1, int(per_square * model_hidden_size(job) ** 2))


def model_hidden_size(job: FitJob) -> int:
    return int(job.model.get("hidden_size") or job.model.get("n_embd") or 0)


GATHER_STREAM, REDUCE_STREAM = 1, 2  # streams beside the computation's


class LabelledAllocator:
    """Base of classes that allocate under their own kind and operation, and perhaps on their own stream."""

    def __init__(self, ops: TorchOps) -> None:
        self.ops = ops

    @contextmanager
    def _label_allocations(self, kind: str, op: str, stream: int = 0) -> Iterator[None]:
        tape = self.ops.tape
        before, tape.kind, tape.op = (tape.kind, tape.op), kind, op
        usual = tape.switch_stream(stream)
        yield
        tape.switch_stream(usual)
        tape.kind, tape.op = before


class ZeroPartitions(LabelledAllocator):
    """The weights in one flat buffer, of which this rank steps its shard."""

    def __init__(
        self, ops: TorchOps, job: FitJob, card: GpuCard, trained: list[Tensor], rank: int | None = None
    ) -> None:
        super().__init__(ops)
        self.job = job
        self.rank = (0 if job.zero == 1 else job.shard_ranks - 1) if rank is None else rank
        self.offloaded = job.offload in ("optimizer", "parameters")
        self.trained = trained
        self.width = trained[0].width if trained else 2
        self.bucket_size = resolve_bucket_size(job, job.reduce_bucket, 1.0)
        self.shard_size = self._align_count(sum(t.numel for t in trained)) // job.shard_ranks
        self.bounds = self._flat_bounds()
        self.bucket: list[Tensor] = []
        self.bucket_elements = 0
        # Parameters in the bucket, and a gradient too large for it.
        self.bucket_gradients: list[tuple[Tensor, Tensor | None]] = []
        self.own_gradients: Tensor | None = None  # this rank's gradients of this backward
        self.accumulated_gradients: Tensor | None = None  # and of earlier backwards
        self.separate_gradients: list[Tensor | None] = []  # the same if not collected in one buffer
        self.persistent_buffers = self._flatten_weights(card)
        self.masters = [self.master]

    def _align_count(self, count: int) -> int:
        step = SHARE_ALIGNMENT * self.job.shard_ranks
        return -(-count // step) * step

    def _flat_bounds(self) -> dict[int, tuple[int, int]]:
        """Return where every weight begins and ends in the flat buffer."""
        bounds, at = {}, 0
        for tensor in self.trained:
            bounds[id(tensor)] = at, at + tensor.numel
            at += tensor.numel
        return bounds

    def _flatten_weights(self, card: GpuCard) -> list[Tensor]:
        """Flatten the weights: beside the old ones if there is room, else through the host."""
        ops, size = self.ops, self.shard_size * self.job.shard_ranks * self.width
        with self._label_allocations("parameters", "flatten"):
            together = 2 * size <= card.memory - card.in_use
            if not together:
                for tensor in self.trained:
                    tensor.memory = None
            flat = ops.new_scratch(size)
            for tensor in self.trained:
                tensor.memory = flat.memory
        with self._label_allocations("optimizer", "master weights"):
            clone = ops.new_scratch(self.shard_size * self.width)
            if self.offloaded:
                del clone
                self.master = Tensor(None, (self.shard_size,), 4)
                with self._label_allocations("communication", "offload"):
                    largest = max((t.numel for t in self.trained), default=0)
                    return [flat, ops.new_scratch(largest * self.width)]
            made = clone if self.width == 4 else ops.new_scratch(4 * self.shard_size)
            self.master = Tensor(made.memory, (self.shard_size,), 4)
            del made
            del clone
            first = ops.new_scratch(4 * self.shard_size)
            del first
        return [flat]

    # ------------------------------------------------------------------------------------------ backward
    def on_leaf_gradient(self, parameter: Tensor, grad: Tensor) -> bool:
        """Take a gradient: ZeRO 2 moves it into the bucket, ZeRO 1 waits for the others."""
        if not self.bucket and self.job.contiguous_gradients:
            with self._label_allocations("communication", "bucket"):
                size = self.bucket_size * self.width
                self.bucket = [self.ops.new_scratch(size) for _ in range(2 if self.job.overlap else 1)]
        if self.job.zero == 1 and not self.job.overlap:
            return False
        self._collect_gradient(parameter, Tensor(grad.memory, grad.shape, grad.width))
        return True

    def _collect_gradient(self, parameter: Tensor, grad: Tensor) -> None:
        count = parameter.numel
        if self.bucket_elements + count > self.bucket_size:
            self._reduce_bucket()
        inside = count <= self.bucket_size and self.job.contiguous_gradients
        self.bucket_gradients.append((parameter, None if inside else grad))
        self.bucket_elements += count

    def _reduce_bucket(self) -> None:
        """Average the bucket; copy out what belongs to this rank, drop the rest."""
        for size in self._copied_sizes():
            with self._label_allocations("communication", "all-reduce"):
                flat = self.ops.new_scratch(size * self.width)
            del flat
        for parameter, grad in self.bucket_gradients:
            if self._owned_values(parameter):
                self._keep_gradient(parameter)
                if not self.job.contiguous_gradients:
                    self.separate_gradients.append(grad)
        self.bucket_gradients.clear()
        self.bucket_elements = 0

    def _copied_sizes(self) -> list[int]:
        """Return the values in each communicated copy: slices for different ranks are joined, a single one
        needs no copy.
        """
        if not self.job.contiguous_gradients:
            return [self.bucket_elements] if len(self.bucket_gradients) > 1 else []
        slices: list[list[int]] = []  # rank and number of values
        for parameter, _ in self.bucket_gradients:
            begin, end = self.bounds[id(parameter)]
            while begin < end:
                rank = begin // self.shard_size
                upto = min(end, (rank + 1) * self.shard_size)
                if slices and slices[-1][0] == rank:
                    slices[-1][1] += upto - begin
                else:
                    slices.append([rank, upto - begin])
                begin = upto
        sent, joined, pieces = [], 0, 0
        for _, count in slices:
            joined, pieces = joined + count, pieces + 1
            if joined > self.bucket_size:
                sent += [joined] if pieces > 1 else []
                joined = pieces = 0
        return sent + ([joined] if pieces > 1 else [])

    def _owned_values(self, parameter: Tensor) -> int:
        """Return how many values of a weight this rank steps."""
        begin, end = self.bounds[id(parameter)]
        return max(0, min(end, (self.rank + 1) * self.shard_size) - max(begin, self.rank * self.shard_size))

    def _keep_gradient(self, parameter: Tensor) -> None:
        """Keep a gradient of this rank: in one buffer for all of them, or in fp32 on the host."""
        if self.offloaded:
            # For its norm, and in fp32 for the transfer.
            for width in (NORM_BYTES, 4) if self.width == 2 else (NORM_BYTES,):
                with self._label_allocations("communication", "offload"):
                    wide = self.ops.new_scratch(width * self._owned_values(parameter))
                del wide
        elif self.own_gradients is None and self.job.contiguous_gradients:
            count = sum(t.numel for t in self.trained if self._owned_values(t))
            with self._label_allocations("gradients", "reduce"):
                self.own_gradients = self.ops.new_scratch(count * self.width)

    def finish_backward(self, boundary: bool) -> None:
        if self.job.zero == 1 and not self.job.overlap and boundary:
            for parameter in self.trained:
                grad, parameter.grad = parameter.grad, None
                if grad is not None:
                    self._collect_gradient(parameter, grad)
                del grad
        if self.bucket_gradients:
            self._reduce_bucket()
        if self.job.zero == 2 or boundary:
            self.bucket = []
        if self.accumulated_gradients is None:
            self.accumulated_gradients = self.own_gradients
        self.own_gradients = None

    # ---------------------------------------------------------------------------------------------- step
    def step_optimizers(self, optimizers: list[JobOptimizer]) -> None:
        """Compute the norm and one flat fp32 gradient, and step the optimizer over it."""
        if self.offloaded:
            return
        with self._label_allocations("optimizer", "flatten gradients"):
            for tensor in self.trained:
                wide = self.ops.new_scratch(NORM_BYTES * self._owned_values(tensor))
                del wide
            flat: Tensor | None = self.ops.new_scratch(self.shard_size * self.width)
            whole = flat if self.width == 4 else self.ops.new_scratch(4 * self.shard_size)
            flat = self.accumulated_gradients = None
            self.separate_gradients = []
        self.master.grad = whole
        for optimizer in optimizers:
            optimizer.step()
        self.master.grad = None
