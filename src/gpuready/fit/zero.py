"""DeepSpeed ZeRO 1 and 2 on one rank: one flat copy of the weights, a shard of the state, gradients in buckets.

Follows DeepSpeed 0.19 (runtime/zero/stage_1_and_2.py), compared with it on gloo (benchmarks/fit_sharded.py).
The ranks differ a little: ZeRO 1 collects its gradients from the first weight on, ZeRO 2 from the last, so the
first or the last rank holds the most, and that one is played.
"""

from __future__ import annotations

from contextlib import contextmanager

from gpuready.fit.job import AUTO
from gpuready.fit.tensor import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuready.fit.job import Card, Job
    from gpuready.fit.ops import Ops
    from gpuready.fit.optimizers import Optimizer

NORM = 8  # bytes per value while the gradient norm is computed
ALIGNED = 2  # every rank's shard is a multiple of so many values


def bucket_of(job: Job, told: int, per_square: float) -> int:
    """Return a bucket's size in values; ``AUTO_BUCKET`` derives it from the hidden size, as transformers and
    accelerate do.
    """
    if told != AUTO:
        return told
    return max(1, int(per_square * hidden_of(job) ** 2))


def hidden_of(job: Job) -> int:
    return int(job.model.get("hidden_size") or job.model.get("n_embd") or 0)


GATHERING, REDUCING = 1, 2  # streams beside the computation's


class Labelled:
    """Base of classes that allocate under their own kind and operation, and perhaps on their own stream."""

    def __init__(self, ops: Ops) -> None:
        self.ops = ops

    @contextmanager
    def _as(self, kind: str, op: str, stream: int = 0) -> Iterator[None]:
        tape = self.ops.tape
        before, tape.kind, tape.op = (tape.kind, tape.op), kind, op
        usual = tape.beside(stream)
        yield
        tape.beside(usual)
        tape.kind, tape.op = before


