"""The roll-call: every rank reports before the process group is made, and all get the same answer.

Rank 0 listens on MASTER_PORT itself and passes the open listening socket to torch's store when all have come:
no other port has to be open, and no process can take the port in between. Under torchrun the agent has that
port already: there rank 0 listens at another one, as gloo and NCCL do next.
"""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from gpuready.cluster import Rendezvous
from gpuready.model.record import Record
from gpuready.model.visible_text import escape_unprintable
from gpuready.rollcall import beacon, client, endpoint, job_secret, trial_connections, wire
from gpuready.rollcall.client import InquireStore, RankRejected
from gpuready.rollcall.hello import Hello
from gpuready.rollcall.job_secret import JobSecret
from gpuready.rollcall.rank_register import RollcallFault, RollcallOptions
from gpuready.rollcall.server import RollcallServer, ensure_file_limit
from gpuready.rollcall.trial_connections import EchoServer

__all__ = [
    "Attendance",
    "Hello",
    "RollcallFault",
    "RollcallRefused",
    "attend_over_store",
    "attend_rollcall",
    "report_trouble",
]

SUSPECT_SECONDS = 3.5
KEPT_RANK_CLAIMS: list[int] = []
"""File descriptors of the claims to this process's rank, open as long as the process lives."""


class Attendance(Record):
    """All ranks are present: on which machines, and where rank 0 was reached."""

    nodes: tuple[tuple[str, str, int], ...] = ()  # identity, name, number of ranks; by first rank
    notes: tuple[str, ...] = ()
    address: str = ""  # of rank 0, as it was reached
    first: str = "rank 0"  # who rank 0 is
    listener: socket.socket | None = None  # at rank 0: listening on the store's port
    seconds: float = 0.0

    @property
    def host_names(self) -> tuple[str, ...]:
        return tuple(name for _, name, _ in self.nodes)

    def node_of_machine(self, machine: str) -> tuple[int, int]:
        """Return the number of this machine's node, and of the ranks on it."""
        for number, (identity, _, count) in enumerate(self.nodes):
            if identity == machine:
                return number, count
        return 0, 1


class RollcallRefused(RuntimeError):
    """The job does not start; every rank gets the same faults."""

    def __init__(self, faults: tuple[RollcallFault, ...]) -> None:
        self.faults = faults
        lines = [str(fault) for fault in faults]
        super().__init__(lines[0] if len(lines) == 1 else "\n  ".join([f"{len(lines)} faults:", *lines]))


def attend_rollcall(
    rendezvous: Rendezvous, own_hello: Hello, *, inquire: InquireStore | None = None, **fields: Any
) -> Attendance:
    """Take part in the roll-call; ``fields`` are those of RollcallOptions. RollcallRefused on every rank if something is wrong or a
    rank is missing after ``window``.

    ``own_hello.trouble`` lets a rank that cannot start stop all others at once. ``inquire`` asks a store that
    answers in place of rank 0 which job it belongs to.
    """
    options = RollcallOptions(**fields)
    own_hello = own_hello.replace(left=float(options.window))
    started = time.monotonic()
    echo_server = None if own_hello.local_rank or own_hello.trouble else EchoServer()
    try:
        own_hello = own_hello.replace(data=(own_hello.data[0], echo_server.port)) if echo_server else own_hello
        result = _attend_as_rank(rendezvous, own_hello, options, inquire, echo_server)
    except RankRejected as error:
        raise RollcallRefused(tuple(error.faults)) from None
    finally:
        if echo_server is not None:
            echo_server.close()
    return result.replace(seconds=time.monotonic() - started)


def attend_over_store(store: Any, rendezvous: Rendezvous, own_hello: Hello, **fields: Any) -> Attendance:
    """Take part where torchrun's agent has the port: rank 0 listens at another one, and tells it in the agent's store."""
    key = f"gpuready/{rendezvous.run_id}/{rendezvous.restart}/port"
    try:
        if not own_hello.rank:
            store.set(key, str(endpoint.find_free_port()))
        port = int(store.get(key))
    except (RuntimeError, ValueError):
        message = f"{own_hello.rank_label} did not hear in torchrun's store where rank 0 listens"
        raise RollcallRefused((RollcallFault("NET016", message, "look at the output of rank 0", (0,)),)) from None
    attendance = attend_rollcall(rendezvous.replace(port=port), own_hello, **fields)
    if attendance.listener is not None:  # the group uses the agent's store
        attendance.listener.close()
    return attendance.replace(listener=None)


