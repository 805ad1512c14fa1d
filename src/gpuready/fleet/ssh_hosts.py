"""Plain hosts over OpenSSH, without Ray or Slurm: nothing is installed, no password is asked for."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from shlex import quote
from typing import Any

from gpuready.fleet import node_payload
from gpuready.fleet.transport import PARALLEL, AnswerTracker, OnAnswer, Request, last_output_line, validate_host_name
from gpuready.model import node_names
from gpuready.model.fleet import ABSENT, BUSY, DEAD, GARBLED, REFUSED, SLOW, FleetNode
from gpuready.system.live_host import LiveHost
from gpuready.system.own_folders import TemporaryFolder, write_scratch_file
from gpuready.system.process.parallel_programs import ProgramEnd, ProgramTask, run_programs

CONNECT, MIN_CONNECT, NODE_SHARE = 10, 2, 0.9
"""Seconds that a connection may take, and the least of them under a short --timeout; the share of a node's time that its program has."""
BEGIN_SECONDS = 15.0
"""Seconds from the start of ssh until gpuready begins on a node, where --timeout names none: who hangs after the login is not waited for."""
SSH_OPTIONS = (
    "BatchMode=yes", "ConnectionAttempts=1", "ServerAliveInterval=10",
    "ServerAliveCountMax=2", "LogLevel=ERROR", "ClearAllForwardings=yes", "ForwardAgent=no", "ForwardX11=no",
    "PermitLocalCommand=no", "RequestTTY=no", "RemoteCommand=none",
)  # fmt: skip
NO_CONNECTION = "no answer to a connection"
_SSH_ERRORS = (
    ("HOST IDENTIFICATION HAS CHANGED", REFUSED,
     "its host key has changed: another machine, or one set up anew; if it is, forget the old key with ssh-keygen -R"),
    ("Host key verification failed", REFUSED,
     "its host key is not known here: connect once by hand, or put it into known_hosts"),
    ("Permission denied", REFUSED,
     "it lets nobody in without a password, and nobody is there to type one: give it a key"),
    ("Too many authentication failures", REFUSED, "it turned down every key that was offered"),
    ("Could not resolve hostname", DEAD, "its name leads to no address"),
    ("Name or service not known", DEAD, "its name leads to no address"),
    ("Temporary failure in name resolution", DEAD, "its name could not be looked up now"),
    ("banner exchange", DEAD, "it takes a connection, and its SSH server says nothing: stopped, or overloaded"),
    ("Connection timed out", DEAD, NO_CONNECTION),
    ("Operation timed out", DEAD, NO_CONNECTION),
    ("Connection refused", DEAD, "nothing listens at its SSH port"),
    ("No route to host", DEAD, "no route leads there"),
    ("Network is unreachable", DEAD, "no route leads there"),
    ("not responding", DEAD, "the connection went silent"),
    ("Broken pipe", DEAD, "the connection broke"),
    ("Connection reset", BUSY, "its SSH server hung up"),
    ("Connection closed", BUSY, "its SSH server hung up"),
    ("Exceeded MaxStartups", BUSY, "its SSH server takes no more connections"),
    ("Resource temporarily unavailable", BUSY, "it could start no process"),
    ("Cannot allocate memory", BUSY, "it could start no process"),
)  # fmt: skip

_FOR_NOW = ("its name could not be looked up now", "the connection broke", "the connection went silent")
"""Reasons of a dead host that may pass: one that refuses at once, or that TCP has called for ten seconds, is not asked again."""


def parse_host_list(text: str, where: str = "--hosts") -> list[FleetNode]:
    """Parse hosts of a command line: ``n[01-16],user@gpu7:2222``."""
    return [_parse_host(name, where) for name in _expand_hosts(text)]