class Partitions(Labelled):
    """The weights in one flat buffer, of which this rank steps its shard."""

    def __init__(
        self, ops: Ops, job: Job, card: Card, trained: list[Tensor], rank: int | None = None
    ) -> None:
        super().__init__(ops)
        self.job = job
        self.rank = (0 if job.zero == 1 else job.world - 1) if rank is None else rank
        self.offloaded = job.offload in ("optimizer", "parameters")
        self.trained = trained
        self.width = trained[0].width if trained else 2
        self.most = bucket_of(job, job.reduce_bucket, 1.0)
        self.share = self._aligned(sum(t.numel for t in trained)) // job.world
        self.bounds = self._bounds()
        self.bucket: list[Tensor] = []
        self.elements = 0
        self.waiting: list[
            tuple[Tensor, Tensor | None]
        ] = []  # parameters in the bucket, and a gradient too large for it
        self.mine: Tensor | None = None  # this rank's gradients of this backward
        self.sum: Tensor | None = None  # and of earlier backwards
        self.loose: list[Tensor | None] = []  # the same if not collected in one buffer
        self.kept = self._build(card)
        self.masters = [self.master]

    def _aligned(self, count: int) -> int:
        step = ALIGNED * self.job.world
        return -(-count // step) * step

    def _bounds(self) -> dict[int, tuple[int, int]]:
        """Return where every weight begins and ends in the flat buffer."""
        found, at = {}, 0
        for tensor in self.trained:
            found[id(tensor)] = at, at + tensor.numel
            at += tensor.numel
        return found

    def _build(self, card: Card) -> list[Tensor]:
        """Flatten the weights: beside the old ones if there is room, else through the host."""
        ops, size = self.ops, self.share * self.job.world * self.width
        with self._as("parameters", "flatten"):
            together = 2 * size <= card.memory - card.held
            if not together:
                for tensor in self.trained:
                    tensor.memory = None
            flat = ops.scratch(size)
            for tensor in self.trained:
                tensor.memory = flat.memory
        with self._as("optimizer", "master weights"):
            clone = ops.scratch(self.share * self.width)
            if self.offloaded:
                del clone
                self.master = Tensor(None, (self.share,), 4)
                with self._as("communication", "offload"):
                    largest = max((t.numel for t in self.trained), default=0)
                    return [flat, ops.scratch(largest * self.width)]
            made = clone if self.width == 4 else ops.scratch(4 * self.share)
            self.master = Tensor(made.memory, (self.share,), 4)
            del made
            del clone
            first = ops.scratch(4 * self.share)
            del first
        return [flat]

    # ------------------------------------------------------------------------------------------ backward
    def on_leaf(self, parameter: Tensor, grad: Tensor) -> bool:
        """Take a gradient: ZeRO 2 moves it into the bucket, ZeRO 1 waits for the others."""
        if not self.bucket and self.job.contiguous_gradients:
            with self._as("communication", "bucket"):
                size = self.most * self.width
                self.bucket = [self.ops.scratch(size) for _ in range(2 if self.job.overlap else 1)]
        if self.job.zero == 1 and not self.job.overlap:
            return False
        self._collect(parameter, Tensor(grad.memory, grad.shape, grad.width))
        return True

    def _collect(self, parameter: Tensor, grad: Tensor) -> None:
        count = parameter.numel
        if self.elements + count > self.most:
            self._reduce()
        inside = count <= self.most and self.job.contiguous_gradients
        self.waiting.append((parameter, None if inside else grad))
        self.elements += count

    def _reduce(self) -> None:
        """Average the bucket; copy out what belongs to this rank, drop the rest."""
        for size in self._sent():
            with self._as("communication", "all-reduce"):
                flat = self.ops.scratch(size * self.width)
            del flat
        for parameter, grad in self.waiting:
            if self._own(parameter):
                self._take(parameter)
                if not self.job.contiguous_gradients:
                    self.loose.append(grad)
        self.waiting.clear()
        self.elements = 0

    def _sent(self) -> list[int]:
        """Return the values in each communicated copy: slices for different ranks are joined, a single one
        needs no copy.
        """
        if not self.job.contiguous_gradients:
            return [self.elements] if len(self.waiting) > 1 else []
        slices: list[list[int]] = []  # rank and number of values
        for parameter, _ in self.waiting:
            begin, end = self.bounds[id(parameter)]
            while begin < end:
                rank = begin // self.share
                upto = min(end, (rank + 1) * self.share)
                if slices and slices[-1][0] == rank:
                    slices[-1][1] += upto - begin
                else:
                    slices.append([rank, upto - begin])
                begin = upto
        sent, joined, pieces = [], 0, 0
        for _, count in slices:
            joined, pieces = joined + count, pieces + 1
            if joined > self.most:
                sent += [joined] if pieces > 1 else []
                joined = pieces = 0
        return sent + ([joined] if pieces > 1 else [])

    def _own(self, parameter: Tensor) -> int:
        """Return how many values of a weight this rank steps."""
        begin, end = self.bounds[id(parameter)]
        return max(0, min(end, (self.rank + 1) * self.share) - max(begin, self.rank * self.share))

    def _take(self, parameter: Tensor) -> None:
        """Keep a gradient of this rank: in one buffer for all of them, or in fp32 on the host."""
        if self.offloaded:
            for width in (NORM, 4) if self.width == 2 else (NORM,):  # for its norm, and in fp32 for the transfer
                with self._as("communication", "offload"):
                    wide = self.ops.scratch(width * self._own(parameter))
                del wide
        elif self.mine is None and self.job.contiguous_gradients:
            count = sum(t.numel for t in self.trained if self._own(t))
            with self._as("gradients", "reduce"):
                self.mine = self.ops.scratch(count * self.width)

    def done(self, boundary: bool) -> None:
        if self.job.zero == 1 and not self.job.overlap and boundary:
            for parameter in self.trained:
                grad, parameter.grad = parameter.grad, None
                if grad is not None:
                    self._collect(parameter, grad)
                del grad
        if self.waiting:
            self._reduce()
        if self.job.zero == 2 or boundary:
            self.bucket = []
        if self.sum is None:
            self.sum = self.mine
        self.mine = None

    # ---------------------------------------------------------------------------------------------- step
    def step(self, optimizers: list[Optimizer]) -> None:
        """Compute the norm and one flat fp32 gradient, and step the optimizer over it."""
        if self.offloaded:
            return
        with self._as("optimizer", "flatten gradients"):
            for tensor in self.trained:
                wide = self.ops.scratch(NORM * self._own(tensor))
                del wide
            flat: Tensor | None = self.ops.scratch(self.share * self.width)
            whole = flat if self.width == 4 else self.ops.scratch(4 * self.share)
            flat = self.sum = None
            self.loose = []
        self.master.grad = whole
        for optimizer in optimizers:
            optimizer.step()
        self.master.grad = None
