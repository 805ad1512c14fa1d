"""Recordings of machines as the nodes of a fleet: nothing is reached, each file is judged here."""

import json
from collections.abc import Collection, Mapping, Sequence

from gpuready import system
from gpuready.fleet.transport import OnAnswer, Request
from gpuready.model.fleet import ANSWERED, REFUSED, UNREAD, FleetNode
from gpuready.model.fleet import NodeAnswer as Answer
from gpuready.system.recording import query_key
from gpuready.workflow import fleet_node
from gpuready.workflow.machine_facts import read_recording
from gpuready.workflow.refusal import Refused, read_named_file


class RecordedTransport:
    """The newest recording of each node, named after its host; a file that cannot be read is a node of its own."""

    name = "recordings"

    def __init__(self, paths: Sequence[str], token: str):
        self.token = token
        self.paths: dict[str, str] = {}
        self.notes: list[str] = []
        self.unread: dict[str, Refused] = {}
        by_host: dict[str, list[str]] = {}
        for path in dict.fromkeys(paths):
            try:
                host = read_recording(path).host or path.rpartition("/")[2].removesuffix(".json")
                by_host.setdefault(host, []).append(path)
            except Refused as error:
                self.unread[path] = error
        require_any_read(self.unread, self.unread.keys() | by_host.keys())
        for host, several in by_host.items():
            *older, self.paths[host] = sorted(several, key=_read_times)
            if older:
                told = f"{self.paths[host]} counts, which is newer than {' and '.join(older)}"
                self.notes.append(f"{host} has {len(several)} recordings: {told}")

    def list_nodes(self) -> list[FleetNode]:
        unread = [FleetNode(path, UNREAD, shorten_refusal(error, path)) for path, error in self.unread.items()]
        return [*map(FleetNode, self.paths), *unread]

    def ask_nodes(self, nodes: Sequence[FleetNode], request: Request, deadline: float, on_answer: OnAnswer) -> None:
        if request["do"] not in ("check", "fingerprint", "details"):
            raise Refused("recordings are compared and judged: prove, bench and bisect need the machines themselves")
        refused: dict[str, Refused] = {}
        asked = [node.name for node in nodes if node.name in self.paths]
        for name in asked:
            options = {**request["options"], "on": self.paths[name]}
            try:
                answer = fleet_node.NODE_ACTIONS[request["do"]]({**request, "options": options}, name)
            except Refused as error:
                refused[name] = error
            else:
                on_answer(Answer(name, ANSWERED, answer))
        require_any_read(refused, asked)
        for name, error in refused.items():
            on_answer(Answer(name, REFUSED, why=str(error)))


def _read_times(path: str) -> tuple[float, float]:
    """When a recording was made by the clock of its machine, or 0; and when its file was written."""
    tape = json.loads(read_named_file(path)).get("tape")
    clock = tape.get(query_key("wall")) if isinstance(tape, dict) else None
    written = (system.LiveHost().stat_path(path) or {}).get("mtime", 0)
    return float(clock) if isinstance(clock, (int, float)) else 0.0, float(written)


def require_any_read(unread: Mapping[str, Refused], named: Collection[str]) -> None:
    """Refused, for the reason of the first, where nothing of what was named can be judged."""
    if unread and len(unread) == len(named):
        raise next(iter(unread.values()))


def shorten_refusal(error: Refused, path: str) -> str:
    """``a.json is empty; record a machine with ...`` without the name, which stands beside it, and the advice."""
    return str(error).replace(f"--python {path}", path).removeprefix(path).lstrip(" :").partition(";")[0]
