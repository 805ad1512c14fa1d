"""A simulated fleet: nodes with the facts of a recorded machine plus differences, answered by the real code.

Each node answers with the code of a real one (areas, fingerprints, details) after a chosen delay, so that the
controller's cost for a thousand nodes can be measured on a laptop. Used by benchmarks and tests.
"""

from __future__ import annotations

from gpuready.fleet import areas
from gpuready.model import Fact
from gpuready.model.fleet import ANSWERED, DEAD, SLOW, FleetNode, NodeAnswer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from gpuready.model import Facts

    FigureFunction = Callable[[str, int], Mapping[str, Any]]

PARALLEL = 64


class SimulatedTransport:
    """A transport to nodes that share one machine's facts, except for ``differences``."""

    name = "simulated"

    def __init__(
        self,
        names: Sequence[str],
        facts: Facts,
        differences: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        dead: Sequence[str] = (),
        hung: Sequence[str] = (),
        codes: Mapping[str, tuple[str, ...]] | None = None,
        figures: FigureFunction | None = None,
        labels: Mapping[str, Mapping[str, str]] | None = None,
        gpus: int = 8,
        clock: Callable[[], float] | None = None,
        delay: float = 0.0,
    ):
        import time

        self.names, self.facts, self.differences = list(names), facts, differences or {}
        self.dead, self.hung, self.codes = set(dead), set(hung), codes or {}
        self.figures, self.labels, self.gpus = figures, labels or {}, gpus
        self.clock, self.delay = clock or time.time, delay
        self.asked_count = 0

    def list_nodes(self) -> list[FleetNode]:
        return [FleetNode(name, labels=dict(self.labels.get(name, {}))) for name in self.names]

    def ask_nodes(
        self,
        nodes: Sequence[FleetNode],
        request: dict[str, Any],
        deadline: float,
        on_answer: Callable[[NodeAnswer], None],
    ) -> None:
        """Answer from several threads, each waiting for the node's delay."""
        import queue
        import threading

        waiting: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        for node in nodes:
            waiting.put(node.name)
        self.asked_count += len(nodes)

        def answer_waiting() -> None:
            while (name := waiting.get()) is not None:
                on_answer(self._simulate_answer(name, request, deadline))

        threads = [
            threading.Thread(target=answer_waiting) for _ in range(min(PARALLEL, len(nodes)) if self.delay else 1)
        ]
        for thread in threads:
            waiting.put(None)
            thread.start()
        for thread in threads:
            thread.join()

    def _simulate_answer(self, name: str, request: dict[str, Any], deadline: float) -> NodeAnswer:
        import time

        if name in self.dead:
            return NodeAnswer(name, DEAD, why=f"connect to {name} port 22: No route to host")
        if name in self.hung:
            time.sleep(min(deadline, self.delay))
            return NodeAnswer(name, SLOW, why=f"no answer in {deadline:.0f} s", seconds=deadline)
        if self.delay:
            time.sleep(self.delay)
        return NodeAnswer(name, ANSWERED, self._answer_body(name, request), seconds=self.delay)

    def _answer_body(self, name: str, request: dict[str, Any]) -> str:
        run = str(request.get("token", ""))
        if request.get("do") == "details":
            return areas.format_node_details(name, self.facts_of_node(name), request["keys"], run=run)
        codes = self.codes.get(name, ())
        attempt = int(request.get("try", 1))
        return areas.format_node_answer(
            name,
            self.facts_of_node(name),
            "not-ready" if codes else "clear",
            codes,
            run=run,
            do=str(request.get("do", "check")),
            attempt=attempt,
            at=self.clock(),
            figures=self.figures(name, attempt) if self.figures else None,
        )

    def facts_of_node(self, name: str) -> Facts:
        """Return the facts of one node: its own name, its own UUIDs and its differences."""
        own: dict[str, Any] = {"host.name": name}
        own["gpu.uuid"] = tuple(f"GPU-{name}-{at}" for at in range(self.gpus))
        own |= self.differences.get(name, {})
        return self.facts.with_facts(*(Fact(key, value, "simulated") for key, value in own.items()))