def parse_hostfile(text: str, where: str) -> list[FleetNode]:
    """Parse a host file of ColossalAI, DeepSpeed or MPI: one host a line, comments, ``slots=8``."""
    nodes: list[FleetNode] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        place = f"{where} line {number}"
        try:
            names = _expand_hosts(words[0])
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from None
        slots = next((w.partition("=")[2] for w in words[1:] if w.startswith(("slots=", "gpus="))), "")
        gpus = int(slots) if slots.isdecimal() and len(slots) < 5 else 0
        nodes += [_parse_host(name, place).replace(gpus=gpus) for name in names]
    if not nodes:
        raise ValueError(f"{where} names no host: write one on each line")
    return nodes


def is_hostfile(text: str) -> bool:
    """Whether a file has hosts and nothing else: a log may have the name of its node."""
    lines = [words for line in text.splitlines() if (words := line.partition("#")[0].split())]
    return bool(lines) and all("=" not in words[0] and all("=" in word for word in words[1:]) for words in lines)


def _expand_hosts(text: str) -> tuple[str, ...]:
    """Expand a node list, but not a bracketed address (``[fe80::1]``), which looks like one."""
    return (text,) if text.startswith("[") and ":" in text.partition("]")[0] else node_names.expand_nodelist(text)


def _parse_host(text: str, where: str) -> FleetNode:
    user, at, rest = text.rpartition("@")
    if text.startswith("-") or (at and not user):
        validate_host_name(text, where)
    if user:
        validate_host_name(user, where)
    host, port = rest, ""
    if rest.startswith("["):
        host, _, tail = rest[1:].partition("]")
        port = tail.removeprefix(":")
    elif rest.count(":") == 1:
        host, _, port = rest.partition(":")
    if port and not (port.isdecimal() and 0 < int(port[:6]) < 65536):
        raise ValueError(f"{where}: {text[:80]!r} has the port {port[:20]!r}, which is not a port")
    name = validate_host_name(host, where) + (f":{port}" if port else "")
    return FleetNode(name, labels={"user": user, "port": port}, address=host)


class SshTransport:
    """Ask each host over one ssh connection, at most ``parallel`` at a time."""

    name = "ssh"
    begin_seconds = BEGIN_SECONDS

    def __init__(
        self,
        hosts: Sequence[FleetNode],
        token: str,
        *,
        python: str = "python3",
        parallel: int = PARALLEL,
        variables: Mapping[str, str] | None = None,
    ):
        counts = Counter(host.name for host in hosts)
        self.notes = [
            f"{name} is named {count} times, and is asked once" for name, count in counts.items() if count > 1
        ]
        self.hosts = list({host.name: host for host in hosts}.values())
        self.token, self.python, self.parallel = token, python, parallel
        self.variables = variables
        self.send_package = False

    def list_nodes(self) -> list[FleetNode]:
        return self.hosts

    def ask_nodes(self, nodes: Sequence[FleetNode], request: Request, deadline: float, on_answer: OnAnswer) -> None:
        orders = node_payload.NodeOrders(request, NODE_SHARE * deadline, self.token)
        by_name = {node.name: node for node in nodes}
        tracker = AnswerTracker(by_name, orders.line_mark, on_answer)
        with TemporaryFolder(LiveHost().variables if self.variables is None else self.variables) as folder:
            files = StdinFiles(folder, orders)
            queue = _HostQueue(by_name.values(), lambda node: self._node_task(node, files, deadline))
            run_programs(
                queue,
                self.parallel,
                lambda key, text: tracker.track_line(text, key),
                lambda ended: self._handle_ssh_end(ended, tracker, queue, by_name),
                self.variables,
                lambda key, seconds: seconds > self.begin_seconds and tracker.waits_for(key),
            )
        tracker.report_left("it was not asked")

    def _node_task(self, node: FleetNode, files: StdinFiles, deadline: float) -> ProgramTask:
        connect = f"ConnectTimeout={max(min(CONNECT, int(NODE_SHARE * deadline)), MIN_CONNECT)}"
        words = ["ssh", *(word for option in (connect, *SSH_OPTIONS) for word in ("-o", option))]
        if node.labels.get("port"):
            words += ["-p", node.labels["port"]]
        user = node.labels.get("user")
        words += ["--", f"{user}@{node.address}" if user else node.address]
        return ProgramTask(
            node.name, (*words, remote_command(self.python, node.name)), deadline, files.path_for(self.send_package)
        )

    def _handle_ssh_end(
        self, ended: ProgramEnd, tracker: AnswerTracker, queue: _HostQueue, by_name: dict[str, FleetNode]
    ) -> None:
        name = ended.key
        if name in tracker.needing_gpuready:
            tracker.needing_gpuready.remove(name)
            self.send_package = True  # later hosts get gpuready at once
            if queue.ask_again(by_name[name]):
                return
        has_begun = tracker.has_begun(name)
        kind, why = self._classify_end(ended, has_begun)
        for_now = not has_begun and (kind == BUSY or why in _FOR_NOW)
        tracker.report_answer(name, kind, why=why, for_now=for_now)

    def _classify_end(self, ended: ProgramEnd, has_begun: bool) -> tuple[str, str]:
        return classify_ssh_failure(ended, has_begun, self.python)


