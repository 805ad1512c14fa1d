"""Plain hosts over OpenSSH, without Ray or Slurm: nothing is installed, no password is asked for."""

from __future__ import annotations

import time
from collections import deque

from gpuready.cluster import nodelist
from gpuready.fleet import parcel
from gpuready.fleet.transport import LATE, PARALLEL, Hearing, checked, last_line
from gpuready.fleeted import DEAD, GARBLED, REFUSED, SLOW, Node
from gpuready.system.crowd import Task, crowd
from gpuready.system.live import Live
from gpuready.system.scratch import Scratch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from gpuready.fleeted import Answer
    from gpuready.system.crowd import Ended

CONNECT = 10
OPTIONS = (
    "BatchMode=yes", f"ConnectTimeout={CONNECT}", "ConnectionAttempts=1", "ServerAliveInterval=10",
    "ServerAliveCountMax=2", "LogLevel=ERROR", "ClearAllForwardings=yes", "ForwardAgent=no", "ForwardX11=no",
    "PermitLocalCommand=no", "RequestTTY=no", "RemoteCommand=none",
)  # fmt: skip
_SAYS = (
    ("HOST IDENTIFICATION HAS CHANGED", REFUSED,
     "its host key has changed: another machine, or one set up anew; if it is, forget the old key with ssh-keygen -R"),
    ("Host key verification failed", REFUSED,
     "its host key is not known here: connect once by hand, or put it into known_hosts"),
    ("Permission denied", REFUSED,
     "it lets nobody in without a password, and nobody is there to type one: give it a key"),
    ("Too many authentication failures", REFUSED, "it turned down every key that was offered"),
    ("Could not resolve hostname", DEAD, "its name leads to no address"),
    ("Name or service not known", DEAD, "its name leads to no address"),
    ("Connection timed out", DEAD, f"no answer to a connection within {CONNECT} s"),
    ("Operation timed out", DEAD, f"no answer to a connection within {CONNECT} s"),
    ("Connection refused", DEAD, "nothing listens at its SSH port"),
    ("No route to host", DEAD, "no route leads there"),
    ("Network is unreachable", DEAD, "no route leads there"),
    ("not responding", DEAD, "the connection went silent"),
    ("Broken pipe", DEAD, "the connection broke"),
    ("Connection reset", REFUSED, "its SSH server hung up"),
    ("Connection closed", REFUSED, "its SSH server hung up"),
    ("banner exchange", DEAD, "what listens at its SSH port does not answer"),
)  # fmt: skip


def listed(text: str, where: str = "--hosts") -> list[Node]:
    """Parse hosts given on a command line: ``n[01-16],user@gpu7:2222``."""
    return _unique([_host(name, where) for name in _expanded(text)], where)


def hostfile(text: str, where: str) -> list[Node]:
    """Parse a host file of ColossalAI, DeepSpeed or MPI: one host a line, comments, ``slots=8``."""
    found: list[Node] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        at = f"{where} line {number}"
        try:
            names = _expanded(words[0])
        except ValueError as wrong:
            raise ValueError(f"{at}: {wrong}") from None
        slots = next((w.partition("=")[2] for w in words[1:] if w.startswith(("slots=", "gpus="))), "")
        gpus = int(slots) if slots.isdecimal() and len(slots) < 5 else 0
        found += [_host(name, at).but(gpus=gpus) for name in names]
    if not found:
        raise ValueError(f"{where} names no host: write one on each line")
    return _unique(found, where)


def _expanded(text: str) -> tuple[str, ...]:
    """Expand a node list, but not a bracketed address (``[fe80::1]``), which looks like one."""
    return (text,) if text.startswith("[") and ":" in text.partition("]")[0] else nodelist.expand(text)


def _host(text: str, where: str) -> Node:
    user, at, rest = text.rpartition("@")
    if text.startswith("-") or (at and not user):
        checked(text, where)
    if user:
        checked(user, where)
    host, port = rest, ""
    if rest.startswith("["):
        host, _, tail = rest[1:].partition("]")
        port = tail.removeprefix(":")
    elif rest.count(":") == 1:
        host, _, port = rest.partition(":")
    if port and not (port.isdecimal() and 0 < int(port[:6]) < 65536):
        raise ValueError(f"{where}: {text[:80]!r} has the port {port[:20]!r}, which is none")
    name = checked(host, where) + (f":{port}" if port else "")
    return Node(name, labels={"user": user, "port": port}, address=host)


def _unique(nodes: list[Node], where: str) -> list[Node]:
    seen: set[str] = set()
    for node in nodes:
        if node.name in seen:
            raise ValueError(f"{where} names {node.name} twice")
        seen.add(node.name)
    return nodes


