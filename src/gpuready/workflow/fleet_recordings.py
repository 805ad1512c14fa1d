"""Recordings of machines as the nodes of a fleet: nothing is reached, each file is judged here."""

from collections.abc import Sequence

from gpuready.fleet.transport import OnAnswer, Request
from gpuready.model.fleet import ANSWERED, FleetNode
from gpuready.model.fleet import NodeAnswer as Answer
from gpuready.workflow import fleet_node
from gpuready.workflow.machine_facts import read_recording
from gpuready.workflow.refusal import Refused


class RecordedTransport:
    """A recording for each node, named after its host; hosts of one name are told apart by their files."""

    name = "recordings"

    def __init__(self, paths: Sequence[str], token: str):
        hosts = {path: read_recording(path).host or path for path in dict.fromkeys(paths)}
        named = list(hosts.values())
        self.token = token
        self.paths = {host if named.count(host) == 1 else path: path for path, host in hosts.items()}

    def list_nodes(self) -> list[FleetNode]:
        return [FleetNode(name) for name in self.paths]

    def ask_nodes(self, nodes: Sequence[FleetNode], request: Request, deadline: float, on_answer: OnAnswer) -> None:
        if request["do"] not in ("check", "fingerprint", "details"):
            raise Refused("recordings are compared and judged: prove, bench and bisect need the machines themselves")
        for node in nodes:
            options = {**request["options"], "on": self.paths[node.name]}
            answer = fleet_node.NODE_ACTIONS[request["do"]]({**request, "options": options}, node.name)
            on_answer(Answer(node.name, ANSWERED, answer))
