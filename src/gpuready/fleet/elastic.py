"""Ask the nodes of a torchrun job through the store of torchrun's agents.

    torchrun --nnodes 4 --nproc-per-node 1 ... --no-python gpuready fleet check --engine elastic

No port but the store's is needed. torch is imported only by a script in the target environment.
"""

from __future__ import annotations

import json
from typing import Any

from gpuready.cluster import Rendezvous
from gpuready.fleet import node_payload, script_driver
from gpuready.fleet.transport import GRACE_SECONDS, MAX_BODY_BYTES, TransportUnavailable
from gpuready.model.fleet import FleetNode
from gpuready.system.process.parallel_programs import ProgramEnd

JOIN_SECONDS = 60.0
IDLE_SECONDS = 1800.0
"""Seconds that a node waits for a request before it gives up."""


class ElasticTransport(script_driver.ScriptedTransport):
    """The nodes of one torchrun job; only local rank 0 of each takes part."""

    name = "elastic"
    engine_name, unknown_node_reason, silent_node_reason = "the store", "not of this job", "no word of it"

    def __init__(self, rendezvous: Rendezvous, host: str, python: str, *, idle: float = IDLE_SECONDS):
        if rendezvous.launcher != "torchrun" or not rendezvous.port or not rendezvous.nodes:
            raise TransportUnavailable("this is not a torchrun job: start gpuready under torchrun, once on each node")
        if not rendezvous.agent_store:
            raise TransportUnavailable(
                "torchrun's agents hold no store here (TORCHELASTIC_USE_AGENT_STORE): start it with torchrun itself"
            )
        self.rendezvous, self.host, self.python, self.idle = rendezvous, host, python, idle
        self.token = "".join(c for c in rendezvous.run_id or "job" if c.isalnum())[:32] + f"r{rendezvous.restart}"
        self.turn = 0
        self.node_numbers: dict[str, int] = {}

    @property
    def is_first_node(self) -> bool:
        return self.rendezvous.node == 0

    def list_nodes(self) -> list[FleetNode]:
        """List every node of the job; one that did not join is down."""
        rows: dict[int, dict[str, str]] = {}

        def collect_store_node(word: str, key: str, text: str) -> None:
            if word == "node":
                rows[int(key)] = json.loads(text)

        problem, _ = self._run_store_script("nodes", {}, b"", JOIN_SECONDS + GRACE_SECONDS, collect_store_node)
        if not rows:
            raise TransportUnavailable(
                f"the store of torchrun at {self.rendezvous.address}:{self.rendezvous.port}: {problem}"
            )
        hosts = [rows[n]["host"] if n in rows else f"node-{n}" for n in range(self.rendezvous.nodes)]
        names = [host if hosts.count(host) == 1 else f"{host}-{n}" for n, host in enumerate(hosts)]
        self.node_numbers = {name: n for n, name in enumerate(names)}
        return [
            FleetNode(name, address=rows[n]["address"])
            if n in rows
            else FleetNode(name, "down", f"it did not come to the store within {JOIN_SECONDS:g} s")
            for n, name in enumerate(names)
        ]

    def _knows_node(self, name: str) -> bool:
        return name in self.node_numbers

    def _send_orders(
        self, names: list[str], orders: node_payload.NodeOrders, on_line: script_driver.LineHandler
    ) -> tuple[str, ProgramEnd]:
        fields = {
            "names": {self.node_numbers[name]: name for name in names},
            "seconds": orders.deadline + GRACE_SECONDS,
            "late": GRACE_SECONDS,
        }
        limit = orders.deadline + 3 * GRACE_SECONDS + JOIN_SECONDS
        result = self._run_store_script("ask", fields, node_payload.build_stdin(orders), limit, on_line)
        self.turn += 1
        return result

    def serve_requests(self) -> str:
        """On every node but the first: answer until asked to end. Return the problem, if any."""
        trouble, _ = self._run_store_script("serve", {}, b"", 24 * 3600.0, lambda *_: None)
        return trouble

    def close(self) -> None:
        """Tell the other nodes to end."""
        self._run_store_script("end", {}, b"", JOIN_SECONDS, lambda *_: None)

    def _run_store_script(
        self, role: str, extra_fields: dict[str, Any], data: bytes, limit: float, on_line: script_driver.LineHandler
    ) -> tuple[str, ProgramEnd]:
        header = {
            "role": role,
            "address": self.rendezvous.address,
            "port": self.rendezvous.port,
            "run": self.token,
            "node": self.rendezvous.node,
            "nodes": self.rendezvous.nodes,
            "host": self.host,
            "python": self.python,
            "starter": node_payload.STARTER,
            "join": JOIN_SECONDS,
            "idle": self.idle,
            "cap": MAX_BODY_BYTES,
            "turn": self.turn,
            **extra_fields,
        }
        return script_driver.run_engine_script(
            self.python, "store.py", f"@gpuready-{self.token}", header, data, limit, on_line
        )
