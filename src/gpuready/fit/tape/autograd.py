"""Tensors without data: records the allocations and frees that torch's autograd causes, on a tape.

A tensor is a shape, a width and a reference to a piece of memory. Python's reference counts decide when that
memory is freed, as in torch; so the layers are written like the real modules, including local variables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from math import prod
from sys import getrefcount

Backward = Callable[[list["Tensor"]], Sequence["Tensor | None"]]


ACCUMULATE_SEQ = 1 << 62  # torch runs gradient accumulation before everything else


class Tape:
    """Requests to the allocator: a number is an allocation, its complement ``~n`` frees the n-th one.

    Text between the numbers marks the end of a phase.
    """

    stream = 0  # the current stream; 0 is the computation's
    streams = 1  # number of streams used, including those in between

    def __init__(self) -> None:
        self.events: list[int | str] = []
        self.kinds: list[str] = []  # kind of every allocation
        self.ops: list[str] = []  # operation of every allocation
        self.kind = "activations"
        self.op = ""
        self.muted = False
        # Kind and sizes of every kernel, for its time; phases as in events.
        self.kernels: list[tuple[int | str, ...]] = []

    def mark_phase(self, phase: str) -> None:
        self.events.append(phase)
        self.kernels.append(("phase", phase))

    def launch_kernel(self, kind: str, *sizes: int | str) -> None:
        """Record a kernel: ``move`` bytes, ``spread`` elements and bytes, and those of fit.time.kernel_time."""
        if not self.muted:
            self.kernels.append((kind, *sizes))

    def launch_matmul(self, m: int, n: int, k: int, width: int, batch: int, *strides: int) -> None:
        """Record a product; ``strides`` are the row lengths of its operands, which decide the kernel's alignment."""
        if not self.muted:
            row = 16
            for stride in strides:
                while stride * width % row:
                    row //= 2
            self.kernels.append(("matmul", m, n, k, width, batch, row))

    def switch_stream(self, stream: int) -> int:
        """Make another stream current; return the previous one."""
        before, self.stream = self.stream, stream
        self.streams = max(self.streams, stream + 1)
        return before


class StreamAllocation(int):
    """An allocation on a stream other than the computation's; torch keeps the blocks of each stream apart."""

    stream = 0

    @classmethod
    def on_stream(cls, stream: int, size: int) -> StreamAllocation:
        made = cls(size)
        made.stream = stream
        return made


class TapeMemory:
    """A piece of device memory; its deletion is an event on the tape."""

    __slots__ = ("events", "number")

    def __init__(self, tape: Tape, size: int) -> None:
        self.events = tape.events
        self.number = len(tape.kinds)
        tape.events.append(StreamAllocation.on_stream(tape.stream, size) if tape.stream else size)
        tape.kinds.append(tape.kind)
        tape.ops.append(tape.op)

    @classmethod
    def from_number(cls, tape: Tape, number: int) -> TapeMemory:
        """Return a piece whose allocation is already on the tape."""
        made = cls.__new__(cls)
        made.events, made.number = tape.events, number
        return made

    def __del__(self) -> None:
        try:
            self.events.append(~self.number)
        except AttributeError:  # a signal ended it while it was made
            return


class Tensor:
    """A shape and a width in bytes over a piece of memory. ``view``: result of a view operation."""

    # Python clears slots in alphabetical order: a tensor frees its graph (fn) before its memory, as in torch. Do not rename them.
    __slots__ = ("fn", "grad", "memory", "order", "shape", "slot", "trained", "view", "width")

    def __init__(self, memory: TapeMemory | None, shape: tuple[int, ...], width: int) -> None:
        self.memory = memory
        self.shape = shape
        self.width = width
        self.fn: GraphNode | None = None
        self.slot = 0
        self.grad: Tensor | None = None
        self.trained = False
        self.view = False
        self.order = ""  # "heads": memory in head order, not token order

    @property
    def requires_grad(self) -> bool:
        """Whether a gradient flows into it."""
        return self.fn is not None

    @property
    def numel(self) -> int:
        return prod(self.shape)


