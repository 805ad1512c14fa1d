"""Ray: one task pinned to each live node. Ray is imported only by a script in the environment that has it.

``address`` is Ray's own (host:6379, ``auto``, or RAY_ADDRESS) or the dashboard's (http://host:8265), to which
the same script is submitted as a Ray job. Ray's variables are passed on, so clusters with tokens work.
"""

import importlib.util
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpuready.fleet import node_payload
from gpuready.fleet.transport import (
    GRACE_SECONDS,
    MAX_BODY_BYTES,
    PARALLEL,
    AnswerTracker,
    OnAnswer,
    Request,
    TransportUnavailable,
    last_output_line,
)
from gpuready.model.fleet import DEAD, SLOW, FleetNode
from gpuready.system import HostAccess
from gpuready.system.live_host import LiveHost
from gpuready.system.own_folders import TemporaryFolder, write_scratch_file
from gpuready.system.process.parallel_programs import ProgramEnd, ProgramTask, run_programs

LineHandler = Callable[[str, str, str], None]
JOIN_SECONDS = 60.0
"""Seconds that Ray may take to accept the driver."""


class RayTransport:
    """Nodes that lack gpuready are asked again with gpuready attached."""

    name = "ray"

    def __init__(
        self,
        host: HostAccess,
        token: str,
        *,
        address: str = "",
        interpreter: str = "",
        python: str = "",
        parallel: int = PARALLEL,
        variables: Mapping[str, str] | None = None,
    ):
        self.address = address
        self.interpreter = interpreter or find_ray_python(host)
        self.token, self.python, self.parallel, self.variables = token, python, parallel, variables
        self.ray_ids: dict[str, str] = {}

    def list_nodes(self) -> list[FleetNode]:
        """List every node that Ray knows; a dead one only if no other has taken its address."""
        rows: list[tuple[str, dict[str, Any]]] = []

        def collect_ray_node(word: str, key: str, text: str) -> None:
            if word == "node":
                rows.append((key, json.loads(text)))

        problem, _ = self._run_ray_script({"do": "nodes"}, b"", JOIN_SECONDS, collect_ray_node)
        if not rows:
            raise TransportUnavailable(f"Ray does not answer: {problem or 'it told of no node'}")
        named = self._name_nodes(rows)
        self.ray_ids = {node.name: key for key, node in named}
        return [node for _, node in named]

    def _name_nodes(self, rows: list[tuple[str, dict[str, Any]]]) -> list[tuple[str, FleetNode]]:
        alive = {row["address"] for _, row in rows if row["alive"]}
        # of the dead those whose address was not taken over, or that share a host with others (a test cluster)
        dead = [
            key for key, row in rows if row["address"] not in alive or (row["name"] and row["name"] != row["address"])
        ]
        kept = [(key, row) for key, row in rows if row["alive"] or key in dead]
        reported_names = [str(row["name"] or row["host"] or row["address"]) for _, row in kept]
        nodes = []
        for (key, row), name in zip(kept, reported_names, strict=True):
            plain = "".join(char if char.isalnum() or char in "._-" else "-" for char in name) or "node"
            unique = (
                plain if reported_names.count(name) == 1 and row["name"] != row["address"] else f"{plain}-{key[:8]}"
            )
            state, why = ("up", "") if row["alive"] else ("down", row["why"] or "Ray has it as dead")
            nodes.append((key, FleetNode(unique, state, why, row["gpus"], row["labels"], row["address"])))
        return nodes

    def ask_nodes(self, nodes: Sequence[FleetNode], request: Request, deadline: float, on_answer: OnAnswer) -> None:
        orders = node_payload.NodeOrders(request, deadline, self.token)
        tracker = AnswerTracker([node.name for node in nodes], orders.line_mark, on_answer)
        for node in nodes:
            if node.state != "up" or node.name not in self.ray_ids:
                tracker.report_answer(node.name, DEAD, why=node.why or "Ray does not know it")
        self._ask_and_report(list(tracker.unanswered), tracker, orders)
        self._ask_and_report(tracker.take_needing(), tracker, orders.replace(send=True))
        tracker.report_left("no word of its task")

    def _ask_and_report(self, names: list[str], tracker: AnswerTracker, orders: node_payload.NodeOrders) -> None:
        if not names:
            return

        def forward_line(word: str, key: str, text: str) -> None:
            tracker.track_line(f"{orders.line_mark} {word} {key} {text}")

        trouble, ended = self._send_orders(names, orders, forward_line)
        for name in names:
            if trouble and name in tracker.unanswered and name not in tracker.needing_gpuready:
                kind = SLOW if ended.end == "deadline" else DEAD
                tracker.report_answer(name, kind, why=f"Ray: {trouble}")

    def _send_orders(
        self, names: list[str], orders: node_payload.NodeOrders, on_line: LineHandler
    ) -> tuple[str, ProgramEnd]:
        seconds = orders.deadline + GRACE_SECONDS
        turns = -(-len(names) // self.parallel)
        fields = {
            "do": "ask",
            "nodes": [{"name": name, "id": self.ray_ids[name]} for name in names],
            "seconds": seconds,
            "late": GRACE_SECONDS + 10.0,  # time for Ray to start a worker
            "parallel": self.parallel,
            "cap": MAX_BODY_BYTES,
            "python": self.python,
            "starter": node_payload.STARTER,
        }
        return self._run_ray_script(
            fields, node_payload.build_stdin(orders), JOIN_SECONDS + turns * (seconds + GRACE_SECONDS + 10.0), on_line
        )

    def _run_ray_script(
        self, fields: dict[str, Any], data: bytes, limit: float, on_line: LineHandler
    ) -> tuple[str, ProgramEnd]:
        """Call ``on_line(word, key, text)`` for the lines of our script in Ray's Python; return Ray's problem and the script's end."""
        mark, endings, trouble = f"@gpuready-{self.token}", list[ProgramEnd](), list[str]()

        def handle_output(_: str, text: str) -> bool:
            if not text.startswith(f"{mark} "):
                return False
            word, _, rest = text[len(mark) + 1 :].partition(" ")
            key, _, body = rest.partition(" ")
            if word == "engine":
                trouble.append(body)
            elif word != "end":
                on_line(word, key, body)
            return word == "end"

        with TemporaryFolder(LiveHost().variables if self.variables is None else self.variables) as folder:
            orders = json.dumps({"mark": mark, "address": self.address, **fields}).encode("ascii") + b"\n" + data
            path = write_scratch_file(f"{folder}/orders", orders)
            argv = (self.interpreter, f"{node_payload.SCRIPTS}/ray_tasks.py", path)
            env: dict[str, str | None] = {"PYTHONUNBUFFERED": "1", "RAY_DEDUP_LOGS": "0"}
            run_programs([ProgramTask("ray", argv, limit, env=env)], 1, handle_output, endings.append, self.variables)
        return trouble[0] if trouble else _describe_script_failure(endings[0]), endings[0]


def _describe_script_failure(ended: ProgramEnd) -> str:
    if ended.end == "heard" or (not ended.end and ended.rc == 0):
        return ""
    if ended.end == "deadline":
        return f"no answer within {ended.seconds:.0f} s"
    return last_output_line(ended.err) or ended.end or f"it ended with {ended.rc}"


def find_ray_python(host: HostAccess) -> str:
    """Return a Python that has Ray: gpuready's own, else the one in the #! line of the program ``ray``."""
    own = host.get_interpreter()["executable"]
    if importlib.util.find_spec("ray") is not None:
        return own
    program = host.find_program("ray")
    first = (host.read_text(program, 4096) or "").partition("\n")[0] if program else ""
    if first.startswith("#!/") and "python" in first and " " not in first:
        return first[2:].strip()
    raise TransportUnavailable(
        "Ray is not here: pip install 'ray[default]', or name the Python that has it with --python"
    )