def remote_command(python: str, name: str) -> str:
    """Build the command line for the remote shell. Its words are quoted; names were validated before."""
    return "exec " + " ".join(quote(word) for word in (python, "-I", "-c", node_payload.STARTER, name))


def classify_ssh_failure(ended: ProgramEnd, has_begun: bool, python: str) -> tuple[str, str]:
    """Return kind and reason for a connection that brought no answer."""
    if ended.end == "deadline":
        stuck = (
            "gpuready began there and did not end"
            if has_begun
            else "looking up its name, connecting or connected, and gpuready never began"
        )
        return SLOW, f"{stuck} within {ended.seconds:.0f} s; --timeout SECONDS waits longer"
    if ended.end == "a line too long":
        return GARBLED, "it wrote without end"
    if ended.end == "not found":
        return DEAD, "there is no ssh on this machine: install OpenSSH's client"
    if ended.end:
        return DEAD, f"ssh: {ended.end}"
    if ended.rc in (126, 127):
        return ABSENT, f"no {python} there: gpuready needs Python 3.10 or newer; name one with --python PATH"
    for fragment, kind, why in _SSH_ERRORS:
        if ended.rc == 255 and fragment in ended.err:
            return kind, why
    last_error = last_output_line(ended.err)
    if ended.rc == 0:
        return GARBLED, "no answer was in what it wrote"
    if ended.rc == 255:
        return DEAD if not last_error else REFUSED, f"ssh: {last_error.removeprefix('ssh: ') or 'ended without a word'}"
    return REFUSED, f"{python} there ended with {ended.rc}" + (f": {last_error}" if last_error else "")


class StdinFiles:
    """The stdin data without and with gpuready, written when first needed."""

    def __init__(self, folder: str, orders: node_payload.NodeOrders):
        self.folder, self.orders = folder, orders
        self.paths: dict[bool, str] = {}

    def path_for(self, send: bool) -> str:
        if send not in self.paths:
            stdin = node_payload.build_stdin(self.orders.replace(send=send))
            self.paths[send] = write_scratch_file(f"{self.folder}/{'with' if send else 'without'}", stdin)
        return self.paths[send]


class _HostQueue:
    """The hosts still to be asked; one that needs gpuready is asked again first."""

    def __init__(self, nodes: Any, task: Callable[[FleetNode], ProgramTask]):
        self.waiting, self.task, self.asked_again = deque(nodes), task, set[str]()

    def __iter__(self) -> _HostQueue:
        return self

    def __next__(self) -> ProgramTask:
        if not self.waiting:
            raise StopIteration
        return self.task(self.waiting.popleft())

    def ask_again(self, node: FleetNode) -> bool:
        """Ask a host once more; False for one that was asked twice already, or it could keep the run going for ever."""
        if node.name in self.asked_again:
            return False
        self.asked_again.add(node.name)
        self.waiting.appendleft(node)
        return True
