"""Recordings of machines as the nodes of a fleet: nothing is reached, each file is judged here."""

import json
from collections.abc import Collection, Mapping, Sequence

from gpuready import system
from gpuready.fleet.transport import OnAnswer, Request
from gpuready.model.fleet import ANSWERED, UNREAD, FleetNode
from gpuready.model.fleet import NodeAnswer as Answer
from gpuready.system.recording import query_key
from gpuready.workflow import fleet_node
from gpuready.workflow.machine_facts import read_recording
from gpuready.workflow.refusal import Refused, read_named_file


class RecordedTransport:
    """The newest recording of each node, named after its host; a file that cannot be read is a node of its own."""

    name = "recordings"

    def __init__(self, paths: Sequence[str], token: str):
        self.token, self.paths, self.notes = token, dict[str, str](), list[str]()
        unread, by_host = dict[str, Refused](), dict[str, list[str]]()
        for path in dict.fromkeys(paths):
            try:
                host = read_recording(path).host or path.rpartition("/")[2].removesuffix(".json")
                by_host.setdefault(host, []).append(path)
            except Refused as error:
                unread[path] = error
        require_any_read(unread, unread.keys() | by_host.keys())
        for host, several in by_host.items():
            *older, self.paths[host] = sorted(several, key=_read_times)
            if older:
                named = f"{host} has {len(several)} recordings: {self.paths[host]} counts"
                self.notes.append(f"{named}, which is newer than {' and '.join(older)}")

        self.nodes = [*map(FleetNode, self.paths)]
        self.nodes += [FleetNode(path, UNREAD, shorten_refusal(error, path)) for path, error in unread.items()]

    def list_nodes(self) -> list[FleetNode]:
        return self.nodes

    def ask_nodes(self, nodes: Sequence[FleetNode], request: Request, deadline: float, on_answer: OnAnswer) -> None:
        if request["do"] not in ("check", "fingerprint", "details"):
            raise Refused("recordings are compared and judged: prove, bench and bisect need the machines themselves")
        for name in (node.name for node in nodes if node.name in self.paths):
            options = {**request["options"], "on": self.paths[name]}
            answer = fleet_node.NODE_ACTIONS[request["do"]]({**request, "options": options}, name)
            on_answer(Answer(name, ANSWERED, answer))


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
