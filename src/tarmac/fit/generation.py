"""Generation on tape: a prefill, then tokens one by one over a growing or a fixed cache."""

from __future__ import annotations

from tarmac.fit import loss as losses
from tarmac.fit.architecture import read
from tarmac.fit.layers import Model
from tarmac.fit.ops import Ops
from tarmac.fit.projection import Maker
from tarmac.fit.tensor import Tape, Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tarmac.fit.job import Card, Job

SHOWN = 3  # tokens that are played at the start and at the end; those between differ by their length alone


class Cache:
    """Keys and values of every layer. A dynamic one is joined anew for every token; a static one is written into."""

    def __init__(self, ops: Ops, longest: int = 0) -> None:
        self.ops = ops
        self.longest = longest
        self.held: dict[int, tuple[Tensor, Tensor]] = {}

    def update(self, layer: int, k: Tensor, v: Tensor, length: int, window: int) -> tuple[Tensor, Tensor]:
        ops = self.ops
        batch, heads, _, size = k.shape
        longest = min(self.longest, window) if self.longest and window else self.longest
        shape = (batch, heads, longest or length, size)
        kind, ops.tape.kind = ops.tape.kind, "cache"
        ops.tape.op = "cache"
        if not longest:
            old = self.held.pop(layer, None)
            keys = ops.new(shape, k.width)
            old = None if old is None else (keys, old[1])
            values = ops.new(shape, v.width)
            keys.order = values.order = "heads"
            self.held[layer] = keys, values
            del old
        elif layer not in self.held:
            self.held[layer] = ops.new(shape, k.width), ops.new(shape, v.width)
            for one in self.held[layer]:
                one.order = "heads"
        ops.tape.kind = kind
        return self.held[layer]


class Generation:
    """A model that only answers."""

    def __init__(self, job: Job, card: Card, workspace: int) -> None:
        self.job = job
        self.tape = Tape()
        self.ops = Ops(self.tape, workspace=workspace)
        self.ops.grad = False
        self.ops.double_quant = job.double_quant
        shape = read(job.model)
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
        """Logits of the last position, and the cache that they leave."""
        hidden = self.model.forward(self.job.micro_batch, seq, lambda call, x, *_: call(x), cache, length)
        last = Tensor(hidden.memory, (self.job.micro_batch, 1, hidden.shape[-1]), hidden.width)
        return losses.logits_of(self.model, last), cache

    def answer(self, seq: int, length: int, cache: Cache) -> None:
        """One token: its logits in fp32, then the choice."""
        logits, _ = self.tokens(seq, length, cache)
        wide = self.ops.new(logits.shape, 4)
        del logits, wide