class GraphNode:
    """One operation of the graph: its backward function, and where its gradients go."""

    __slots__ = ("buffer", "edges", "op", "run", "saver", "seq", "slots", "waiting")

    def __init__(
        self, seq: int, op: str, edges: tuple[tuple[GraphNode, int, int] | None, ...], run: Backward | None, slots: int
    ):
        self.seq = seq
        self.op = op
        self.edges = edges
        self.run = run
        self.slots = slots
        self.buffer: list[Tensor | None] = []
        self.waiting = 0
        self.saver = False  # whether it saved a tensor for its backward


class AutogradGraph:
    """Creates tensors, links them into a graph, and runs the graph backward."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.grad_enabled = True  # as torch.is_grad_enabled
        self.seq = 0
        self.save_count = 0  # number of tensors saved for backward
        self.just_saved = False  # whether the current operation saved one
        self.stop_at_save = -1  # a recomputation stops at this save
        self.on_leaf_gradient: Callable[[Tensor, Tensor], bool] | None = None
        self.in_backward = False
        self.frees_saved_early = False  # whether saved tensors are freed as soon as the operation ran backward

    # ------------------------------------------------------------------------------------------ tensors
    def new_empty(self, shape: tuple[int, ...], width: int) -> Tensor:
        tape = self.tape
        return Tensor(None if tape.muted else TapeMemory(tape, prod(shape) * width), shape, width)

    def new_scratch(self, size: int) -> Tensor:
        """Allocate memory that a kernel needs beside its result."""
        return Tensor(None if self.tape.muted or not size else TapeMemory(self.tape, size), (size,), 1)

    def new_parameter(self, shape: tuple[int, ...], width: int, trained: bool = True) -> Tensor:
        made = self.new_empty(shape, width)
        if trained:
            made.fn = GraphNode(ACCUMULATE_SEQ, "accumulate", (), None, 1)
            made.trained = True
            made.fn.run = _AccumulateGrad(self, made)
        return made

    def view(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Return another shape over the same memory."""
        made = Tensor(x.memory, shape, x.width)
        made.order = x.order
        if self.grad_enabled and x.fn is not None:
            old = x.shape
            self.add_node(made, "view", (x,), lambda g: (view_gradient(g[0], old),))
        return made

    def add_node(self, out: Tensor, op: str, inputs: tuple[Tensor | None, ...], run: Backward, slots: int = 1) -> None:
        self.seq += 1
        edges = tuple([None if x is None or x.fn is None else (x.fn, x.slot, x.width) for x in inputs])
        out.fn = node = GraphNode(self.seq, op, edges, run, slots)
        node.saver, self.just_saved = self.just_saved, False

    def any_requires_grad(self, *inputs: Tensor | None) -> bool:
        if self.grad_enabled:
            for x in inputs:
                if x is not None and x.fn is not None:
                    return True
        return False

    def count_saved(self) -> None:
        """Count a tensor saved for backward; a recomputation stops after the last one."""
        self.save_count += 1
        self.just_saved = True
        if self.save_count == self.stop_at_save:
            self.tape.muted = True

    # ----------------------------------------------------------------------------------------- backward
    def backward(self, root: Tensor, grad: list[Tensor | None], early: EarlyBackward | None = None) -> None:
        """Run the graph from ``root`` back to its leaves. The gradient is popped from the list, so that nothing
        else holds it.

        Nodes that already ran ``early``, in a graph of the same form, are not run again.
        """
        assert root.fn is not None
        before, self.grad_enabled = self.grad_enabled, False
        first = root.fn
        slot = root.slot
        nodes = count_dependencies(first)
        root.fn = None
        pushed = 0
        if early is not None and early.nodes:
            ready = early.hand_over(first, nodes)
        else:
            incoming = grad.pop()
            first.buffer = [None] * first.slots
            first.buffer[slot] = None if incoming is None else view_gradient(incoming, incoming.shape, incoming.view)
            incoming = None
            ready = [(-first.seq, 0, first)]
        del nodes, first
        tape = self.tape
        while ready:
            _, _, node = heappop(ready)
            tape.op = node.op
            grads, node.buffer = node.buffer, []
            run, node.run = node.run, node.run if node.seq == ACCUMULATE_SEQ else None
            assert run is not None, f"{node.op} ran backwards twice"
            flowing: list[Tensor | None] = [None] * len(node.edges)
            if grads.count(None) != len(grads):
                flowing = list(run(grads))  # type: ignore[arg-type]
                if self.frees_saved_early:
                    run = None
                self.match_inputs(flowing, node.edges)
            del grads, run
            for index, edge in enumerate(node.edges):
                if edge is None:
                    flowing[index] = None
                    continue
                then, slot, _ = edge
                one, flowing[index] = flowing[index], None
                if one is not None:
                    self.deliver_gradient(then, slot, one)
                one = None
                then.waiting -= 1
                if not then.waiting:
                    pushed += 1
                    heappush(ready, (-then.seq, pushed, then))
            node.edges = () if node.seq != ACCUMULATE_SEQ else node.edges
        self.grad_enabled = before

    def match_inputs(self, flowing: list[Tensor | None], edges: tuple[tuple[GraphNode, int, int] | None, ...]) -> None:
        """Sum gradients to the shape of broadcast inputs, and cast them to their dtype.

        torch does so before it frees the incoming gradient and the operation's saved tensors (in a recomputed
        layer the checkpoint holds these, not the operation).
        """
        for index, edge in enumerate(edges):
            one, flowing[index] = flowing[index], None
            if edge is None or one is None:
                continue
            if one.__class__ is not Tensor:  # a sum deferred until all products are computed
                one = one()  # type: ignore[operator]
                if one is None:
                    continue
            flowing[index] = self.cast_gradient(one, edge[2]) if one.width != edge[2] else one

    def cast_gradient(self, grad: Tensor, width: int) -> Tensor:
        """Cast a gradient to the width of its tensor."""
        made = self.new_empty(grad.shape, width)
        made.order = grad.order
        self.launch_cast(grad.numel, grad.width, width)
        return made

    def launch_cast(self, elements: int, old: int, new: int) -> None:
        """Record a cast: torch's kernel for a wider result moves one value at a time."""
        moved = elements * (old + new)
        self.tape.launch_kernel("spread", elements, moved) if new > old else self.tape.launch_kernel("move", moved)

    def deliver_gradient(self, node: GraphNode, slot: int, grad: Tensor) -> None:
        """Store a gradient for a node; a second one is added, in place where torch may."""
        if not node.buffer:
            node.buffer = [None] * node.slots
        old = node.buffer[slot]
        if old is None:
            node.buffer[slot] = view_gradient(grad, grad.shape, grad.view)  # one more reference to its memory
            return
        self.tape.launch_kernel("move", grad.numel * (2 * old.width + grad.width))
        # torch adds in place only into a tensor without other references that is no view.
        if not old.view and (old.memory is None or getrefcount(old.memory) <= 2):
            return
        self.tape.op = "add"
        node.buffer[slot] = made = self.new_empty(grad.shape, max(old.width, grad.width))
        made.order = old.order


