"""Ray: one task pinned to each live node. Ray is imported only by a script in the environment that has it.

``address`` is Ray's own (host:6379, ``auto``, or RAY_ADDRESS) or the dashboard's (http://host:8265), to which
the same script is submitted as a Ray job. Ray's variables are passed on, so clusters with tokens work.
"""

from __future__ import annotations

import json

from gpuready.fleet import driver, parcel
from gpuready.fleet.transport import CAP, LATE, PARALLEL, Unreached
from gpuready.fleeted import Node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gpuready.system import Door
    from gpuready.system.crowd import Ended

JOIN = 60.0
"""Seconds that Ray may take to accept the driver."""


class Ray(driver.Scripted):
    name = "ray"
    called, stranger, silent = "Ray", "Ray does not know it", "no word of its task"

    def __init__(
        self,
        door: Door,
        token: str,
        *,
        address: str = "",
        interpreter: str = "",
        python: str = "",
        parallel: int = PARALLEL,
        variables: Mapping[str, str] | None = None,
    ):
        self.address = address
        self.interpreter = interpreter or with_ray(door)
        self.token, self.python, self.parallel, self.variables = token, python, parallel, variables
        self.ids: dict[str, str] = {}

    def nodes(self) -> list[Node]:
        """List every node that Ray knows; a dead one only if no other has taken its address."""
        rows: list[tuple[str, dict[str, Any]]] = []

        def line(word: str, key: str, text: str) -> None:
            if word == "node":
                rows.append((key, json.loads(text)))

        trouble, _ = self._drive({"do": "nodes"}, b"", JOIN, line)
        if not rows:
            raise Unreached(f"Ray does not answer: {trouble or 'it told of no node'}")
        named = self._named(rows)
        self.ids = {node.name: key for key, node in named}
        return [node for _, node in named]

    def _named(self, rows: list[tuple[str, dict[str, Any]]]) -> list[tuple[str, Node]]:
        alive = {row["address"] for _, row in rows if row["alive"]}
        kept = [(key, row) for key, row in rows if row["alive"] or _lately(row, alive)]
        said = [str(row["name"] or row["host"] or row["address"]) for _, row in kept]
        found = []
        for (key, row), name in zip(kept, said, strict=True):
            plain = "".join(char if char.isalnum() or char in "._-" else "-" for char in name) or "node"
            unique = (
                plain if said.count(name) == 1 and row["name"] != row["address"] else f"{plain}-{key[:8]}"
            )
            state, why = ("up", "") if row["alive"] else ("down", row["why"] or "Ray has it as dead")
            found.append((key, Node(unique, state, why, row["gpus"], row["labels"], row["address"])))
        return found

    def _knows(self, name: str) -> bool:
        return name in self.ids

    def _send(self, names: list[str], orders: parcel.Orders, line: driver.Line) -> tuple[str, Ended]:
        seconds = orders.deadline + LATE
        turns = -(-len(names) // self.parallel)
        told = {
            "do": "ask",
            "nodes": [{"name": name, "id": self.ids[name]} for name in names],
            "seconds": seconds,
            "late": LATE + 10.0,  # time for Ray to start a worker
            "parallel": self.parallel,
            "cap": CAP,
            "python": self.python,
            "starter": parcel.STARTER,
        }
        return self._drive(told, parcel.stdin(orders), JOIN + turns * (seconds + LATE + 10.0), line)

    def _drive(self, told: dict[str, Any], data: bytes, limit: float, line: driver.Line) -> tuple[str, Ended]:
        whole = {"address": self.address, **told}
        mark = f"@gpuready-{self.token}"
        return driver.drive(self.interpreter, "ray_tasks.py", mark, whole, data, limit, line, self.variables)


def _lately(row: dict[str, Any], alive: set[str]) -> bool:
    """Whether a dead node's address was not taken over, or it shares a host with others (a test cluster)."""
    return row["address"] not in alive or bool(row["name"] and row["name"] != row["address"])


def with_ray(door: Door) -> str:
    """Return a Python that has Ray: gpuready's own, else the one in the #! line of the program ``ray``."""
    import importlib.util

    own = door.interpreter()["executable"]
    if importlib.util.find_spec("ray") is not None:
        return own
    program = door.which("ray")
    first = (door.read(program, 4096) or "").partition("\n")[0] if program else ""
    if first.startswith("#!/") and "python" in first and " " not in first:
        return first[2:].strip()
    raise Unreached(
        "Ray is not here: pip install gpuready[ray], or name the Python that has it with --python"
    )
