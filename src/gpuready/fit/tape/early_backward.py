"""The end of a checkpointed layer, which runs backward before the layer is computed again."""

from __future__ import annotations

from heapq import heappop, heappush

from gpuready.fit.tape.autograd import (
    ACCUMULATE_SEQ,
    AutogradGraph,
    GraphNode,
    Tensor,
    count_dependencies,
    view_gradient,
)


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