class _AccumulateGrad:
    """Into ``.grad`` of a parameter: the gradient itself if it may be taken, else a copy, else an addition."""

    __slots__ = ("graph", "parameter")

    def __init__(self, graph: AutogradGraph, parameter: Tensor) -> None:
        self.graph = graph
        self.parameter = parameter

    def __call__(self, grads: list[Tensor]) -> tuple[Tensor | None, ...]:
        grad = grads.pop()
        graph, mine = self.graph, self.parameter
        if graph.on_leaf_gradient is not None and graph.on_leaf_gradient(mine, grad):
            return ()
        if mine.grad is not None:
            graph.tape.launch_kernel("move", mine.numel * (2 * mine.grad.width + grad.width))
            return ()
        graph.tape.op = "accumulate gradient"
        mine.grad = Tensor(grad.memory, mine.shape, grad.width)
        if grad.memory is not None:
            graph.tape.kinds[grad.memory.number] = "gradients"
        return ()


def view_gradient(grad: Tensor, shape: tuple[int, ...], view: bool = True) -> Tensor:
    """Return a gradient in another shape over the same memory."""
    made = Tensor(grad.memory, shape, grad.width)
    made.view = view
    made.order = grad.order
    return made


def count_dependencies(root: GraphNode) -> list[GraphNode]:
    """Count the gradients that every node behind this one waits for; return all nodes, this one first."""
    todo, seen, every = [root], {id(root)}, [root]
    while todo:
        for edge in todo.pop().edges:
            if edge is not None:
                node = edge[0]
                node.waiting += 1
                if id(node) not in seen:
                    seen.add(id(node))
                    todo.append(node)
                    every.append(node)
    return every


