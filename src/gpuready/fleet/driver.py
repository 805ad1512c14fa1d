"""Run one of our scripts in another Python (with Ray or torch) and read its output line by line."""

from __future__ import annotations

import json
import time

from gpuready.fleet import parcel
from gpuready.fleet.transport import Hearing, last_line
from gpuready.fleeted import DEAD, SLOW
from gpuready.system.crowd import Task, crowd
from gpuready.system.live import Live
from gpuready.system.scratch import Scratch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from gpuready.fleeted import Answer, Node
    from gpuready.system.crowd import Ended

    Line = Callable[[str, str, str], None]


class Scripted:
    """A transport behind one script. Nodes that lack gpuready are asked again with gpuready attached."""

    token: str
    called: str  # name of the engine in error messages
    stranger: str  # reason for nodes unknown to the engine
    silent: str  # reason for nodes that sent nothing

    def ask(
        self,
        nodes: Sequence[Node],
        request: dict[str, Any],
        deadline: float,
        heard: Callable[[Answer], None],
    ) -> None:
        orders = parcel.Orders(request, deadline, self.token)
        hearing = Hearing([node.name for node in nodes], orders.mark, heard, time.monotonic())
        for node in nodes:
            if node.state != "up" or not self._knows(node.name):
                hearing.tell(node.name, DEAD, why=node.why or self.stranger, now=time.monotonic())
        self._ask(list(hearing.left), hearing, orders)
        needy, hearing.needy = hearing.needy, []
        self._ask(needy, hearing, orders.but(send=True))
        for name in list(hearing.left):
            hearing.tell(name, DEAD, why=self.silent, now=time.monotonic())

    def _ask(self, names: list[str], hearing: Hearing, orders: parcel.Orders) -> None:
        if not names:
            return

        def line(word: str, key: str, text: str) -> None:
            hearing.line(f"{orders.mark} {word} {key} {text}", time.monotonic())

        trouble, ended = self._send(names, orders, line)
        for name in names:
            if trouble and name in hearing.left and name not in hearing.needy:
                kind = SLOW if ended.end == "deadline" else DEAD
                hearing.tell(name, kind, why=f"{self.called}: {trouble}", now=time.monotonic())

    def _knows(self, name: str) -> bool:
        raise NotImplementedError

    def _send(self, names: list[str], orders: parcel.Orders, line: Line) -> tuple[str, Ended]:
        """Run the script for these nodes; return the engine's problem, if any, and how the script ended."""
        raise NotImplementedError


def drive(
    python: str,
    script: str,
    mark: str,
    told: Mapping[str, Any],
    data: bytes,
    limit: float,
    line: Line,
    variables: Mapping[str, str] | None = None,
) -> tuple[str, Ended]:
    """Run the script and call ``on_line(word, key, text)`` for its lines; return the engine's problem and the
    script's end.
    """
    over: list[Ended] = []
    trouble: list[str] = []

    def heard(_: str, text: str) -> bool:
        if not text.startswith(f"{mark} "):
            return False
        word, _, rest = text[len(mark) + 1 :].partition(" ")
        key, _, body = rest.partition(" ")
        if word == "engine":
            trouble.append(body)
        elif word != "end":
            line(word, key, body)
        return word == "end"

    with Scratch(Live().variables if variables is None else variables) as folder:
        path = f"{folder}/orders"
        with open(path, "wb") as file:
            file.write(json.dumps({"mark": mark, **told}).encode("ascii") + b"\n" + data)
        argv = (python, f"{parcel.SCRIPTS}/{script}", path)
        env: dict[str, str | None] = {"PYTHONUNBUFFERED": "1", "RAY_DEDUP_LOGS": "0"}
        crowd([Task(script, argv, limit, env=env)], 1, heard, over.append, variables)
    return trouble[0] if trouble else _wrong(over[0]), over[0]


def _wrong(ended: Ended) -> str:
    if ended.end == "heard" or (not ended.end and ended.rc == 0):
        return ""
    if ended.end == "deadline":
        return f"no answer within {ended.seconds:.0f} s"
    return last_line(ended.err) or ended.end or f"it ended with {ended.rc}"
