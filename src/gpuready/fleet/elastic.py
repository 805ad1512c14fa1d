"""Ask the nodes of a torchrun job through the store of torchrun's agents.

    torchrun --nnodes 4 --nproc-per-node 1 ... --no-python gpuready fleet check --engine elastic

No port but the store's is needed. torch is imported only by a script in the target environment.
"""

from __future__ import annotations

import json

from gpuready.fleet import driver, parcel
from gpuready.fleet.transport import CAP, LATE, Unreached
from gpuready.fleeted import Node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuready.cluster import Rendezvous
    from gpuready.system.crowd import Ended

JOIN = 60.0
IDLE = 1800.0
"""Seconds that a node waits for a request before it gives up."""


class Elastic(driver.Scripted):
    """The nodes of one torchrun job; only local rank 0 of each takes part."""

    name = "elastic"
    called, stranger, silent = "the store", "not of this job", "no word of it"

    def __init__(self, where: Rendezvous, host: str, python: str, *, idle: float = IDLE):
        if where.launcher != "torchrun" or not where.port or not where.nodes:
            raise Unreached("this is no job of torchrun: start gpuready under torchrun, once on each node")
        if not where.agent_store:
            raise Unreached(
                "torchrun's agents hold no store here (TORCHELASTIC_USE_AGENT_STORE): start it with torchrun itself"
            )
        self.where, self.host, self.python, self.idle = where, host, python, idle
        self.token = "".join(c for c in where.run_id or "job" if c.isalnum())[:32] + f"r{where.restart}"
        self.turn = 0
        self.numbers: dict[str, int] = {}

    @property
    def first(self) -> bool:
        return self.where.node == 0

    def nodes(self) -> list[Node]:
        """List every node of the job; one that did not join is down."""
        rows: dict[int, dict[str, str]] = {}

        def line(word: str, key: str, text: str) -> None:
            if word == "node":
                rows[int(key)] = json.loads(text)

        trouble, _ = self._drive("nodes", {}, b"", JOIN + LATE, line)
        if not rows:
            raise Unreached(f"the store of torchrun at {self.where.address}:{self.where.port}: {trouble}")
        hosts = [rows[n]["host"] if n in rows else f"node-{n}" for n in range(self.where.nodes)]
        names = [host if hosts.count(host) == 1 else f"{host}-{n}" for n, host in enumerate(hosts)]
        self.numbers = {name: n for n, name in enumerate(names)}
        return [
            Node(name, address=rows[n]["address"])
            if n in rows
            else Node(name, "down", f"it did not come to the store within {JOIN:g} s")
            for n, name in enumerate(names)
        ]

    def _knows(self, name: str) -> bool:
        return name in self.numbers

    def _send(self, names: list[str], orders: parcel.Orders, line: driver.Line) -> tuple[str, Ended]:
        told = {
            "names": {self.numbers[name]: name for name in names},
            "seconds": orders.deadline + LATE,
            "late": LATE,
        }
        limit = orders.deadline + 3 * LATE + JOIN
        answered = self._drive("ask", told, parcel.stdin(orders), limit, line)
        self.turn += 1
        return answered

    def serve(self) -> str:
        """On every node but the first: answer until told to end. Return the problem, if any."""
        trouble, _ = self._drive("serve", {}, b"", 24 * 3600.0, lambda *_: None)
        return trouble

    def close(self) -> None:
        """Tell the other nodes to end."""
        self._drive("end", {}, b"", JOIN, lambda *_: None)

    def _drive(
        self, role: str, more: dict[str, Any], data: bytes, limit: float, line: driver.Line
    ) -> tuple[str, Ended]:
        told = {
            "role": role,
            "address": self.where.address,
            "port": self.where.port,
            "run": self.token,
            "node": self.where.node,
            "nodes": self.where.nodes,
            "host": self.host,
            "python": self.python,
            "starter": parcel.STARTER,
            "join": JOIN,
            "idle": self.idle,
            "cap": CAP,
            "turn": self.turn,
            **more,
        }
        return driver.drive(self.python, "store.py", f"@gpuready-{self.token}", told, data, limit, line)
