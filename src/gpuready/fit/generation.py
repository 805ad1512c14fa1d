"""Record generation: a prefill, then single tokens over a dynamic or static cache."""

from __future__ import annotations

from gpuready.fit import loss as losses
from gpuready.fit.architecture import read
from gpuready.fit.layers import Model
from gpuready.fit.ops import Ops
from gpuready.fit.projection import Maker
from gpuready.fit.tensor import Tape, Tensor
from gpuready.fit.training import parallel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.fit.job import Card, Job

SHOWN = 3  # tokens played at the start and at the end; the others differ only in length


class Cache:
    """Keys and values of every layer. A dynamic cache is concatenated for every token; a static one is written
    in place.
    """

    def __init__(self, ops: Ops, longest: int = 0) -> None:
        self.ops = ops
        self.longest = longest
        self.held: dict[int, tuple[Tensor, Tensor]] = {}

    def seen(self, window: int, past: int, seq: int) -> int:
        """Return the number of keys that a pass attends to."""
        if not self.longest:
            return min(past, window - 1) + seq if window else past + seq
        most = min(self.longest, window) if window else self.longest
        return most if not window or past + seq <= most else min(past, most - 1) + seq

    def update(self, layer: int, k: Tensor, v: Tensor, length: int, window: int) -> tuple[Tensor, Tensor]:
        ops = self.ops
        kind, ops.tape.kind = ops.tape.kind, "cache"
        ops.tape.op = "cache"
        found = (
            self._written(layer, k, v, length, window)
            if self.longest
            else self._joined(layer, k, v, length, window)
        )
        ops.tape.kind = kind
        return found

    def _joined(self, layer: int, k: Tensor, v: Tensor, length: int, window: int) -> tuple[Tensor, Tensor]:
        """Concatenate into new memory. A window keeps the last tokens only, as a view of the concatenation."""
        old = self.held.pop(layer, None)
        count = self.seen(window, length - k.shape[2], k.shape[2])
        keys = self._new(k, count)
        if old is not None and not window:
            old = (keys, old[1])
        values = self._new(v, count)
        self.held[layer] = keys, values
        return keys, values

    def _written(self, layer: int, k: Tensor, v: Tensor, length: int, window: int) -> tuple[Tensor, Tensor]:
        most = min(self.longest, window) if window else self.longest
        if layer not in self.held:
            self.held[layer] = self._new(k, most), self._new(v, most)
        past = length - k.shape[2]
        if not window or length <= most:
            return self.held[layer]
        if past >= most and k.shape[2] == 1:
            rolled = (self._new(k, most), self._new(v, most))
            del rolled
            return self.held[layer]
        return (k, v) if not past else (self._new(k, min(past, most - 1) + k.shape[2]),) * 2

    def _new(self, like: Tensor, count: int) -> Tensor:
        batch, heads, _, size = like.shape
        made = self.ops.new((batch, heads, count, size), like.width)
        made.order = "heads"
        return made


class Generation:
    """A model that only generates."""

    def __init__(self, job: Job, card: Card, workspace: int) -> None:
        self.job = job
        self.tape = Tape()
        self.ops = Ops(self.tape, workspace=workspace)
        self.ops.grad = False
        self.ops.double_quant = job.double_quant
        shape = parallel(read(job.model), job.tensor_parallel)
        self.model = Model(self.ops, shape, job, card, Maker(self.ops, job, trained=False))
        self.tape.mark("build")

    def record(self) -> Tape:
        job, ops, tape = self.job, self.ops, self.tape
        ids = ops.scratch(8 * job.micro_batch * job.seq)
        alone = self.tokens(job.seq, job.seq, Cache(ops))
        tape.mark("prefill")
        del alone
        tape.mark("freed")
        total = job.seq + job.new_tokens
        cache = Cache(ops, total - 1 if job.cache == "static" else 0)
        more = [ops.scratch(8 * job.micro_batch * job.seq) for _ in range(2)]
        self.model.told = True
        self.answer(job.seq, job.seq, cache)
        for length in self._lengths(total):
            self.answer(1, length, cache)
        del more, ids, cache
        tape.mark("generate")
        return tape

    def _lengths(self, total: int) -> list[int]:
        first = self.job.seq + 1
        if total - first <= 2 * SHOWN:
            return list(range(first, total))
        return [*range(first, first + SHOWN), *range(total - SHOWN, total)]

    def tokens(self, seq: int, length: int, cache: Cache) -> tuple[Tensor, Cache]:
        """Return the logits of the last position, and the cache."""
        hidden = self.model.forward(self.job.micro_batch, seq, lambda call, x, *_: call(x), cache, length)
        last = Tensor(hidden.memory, (self.job.micro_batch, 1, hidden.shape[-1]), hidden.width)
        return losses.logits_of(self.model, last), cache

    def answer(self, seq: int, length: int, cache: Cache) -> None:
        """Generate one token: its logits in fp32, then the argmax."""
        logits, _ = self.tokens(seq, length, cache)
        wide = self.ops.new(logits.shape, 4)
        del logits, wide
