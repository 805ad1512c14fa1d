"""A simulated fleet: nodes with the facts of a recorded machine plus differences, answered by the real code.

Each node answers with the code of a real one (facets, fingerprints, details) after a given delay, so that the
controller's cost for a thousand nodes can be measured on a laptop. Used by benchmarks and tests.
"""

from __future__ import annotations

from gpuready.fleet import facets
from gpuready.fleeted import ANSWERED, DEAD, SLOW, Answer, Node
from gpuready.model import Fact

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from gpuready.model import Facts

    Figure = Callable[[str, int], Mapping[str, Any]]

PARALLEL = 64


class Simulated:
    """A transport to nodes that share one machine's facts, except for ``differences``."""

    name = "simulated"

    def __init__(
        self,
        names: Sequence[str],
        facts: Facts,
        odd: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        dead: Sequence[str] = (),
        hung: Sequence[str] = (),
        codes: Mapping[str, tuple[str, ...]] | None = None,
        figures: Figure | None = None,
        labels: Mapping[str, Mapping[str, str]] | None = None,
        gpus: int = 8,
        clock: Callable[[], float] | None = None,
        hold: float = 0.0,
    ):
        import time

        self.names, self.facts, self.odd = list(names), facts, odd or {}
        self.dead, self.hung, self.codes = set(dead), set(hung), codes or {}
        self.figures, self.labels, self.gpus = figures, labels or {}, gpus
        self.clock, self.hold = clock or time.time, hold
        self.asked = 0

    def nodes(self) -> list[Node]:
        return [Node(name, labels=dict(self.labels.get(name, {}))) for name in self.names]

    def ask(
        self, nodes: Sequence[Node], request: dict[str, Any], deadline: float, heard: Callable[[Answer], None]
    ) -> None:
        """Answer from several threads, each waiting for the node's delay."""
        import queue
        import threading

        waiting: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        for node in nodes:
            waiting.put(node.name)
        self.asked += len(nodes)

        def work() -> None:
            while (name := waiting.get()) is not None:
                heard(self._answer(name, request, deadline))

        threads = [
            threading.Thread(target=work) for _ in range(min(PARALLEL, len(nodes)) if self.hold else 1)
        ]
        for thread in threads:
            waiting.put(None)
            thread.start()
        for thread in threads:
            thread.join()

    def _answer(self, name: str, request: dict[str, Any], deadline: float) -> Answer:
        import time

        if name in self.dead:
            return Answer(name, DEAD, why=f"connect to {name} port 22: No route to host")
        if name in self.hung:
            time.sleep(min(deadline, self.hold))
            return Answer(name, SLOW, why=f"no answer in {deadline:.0f} s", seconds=deadline)
        if self.hold:
            time.sleep(self.hold)
        return Answer(name, ANSWERED, self._body(name, request), seconds=self.hold)

    def _body(self, name: str, request: dict[str, Any]) -> str:
        run = str(request.get("token", ""))
        if request.get("do") == "details":
            return facets.details(name, self.of(name), request["keys"], run=run)
        codes = self.codes.get(name, ())
        attempt = int(request.get("try", 1))
        return facets.line(
            name,
            self.of(name),
            "not-ready" if codes else "clear",
            codes,
            run=run,
            do=str(request.get("do", "check")),
            attempt=attempt,
            at=self.clock(),
            figures=self.figures(name, attempt) if self.figures else None,
        )

    def of(self, name: str) -> Facts:
        """Return the facts of one node: its own name, its own UUIDs and its differences."""
        own: dict[str, Any] = {"host.name": name}
        own["gpu.uuid"] = tuple(f"GPU-{name}-{at}" for at in range(self.gpus))
        own |= self.odd.get(name, {})
        return self.facts.also(*(Fact(key, value, "simulated") for key, value in own.items()))
