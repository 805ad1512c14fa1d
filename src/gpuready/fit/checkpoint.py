"""Activation checkpointing: a layer keeps only its input and is recomputed in the backward."""

from __future__ import annotations

from gpuready.fit.tensor import Ahead, Node, Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuready.fit.ops import Grads, Ops


class Checkpointing:
    """Runs layers as torch.utils.checkpoint does. The reentrant variant recomputes a layer to its end."""

    def __init__(self, ops: Ops, reentrant: bool, offloaded: bool = False) -> None:
        self.ops = ops
        self.offloaded = offloaded  # inputs are kept in host memory
        self.reentrant = reentrant
        self.saves: dict[object, int] = {}
        self.ahead: dict[object, Ahead] = {}

    def __call__(self, call: Callable[[Tensor], Tensor], x: Tensor, kind: object, index: int = 0) -> Tensor:
        ops = self.ops
        if not ops.grad:
            return call(x)
        if not self.reentrant and kind not in self.saves:
            self._look(call, x, kind)
        pinned: list[Tensor] = []
        out = self._quietly(call, x, pinned)
        autocast = ops.autocast

        kept = Tensor(None, x.shape, x.width) if self.offloaded else ops.detached(x)

        def back(g: Grads, x: Tensor = kept, pinned: list[Tensor] = pinned) -> tuple[Tensor | None, ...]:
            if self.offloaded:
                x = ops.new(x.shape, x.width)
            return (self._again(call, x, g, kind, autocast),)

        ops.keep()
        ops.tie(out, "checkpoint", (x,), back)
        return out

    def _quietly(self, call: Callable[[Tensor], Tensor], x: Tensor, pinned: list[Tensor]) -> Tensor:
        """Run the first pass, in which nothing is saved."""
        ops = self.ops
        ops.grad, ops.pinned = False, None if self.reentrant else pinned
        out = call(x)
        ops.grad, ops.pinned = True, None
        return ops.detached(out)

    def _look(self, call: Callable[[Tensor], Tensor], x: Tensor, kind: object) -> None:
        """Count the saves of a layer of this kind, since a recomputation stops at the last one; and find its
        early nodes.
        """
        ops = self.ops
        muted, ops.tape.muted = ops.tape.muted, True
        before, ops.saves = ops.saves, 0
        casts, ops.casts = ops.casts, {}
        fresh = Tensor(None, x.shape, x.width)
        fresh.fn = Node(0, "input", (), lambda g: (), 1)
        out = call(fresh)
        self.saves[kind], ops.saves = ops.saves, before
        assert out.fn is not None
        self.ahead[kind] = Ahead(ops, out.fn)
        ops.casts = casts
        ops.tape.muted = muted

    def _again(
        self, call: Callable[[Tensor], Tensor], x: Tensor, g: Grads, kind: object, autocast: int
    ) -> Tensor | None:
        ops = self.ops
        caught: list[Tensor | None] = []
        handed: list[Tensor | None] = [*g] if self.reentrant else [g.pop()]
        ahead = self.ahead.get(kind)
        if ahead is not None:
            ahead.run(handed)
        leaf = ops.detached(x)
        leaf.fn = Node(0, "input", (), _Catch(caught), 1)
        before = ops.grad, ops.saves, ops.stop, ops.casts, ops.autocast
        outside, ops.unpacked, unasked = ops.unpacked, not self.reentrant, len(ops.unasked)
        ops.grad, ops.saves, ops.casts, ops.autocast = True, 0, {}, autocast
        ops.stop = -1 if self.reentrant else self.saves[kind]
        out = call(leaf)
        ops.tape.muted = False
        ops.grad, ops.saves, ops.stop, ops.casts, ops.autocast = before
        leaf.memory = None
        ops.backward(out, handed, ahead)
        ops.unpacked = outside
        if self.reentrant:  # the reentrant graph ends here
            del ops.unasked[unasked:]
        return caught.pop() if caught else None


class _Catch:
    """The end of a recomputed layer: hands the input's gradient on to the previous layer."""

    __slots__ = ("caught",)

    def __init__(self, caught: list[Tensor | None]) -> None:
        self.caught = caught

    def __call__(self, g: Grads) -> tuple[Tensor | None, ...]:
        self.caught.append(g.pop())
        return ()