def report_trouble(rendezvous: Rendezvous, own_hello: Hello, token: str = "") -> None:
    """Tell rank 0, if it is reachable, that this rank cannot start; do not wait."""
    if not rendezvous.port:
        return
    rank_client = client.RollcallClient(rendezvous, own_hello.replace(left=0.8), token)
    with suppress(RankRejected, OSError):
        rank_client.join_rollcall(lambda _: [])


# -- server and client ----------------------------------------------------------------------------------


def _attend_as_rank(
    rendezvous: Rendezvous,
    own_hello: Hello,
    options: RollcallOptions,
    inquire: InquireStore | None,
    echo_server: EchoServer | None,
) -> Attendance:
    claim, rank_holder = beacon.claim_rank(rendezvous)
    try:
        result = None if own_hello.rank else _attend_as_server(rendezvous, own_hello, options, echo_server)
        result = result or _attend_as_client(rendezvous, own_hello, options.token, inquire, echo_server, rank_holder)
    except BaseException:
        if claim is not None:
            claim.close()
        raise
    if claim is not None:
        KEPT_RANK_CLAIMS.append(claim.detach())
    return result


def _attend_as_client(rendezvous: Rendezvous, own_hello: Hello, token: str, inquire: InquireStore | None, echo_server: EchoServer | None,
              rank_holder: int) -> Attendance:  # fmt: skip
    rank_client = client.RollcallClient(rendezvous, own_hello, token, inquire)
    rank_client.rank_holder = rank_holder
    try:
        reply = rank_client.join_rollcall(_make_dialer(echo_server))
    except OSError as error:
        message = f"the connection of {own_hello.rank_label} to rank 0 broke ({error})"
        raise RankRejected(RollcallFault("NET016", message, ranks=(own_hello.rank,))) from None
    return _make_attendance(reply, rank_client.peer, None).replace(first=rank_client.server_name)


def _attend_as_server(
    rendezvous: Rendezvous, own_hello: Hello, options: RollcallOptions, echo_server: EchoServer | None
) -> Attendance | None:
    """Run the roll-call; None if another rank 0 already runs one at this port."""
    secret = job_secret.hold_secret(rendezvous, options.token)
    try:
        return _run_server(rendezvous, own_hello, options, secret, echo_server)
    finally:
        secret.remove_files()


def _run_server(
    rendezvous: Rendezvous,
    own_hello: Hello,
    options: RollcallOptions,
    secret: JobSecret,
    echo_server: EchoServer | None,
) -> Attendance | None:
    try:
        where: Any = endpoint.resolve_host(rendezvous.address, rendezvous.port)
        resolved: tuple[str, ...] | OSError = tuple(str(place[0]) for _, place in where)
    except OSError as error:
        resolved = error
    listener = _listen_on_job_port(rendezvous, own_hello, _choose_bind_address(rendezvous, secret, resolved))
    if listener is None:
        return None
    own_hello, suspicion = _check_master_address(rendezvous, own_hello, resolved)
    file_limit_fault = ensure_file_limit(rendezvous.world_size)
    if file_limit_fault is not None and not own_hello.trouble:
        trouble = {"trouble": file_limit_fault.says, "fix": file_limit_fault.fix, "trouble_code": file_limit_fault.code}
        own_hello = own_hello.replace(**trouble)
    server = RollcallServer(listener, rendezvous, own_hello, options, secret)
    kept = False
    try:
        faults = server.gather_ranks(suspicion, SUSPECT_SECONDS)
        if not faults:
            if echo_server is not None and len(server.register.list_machines()) > 1:
                echo_server.start_serving()
            faults = server.run_trial_calls()
        server.announce_answer(faults, suspicion)
        if faults:
            raise RankRejected(*faults)
        kept = True
        return _make_attendance(
            {"nodes": server.register.list_machines(), "notes": server.register.list_notes()},
            endpoint.listening_address(listener),
            listener,
        )
    finally:
        server.close()
        if not kept:
            listener.close()


def _choose_bind_address(rendezvous: Rendezvous, secret: JobSecret, resolved: tuple[str, ...] | OSError) -> str:
    """Return the one address at which ranks look for rank 0; empty for all of them.

    Ranks of one host try every address of a name. Of several addresses, or of loopback, another host may know another.
    """
    if isinstance(resolved, OSError) or not all(map(endpoint.is_local_address, resolved)):
        return ""
    is_same_elsewhere = len(resolved) == 1 and not endpoint.is_loopback_address(resolved[0])
    if job_secret.is_single_host(rendezvous) or (secret.is_open and is_same_elsewhere):
        return resolved[0]
    return ""