class EarlyBackward:
    """Operations at the end of a layer whose backward needs no saved tensors: they run before a recomputation."""

    def __init__(self, graph: AutogradGraph, root: GraphNode) -> None:
        self.graph, self.root = graph, root
        every = count_dependencies(root)
        self.nodes: list[GraphNode] = []
        ready = [(-root.seq, 0, root)]
        while ready and not ready[0][2].saver and 0 < ready[0][2].seq < ACCUMULATE_SEQ:
            node = heappop(ready)[2]
            self.nodes.append(node)
            for edge in node.edges:
                if edge is not None:
                    edge[0].waiting -= 1
                    if not edge[0].waiting:
                        heappush(ready, (-edge[0].seq, len(self.nodes), edge[0]))
        ran = {id(node) for node in self.nodes}
        for node in every:
            node.waiting = 0
            if id(node) not in ran and node.seq < ACCUMULATE_SEQ:  # free its saved tensors
                node.run, node.edges = None, ()
        self.outer_nodes = [e[0] for node in self.nodes for e in node.edges if e is not None and id(e[0]) not in ran]

    def run_early(self, grads_in: list[Tensor | None]) -> None:
        """Run backward from the gradient, which is popped from the list, to the first node that needs saved tensors."""
        if not self.nodes:
            return
        graph, one = self.graph, grads_in.pop()
        self.root.buffer = [None if one is None else view_gradient(one, one.shape, one.view)]
        one = None
        for node in self.nodes:
            graph.tape.op = node.op
            grads, node.buffer = node.buffer, []
            assert node.run is not None
            flowing = list(node.run(grads))  # type: ignore[arg-type]
            graph.match_inputs(flowing, node.edges)
            del grads
            for index, edge in enumerate(node.edges):
                one, flowing[index] = flowing[index], None
                if edge is not None and one is not None:
                    graph.deliver_gradient(edge[0], edge[1], one)
            one = None

    def hand_over(self, root: GraphNode, nodes: list[GraphNode]) -> list[tuple[int, int, GraphNode]]:
        """Hand the gradients to the recomputed graph; return its ready nodes."""
        offset = root.seq - self.root.seq
        by_seq = {node.seq: node for node in nodes}
        inside = {node.seq + offset for node in self.nodes}
        ready: list[tuple[int, int, GraphNode]] = []
        for old in self.outer_nodes:
            new = old if old.seq == ACCUMULATE_SEQ else by_seq[old.seq + offset if old.seq else 0]
            new.buffer, old.buffer = old.buffer or new.buffer, [] if new is not old else old.buffer
        for old in self.nodes:
            node = by_seq[old.seq + offset]
            for edge in node.edges:
                if edge is not None:
                    edge[0].waiting -= 1
                    if not edge[0].waiting and edge[0].seq not in inside:
                        heappush(ready, (-edge[0].seq, len(ready), edge[0]))
            node.edges, node.run = (), None
        return ready
