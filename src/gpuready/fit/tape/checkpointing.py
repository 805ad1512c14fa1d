"""Activation checkpointing: a layer keeps only its input and is recomputed in the backward."""

from collections.abc import Callable

from gpuready.fit.tape.autograd import EarlyBackward, GraphNode, Tensor
from gpuready.fit.tape.torch_ops import Grads, TorchOps


class Checkpointing:
    """Runs layers as torch.utils.checkpoint does. The reentrant variant recomputes a layer to its end."""

    def __init__(self, ops: TorchOps, reentrant: bool, offloaded: bool = False) -> None:
        self.ops = ops
        self.offloaded = offloaded  # inputs are kept in host memory
        self.reentrant = reentrant
        self.save_counts: dict[object, int] = {}
        self.early_backward: dict[object, EarlyBackward] = {}

    def __call__(self, call: Callable[[Tensor], Tensor], x: Tensor, kind: object, index: int = 0) -> Tensor:
        ops = self.ops
        if not ops.grad_enabled:
            return call(x)
        if not self.reentrant and kind not in self.save_counts:
            self._measure_layer(call, x, kind)
        pinned: list[Tensor] = []
        out = self._run_without_graph(call, x, pinned)
        autocast = ops.autocast

        kept = Tensor(None, x.shape, x.width) if self.offloaded else ops.detach(x)

        def backward(g: Grads, x: Tensor = kept, pinned: list[Tensor] = pinned) -> tuple[Tensor | None, ...]:
            if self.offloaded:
                x = ops.new_empty(x.shape, x.width)
            return (self._recompute_layer(call, x, g, kind, autocast),)

        ops.count_saved()
        ops.add_node(out, "checkpoint", (x,), backward)
        return out

    def _run_without_graph(self, call: Callable[[Tensor], Tensor], x: Tensor, pinned: list[Tensor]) -> Tensor:
        """Run the first pass, in which nothing is saved."""
        ops = self.ops
        ops.grad_enabled, ops.checkpoint_survivors = False, None if self.reentrant else pinned
        out = call(x)
        ops.grad_enabled, ops.checkpoint_survivors = True, None
        return ops.detach(out)

    def _measure_layer(self, call: Callable[[Tensor], Tensor], x: Tensor, kind: object) -> None:
        """Count the saves of a layer of this kind, since a recomputation stops at the last one; and find its
        early nodes.
        """
        ops = self.ops
        muted, ops.tape.muted = ops.tape.muted, True
        before, ops.save_count = ops.save_count, 0
        casts, ops.autocast_cache = ops.autocast_cache, {}
        fresh = Tensor(None, x.shape, x.width)
        fresh.fn = GraphNode(0, "input", (), lambda g: (), 1)
        out = call(fresh)
        self.save_counts[kind], ops.save_count = ops.save_count, before
        assert out.fn is not None
        self.early_backward[kind] = EarlyBackward(ops, out.fn)
        ops.autocast_cache = casts
        ops.tape.muted = muted

    def _recompute_layer(
        self, call: Callable[[Tensor], Tensor], x: Tensor, g: Grads, kind: object, autocast: int
    ) -> Tensor | None:
        ops = self.ops
        caught: list[Tensor | None] = []
        incoming: list[Tensor | None] = [*g] if self.reentrant else [g.pop()]
        early = self.early_backward.get(kind)
        if early is not None:
            early.run_early(incoming)
        leaf = ops.detach(x)
        leaf.fn = GraphNode(0, "input", (), _CatchInputGradient(caught), 1)
        before = ops.grad_enabled, ops.save_count, ops.stop_at_save, ops.autocast_cache, ops.autocast
        outside, ops.frees_saved_early = ops.frees_saved_early, not self.reentrant
        ops.grad_enabled, ops.save_count, ops.autocast_cache, ops.autocast = True, 0, {}, autocast
        ops.stop_at_save = -1 if self.reentrant else self.save_counts[kind]
        out = call(leaf)
        ops.tape.muted = False
        ops.grad_enabled, ops.save_count, ops.stop_at_save, ops.autocast_cache, ops.autocast = before
        leaf.memory = None
        ops.backward(out, incoming, early)
        ops.frees_saved_early = outside
        return caught.pop() if caught else None


class _CatchInputGradient:
    """The end of a recomputed layer: hands the input's gradient on to the previous layer."""

    __slots__ = ("caught",)

    def __init__(self, caught: list[Tensor | None]) -> None:
        self.caught = caught

    def __call__(self, g: Grads) -> tuple[Tensor | None, ...]:
        self.caught.append(g.pop())
        return ()