def _listen_on_job_port(rendezvous: Rendezvous, own_hello: Hello, host: str) -> socket.socket | None:
    """Listen on the job's port; None if another roll-call has it. RankRejected names any other holder."""
    end = time.monotonic() + 1.0  # a job that has just ended may still have it
    while True:
        try:
            return endpoint.listen_on_port(rendezvous.port, host=host)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                message = f"{own_hello.rank_label} cannot listen on port {rendezvous.port} ({error.strerror})"
                raise RankRejected(RollcallFault("NET018", message, "choose a MASTER_PORT above 1024", (0,))) from None
        if _is_rollcall_port(host or "127.0.0.1", rendezvous.port):
            return None
        if time.monotonic() > end:
            raise RankRejected(_port_taken_fault(rendezvous, own_hello))
        time.sleep(0.1)


def _is_rollcall_port(host: str, port: int) -> bool:
    conn, _ = endpoint.connect_to_host(host, port, 0.5)
    if conn is None:
        return False
    with conn:
        try:
            return bool(client.exchange_greeting(conn, 0.5))
        except wire.ProtocolError:
            return False


def _port_taken_fault(rendezvous: Rendezvous, own_hello: Hello) -> RollcallFault:
    port_holder = endpoint.find_port_holder(rendezvous.port)
    by = f"it belongs to {port_holder}" if port_holder else "its holder is not visible from here"
    message = f"{own_hello.rank_label} cannot listen on port {rendezvous.port}: {by}"
    own = f", or end that process: kill {port_holder.pid}" if port_holder and port_holder.pid else ""
    return RollcallFault("NET018", message, f"set MASTER_PORT={endpoint.find_free_port()} for all ranks{own}", (0,))


def _check_master_address(
    rendezvous: Rendezvous, own_hello: Hello, resolved: tuple[str, ...] | OSError
) -> tuple[Hello, RollcallFault | None]:
    """Check that others can find this host by MASTER_ADDR: trouble if not, a suspicion if it is loopback."""
    if own_hello.trouble:
        return own_hello, None
    if isinstance(resolved, OSError):
        if rendezvous.launcher == "kubernetes":  # the name of a pod appears when it is ready
            return own_hello, None
        why = escape_unprintable(resolved.strerror or resolved)
        message = f"MASTER_ADDR {escape_unprintable(rendezvous.address)} does not resolve ({why})"
        fix = f"{_suggest_own_address()}; or add a line 'ADDRESS {escape_unprintable(rendezvous.address)}' to /etc/hosts of every host"
        return own_hello.replace(trouble=message, fix=fix, trouble_code="NET016"), None
    own_hello = own_hello.replace(resolved=resolved)
    if all(map(endpoint.is_loopback_address, resolved)):
        return own_hello, client.loopback_fault(own_hello, rendezvous, resolved) if rendezvous.nodes > 1 else None
    if rendezvous.launcher == "kubernetes" or any(map(endpoint.is_local_address, resolved)):
        return own_hello, None
    reached = endpoint.test_reachability(rendezvous.address, rendezvous.port, 2.0)
    if reached.ok:
        return own_hello, None
    message = f"MASTER_ADDR {escape_unprintable(rendezvous.address)} is not an address of rank 0's host and cannot be reached from it ({reached.why}: {reached.detail})"
    return own_hello.replace(trouble=message, fix=_suggest_own_address(), trouble_code="NET016"), None


def _suggest_own_address() -> str:
    own_addresses = endpoint.list_own_addresses()
    if not own_addresses:
        return "set MASTER_ADDR=127.0.0.1, as this host has no other address"
    return f"rank 0 listens on {', '.join(own_addresses[:4])}: set MASTER_ADDR={own_addresses[0]} for all ranks"


def _make_dialer(echo_server: EchoServer | None) -> Callable[[Sequence[Sequence[object]]], list[object]]:
    def run_calls(calls: Sequence[Sequence[object]]) -> list[object]:
        if echo_server is not None:
            echo_server.start_serving()
        return trial_connections.run_trial_calls(calls)

    return run_calls


def _make_attendance(reply: Mapping[str, object], address: str, listener: socket.socket | None) -> Attendance:
    nodes = reply.get("nodes")
    notes = reply.get("notes")
    return Attendance(
        tuple((str(m), str(n), int(c)) for m, n, c in nodes) if isinstance(nodes, (list, tuple)) else (),
        tuple(map(str, notes)) if isinstance(notes, (list, tuple)) else (),
        address.removeprefix("::ffff:"),
        listener=listener,
    )