class Hosts:
    """Ask each host over one ssh connection, at most ``parallel`` at a time."""

    name = "ssh"

    def __init__(
        self,
        hosts: Sequence[Node],
        token: str,
        *,
        python: str = "python3",
        parallel: int = PARALLEL,
        variables: Mapping[str, str] | None = None,
    ):
        self.hosts, self.token, self.python, self.parallel = list(hosts), token, python, parallel
        self.variables = variables
        self.sending = False

    def nodes(self) -> list[Node]:
        return self.hosts

    def ask(
        self,
        nodes: Sequence[Node],
        request: dict[str, Any],
        deadline: float,
        heard: Callable[[Answer], None],
    ) -> None:
        orders = parcel.Orders(request, deadline, self.token)
        by_name = {node.name: node for node in nodes}
        hearing = Hearing(by_name, orders.mark, heard, time.monotonic())
        with Scratch(Live().variables if self.variables is None else self.variables) as folder:
            files = _Files(folder, orders)
            queue = _Queue(by_name.values(), lambda node: self._task(node, files, deadline))
            crowd(
                queue,
                self.parallel,
                lambda key, text: self._line(key, text, hearing),
                lambda ended: self._ended(ended, hearing, queue, by_name),
                self.variables,
            )
        for name in list(hearing.left):
            hearing.tell(name, DEAD, why="it was not asked", now=time.monotonic())

    def _task(self, node: Node, files: _Files, deadline: float) -> Task:
        words = ["ssh", *(word for option in OPTIONS for word in ("-o", option))]
        if node.labels.get("port"):
            words += ["-p", node.labels["port"]]
        user = node.labels.get("user")
        words += ["--", f"{user}@{node.address}" if user else node.address]
        return Task(
            node.name,
            (*words, remote(self.python, node.name)),
            deadline + CONNECT + LATE,
            files.path(self.sending),
        )

    def _line(self, name: str, text: str, hearing: Hearing) -> bool:
        return hearing.line(text, time.monotonic(), name)

    def _ended(self, ended: Ended, hearing: Hearing, queue: _Queue, by_name: dict[str, Node]) -> None:
        name = ended.key
        if name in hearing.needy:
            hearing.needy.remove(name)
            if not self.sending:
                self.sending = True  # later hosts get gpuready at once
            queue.again(by_name[name])
            return
        kind, why = judged(ended, hearing.began(name), self.python)
        hearing.tell(name, kind, why=why, now=time.monotonic())


def remote(python: str, name: str) -> str:
    """Build the command line for the remote shell. Its words are quoted; names were validated before."""
    from shlex import quote

    return "exec " + " ".join(quote(word) for word in (python, "-c", parcel.STARTER, name))


def judged(ended: Ended, began: bool, python: str) -> tuple[str, str]:
    """Return kind and reason for a connection that brought no answer."""
    if ended.end == "deadline":
        stuck = (
            "gpuready began there and did not end" if began else "connected or connecting, and never began"
        )
        return SLOW, f"{stuck} within {ended.seconds:.0f} s"
    if ended.end == "a line too long":
        return GARBLED, "it wrote without end"
    if ended.end == "not found":
        return DEAD, "there is no ssh on this machine: install OpenSSH's client"
    if ended.end:
        return DEAD, f"ssh: {ended.end}"
    if ended.rc in (126, 127):
        return REFUSED, f"no {python} there: gpuready needs Python 3.10 or newer; name one with --python PATH"
    for sign, kind, why in _SAYS:
        if ended.rc == 255 and sign in ended.err:
            return kind, why
    said = last_line(ended.err)
    if ended.rc == 0:
        return GARBLED, "no answer was in what it wrote"
    if ended.rc == 255:
        return DEAD if not said else REFUSED, f"ssh: {said or 'ended without a word'}"
    return REFUSED, f"{python} there ended with {ended.rc}" + (f": {said}" if said else "")


class _Files:
    """The stdin data without and with gpuready, written when first needed."""

    def __init__(self, folder: str, orders: parcel.Orders):
        self.folder, self.orders = folder, orders
        self.made: dict[bool, str] = {}

    def path(self, send: bool) -> str:
        if send not in self.made:
            path = f"{self.folder}/{'with' if send else 'without'}"
            with open(path, "wb") as file:
                file.write(parcel.stdin(self.orders.but(send=send)))
            self.made[send] = path
        return self.made[send]


class _Queue:
    """The hosts still to be asked; one that needs gpuready is asked again first."""

    def __init__(self, nodes: Any, task: Callable[[Node], Task]):
        self.waiting, self.task = deque(nodes), task

    def __iter__(self) -> _Queue:
        return self

    def __next__(self) -> Task:
        if not self.waiting:
            raise StopIteration
        return self.task(self.waiting.popleft())

    def again(self, node: Node) -> None:
        self.waiting.appendleft(node)
