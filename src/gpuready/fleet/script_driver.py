"""Run one of our scripts in another Python (with Ray or torch) and read its output line by line."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpuready.fleet import node_payload
from gpuready.fleet.transport import AnswerTracker, OnAnswer, Request, last_output_line
from gpuready.model.fleet import DEAD, SLOW, FleetNode
from gpuready.system.live_host import LiveHost
from gpuready.system.own_folders import TemporaryFolder, write_scratch_file
from gpuready.system.process.parallel_programs import ProgramEnd, ProgramTask, run_programs

LineHandler = Callable[[str, str, str], None]


class ScriptedTransport:
    """A transport behind one script. Nodes that lack gpuready are asked again with gpuready attached."""

    token: str
    engine_name: str  # name of the engine in error messages
    unknown_node_reason: str  # reason for nodes unknown to the engine
    silent_node_reason: str  # reason for nodes that sent nothing

    def ask_nodes(self, nodes: Sequence[FleetNode], request: Request, deadline: float, on_answer: OnAnswer) -> None:
        orders = node_payload.NodeOrders(request, deadline, self.token)
        tracker = AnswerTracker([node.name for node in nodes], orders.line_mark, on_answer, time.monotonic())
        for node in nodes:
            if node.state != "up" or not self._knows_node(node.name):
                tracker.report_answer(node.name, DEAD, why=node.why or self.unknown_node_reason, now=time.monotonic())
        self._ask_and_report(list(tracker.unanswered), tracker, orders)
        needing_gpuready, tracker.needing_gpuready = tracker.needing_gpuready, []
        self._ask_and_report(needing_gpuready, tracker, orders.replace(send=True))
        for name in list(tracker.unanswered):
            tracker.report_answer(name, DEAD, why=self.silent_node_reason, now=time.monotonic())

    def _ask_and_report(self, names: list[str], tracker: AnswerTracker, orders: node_payload.NodeOrders) -> None:
        if not names:
            return

        def forward_line(word: str, key: str, text: str) -> None:
            tracker.track_line(f"{orders.line_mark} {word} {key} {text}", time.monotonic())

        trouble, ended = self._send_orders(names, orders, forward_line)
        for name in names:
            if trouble and name in tracker.unanswered and name not in tracker.needing_gpuready:
                kind = SLOW if ended.end == "deadline" else DEAD
                tracker.report_answer(name, kind, why=f"{self.engine_name}: {trouble}", now=time.monotonic())

    def _knows_node(self, name: str) -> bool:
        raise NotImplementedError

    def _send_orders(
        self, names: list[str], orders: node_payload.NodeOrders, on_line: LineHandler
    ) -> tuple[str, ProgramEnd]:
        """Run the script for these nodes; return the engine's problem, if any, and how the script ended."""
        raise NotImplementedError


def run_engine_script(
    python: str,
    script: str,
    mark: str,
    header: Mapping[str, Any],
    data: bytes,
    limit: float,
    on_line: LineHandler,
    variables: Mapping[str, str] | None = None,
) -> tuple[str, ProgramEnd]:
    """Run the script and call ``on_line(word, key, text)`` for its lines; return the engine's problem and the
    script's end.
    """
    endings: list[ProgramEnd] = []
    trouble: list[str] = []

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

    with TemporaryFolder(LiveHost().variables if variables is None else variables) as folder:
        orders = json.dumps({"mark": mark, **header}).encode("ascii") + b"\n" + data
        path = write_scratch_file(f"{folder}/orders", orders)
        argv = (python, f"{node_payload.SCRIPTS}/{script}", path)
        env: dict[str, str | None] = {"PYTHONUNBUFFERED": "1", "RAY_DEDUP_LOGS": "0"}
        run_programs([ProgramTask(script, argv, limit, env=env)], 1, handle_output, endings.append, variables)
    return trouble[0] if trouble else _describe_script_failure(endings[0]), endings[0]


def _describe_script_failure(ended: ProgramEnd) -> str:
    if ended.end == "heard" or (not ended.end and ended.rc == 0):
        return ""
    if ended.end == "deadline":
        return f"no answer within {ended.seconds:.0f} s"
    return last_output_line(ended.err) or ended.end or f"it ended with {ended.rc}"
