"""The side of every rank but 0: find rank 0, send the hello, receive the answer."""

import socket
import time
from collections.abc import Callable, Mapping, Sequence

from gpuready.cluster import Rendezvous
from gpuready.model.visible_text import escape_unprintable
from gpuready.rollcall import beacon, endpoint, hello, job_secret, wire
from gpuready.rollcall.hello import Hello
from gpuready.rollcall.rank_register import RollcallFault, replace_own_fault
from gpuready.rollcall.wire import ServerMessage, parse_server_message, quote_server_faults

CallRunner = Callable[[Sequence[Sequence[object]]], list[object]]
InquireStore = Callable[[str, int], Mapping[str, object] | None]


PATIENCE_SECONDS = 2.5  # for a name or route that is missing; a refused port may only be early
GREET_SECONDS = 3.0
BEACON_DELAY_SECONDS = 1.5  # a port must be refused this long before another beacon counts
SLACK_SECONDS = 4.0  # for the answer after the window, which rank 0 ends
SECRET_FIX = "give all ranks of the job the same GPUREADY_TOKEN"
ADDRESS_FIX = "set MASTER_ADDR to an address of rank 0's host that this host can reach"


class RankRejected(Exception):
    """This rank may not start; the faults say why."""

    def __init__(self, *faults: RollcallFault) -> None:
        super().__init__("; ".join(map(str, faults)))
        self.faults = faults


class RollcallClient:
    """One rank's part in a roll-call."""

    def __init__(
        self, rendezvous: Rendezvous, own_hello: Hello, token: str, inquire: InquireStore | None = None
    ) -> None:
        self.rendezvous, self.own_hello, self.token, self.inquire = rendezvous, own_hello, token, inquire
        self.address_text = f"{rendezvous.address}:{rendezvous.port}"
        self.started = time.monotonic()
        self.until = self.started + own_hello.left
        self.reached = endpoint.ReachResult()
        self.peer = ""
        self.rank_holder = 0  # pid that already has this rank, if any
        self.server_name = "rank 0"

    def join_rollcall(self, run_calls: CallRunner) -> dict[str, object]:
        """Return rank 0's answer; RankRejected if there is none or it is negative."""
        conn, greeting = self._connect_and_greet()
        with conn:
            self.peer = str(conn.getpeername()[0])
            self.server_name = f"rank 0 ({self.peer.removeprefix('::ffff:')})"
            greeting |= self._find_secret(greeting)
            waited = time.monotonic() - self.started
            current_hello = self.own_hello.replace(
                left=max(0.1, self.until - time.monotonic()),
                resolved=self.reached.addresses,
                clock=self.own_hello.clock + waited,
            )
            return self._exchange_messages(conn, current_hello, greeting, run_calls)

    def _exchange_messages(
        self, conn: socket.socket, own_hello: Hello, greeting: Mapping[str, object], run_calls: CallRunner
    ) -> dict[str, object]:
        salt, rest = str(greeting.get("salt")), b""
        token = self.token or str(greeting.get("token") or "")
        hello_line = wire.encode_message(own_hello.to_json(), token, salt)
        conn.sendall(hello_line)
        reply_salt = wire.make_reply_salt(salt, hello_line)
        while True:
            try:
                line, rest = wire.read_line(conn, self.until + SLACK_SECONDS, rest)
                reply = self._decode_reply(line, token, reply_salt, greeting)
            except wire.ProtocolError as error:
                raise RankRejected(self._lost_server_fault(error)) from None
            if reply.dial is not None:
                conn.sendall(wire.encode_message({"dialled": run_calls(reply.dial)}, token, salt))
            elif reply.refused:
                faults = reply.refused if token else quote_server_faults(reply.refused, self.server_name)
                raise RankRejected(*replace_own_fault(faults, own_hello))
            elif reply.go is not None:
                return reply.go.to_json()
            elif reply.host:
                self.server_name = f"rank 0 ({endpoint.quote_peer(reply.host)}, pid {reply.pid})"

    def _decode_reply(self, line: bytes, token: str, salt: str, greeting: Mapping[str, object]) -> ServerMessage:
        try:
            reply = wire.decode_message(line, token, salt)
        except (PermissionError, ValueError):
            reply = _decode_unsealed(line)
            if isinstance(reply, dict) and "elsewhere" not in reply:
                reply = None  # without a valid seal only a rejection is accepted
        if not isinstance(reply, dict):
            raise wire.ProtocolError("unreadable", line[:100])
        if "elsewhere" in reply:
            raise RankRejected(self._other_job_fault(str(reply["elsewhere"]), greeting))
        try:
            return parse_server_message(reply)
        except ValueError:
            raise wire.ProtocolError("unreadable", line[:100]) from None

    # -- the secret ---------------------------------------------------------------------------------

    def _find_secret(self, greeting: Mapping[str, object]) -> dict[str, object]:
        """Return the secret that rank 0 drew, and what it says of its job where the kernel vouches for its user.

        RankRejected where it can be no rank 0 of this user, or where this host has no proof to give.
        """
        if self.token:
            return {}
        name = greeting.get("name")
        if not job_secret.is_secret_name(name):  # it has a token, and this rank has none
            raise RankRejected(self._other_job_fault("token", greeting))
        card = _greet_beacon(beacon.find_beacon(str(name)))
        if card is not None:
            self.server_name = (
                f"rank 0 ({escape_unprintable(card.get('host'))[:80]}, pid {escape_unprintable(card.get('pid'))[:10]})"
            )
            return {key: value for key, value in card.items() if key not in ("salt", "name", "open")}
        if beacon.HAS_ABSTRACT_NAMES and endpoint.is_local_address(self.peer.removeprefix("::ffff:")):
            message = f"what listens at {self.address_text} is not rank 0 of this user{self._local_holder_note()}"
            raise RankRejected(RollcallFault("NET018", message, SECRET_FIX, (self.own_hello.rank,)))
        token = job_secret.decode_from_own_user(greeting.get("munge")) or job_secret.read_secret_file(str(name))
        if not token and greeting.get("open") is not True:
            raise RankRejected(self._no_secret_fault())
        return {"token": token}

    def _no_secret_fault(self) -> RollcallFault:
        message = f"rank 0 at {self.address_text} asks for the job's secret, and {self.own_hello.rank_label} has neither a file with it in its folder or home nor munge's word for it"
        return RollcallFault("NET018", message, SECRET_FIX, (self.own_hello.rank,))

    # -- finding rank 0 -----------------------------------------------------------------------------

    def _connect_and_greet(self) -> tuple[socket.socket, dict[str, object]]:
        while True:
            conn = self._connect_to_server()
            try:
                return conn, exchange_greeting(conn, min(GREET_SECONDS, max(0.5, self.until - time.monotonic())))
            except wire.ProtocolError as error:
                conn.close()
                # A store that is being closed may have accepted the connection.
                if error.why != "closed" or error.received or time.monotonic() > self.started + 2:
                    raise RankRejected(self._stranger_fault(error)) from None
                time.sleep(0.2)

    def _connect_to_server(self) -> socket.socket:
        pause = 0.005
        while True:
            left = self.until - time.monotonic()
            conn, self.reached = endpoint.connect_to_host(
                self.rendezvous.address, self.rendezvous.port, max(0.2, min(PATIENCE_SECONDS, left))
            )
            if conn is not None:
                return conn
            waited = time.monotonic() - self.started
            if waited >= self._seconds_to_try() or time.monotonic() >= self.until:
                self._report_other_port()
                raise RankRejected(self._unreached_fault(waited))
            if self.reached.why == "refused" and waited > BEACON_DELAY_SECONDS:
                self._report_other_port()
            time.sleep(min(pause, max(0.01, self.until - time.monotonic())))
            pause = min(pause * 1.5, 0.25)

    def _seconds_to_try(self) -> float:
        """How long to try: the whole window for a refused port, as rank 0 may be late, and in Kubernetes for
        a name too.
        """
        window = self.until - self.started
        if self.reached.why != "refused":
            return window if self.rendezvous.launcher == "kubernetes" else min(PATIENCE_SECONDS, window)
        elsewhere = self.rendezvous.nodes > 1 and self.rendezvous.node > 0
        if elsewhere and all(map(endpoint.is_loopback_address, self.reached.addresses)):
            return min(PATIENCE_SECONDS, window)
        return window

    def _report_other_port(self) -> None:
        """If rank 0 of this job listens at another port of this host, report it to all, so that no rank waits."""
        for name in beacon.list_beacons():
            conn = beacon.connect_beacon(name)
            if conn is None:
                continue
            with conn:
                try:
                    greeting = exchange_greeting(conn, 1.0)
                except wire.ProtocolError:
                    continue
                if self._is_same_job(greeting):
                    self._send_trouble(conn, greeting)

    def _is_same_job(self, greeting: Mapping[str, object]) -> bool:
        missing = greeting.get("missing")
        their_job = (greeting.get("run"), greeting.get("world"), greeting.get("family"))
        own_job = (self.rendezvous.run_id, self.rendezvous.world_size, self.own_hello.family)
        return their_job == own_job and isinstance(missing, list) and self.rendezvous.rank in missing

    def _send_trouble(self, conn: socket.socket, greeting: Mapping[str, object]) -> None:
        here = ", ".join(endpoint.list_own_addresses()[:3]) or "127.0.0.1"
        there = f"{escape_unprintable(greeting.get('address'))}:{escape_unprintable(greeting.get('port'))}"
        message = f"it looks for rank 0 at {self.address_text} ({self._reach_text()}), and rank 0 (pid {escape_unprintable(greeting.get('pid'))}) listens on port {escape_unprintable(greeting.get('port'))} of {here}"
        fix = f"give all ranks the same MASTER_ADDR and MASTER_PORT (rank 0 was told {there})"
        hello_with_trouble = self.own_hello.replace(trouble=message, fix=fix, trouble_code="NET016", left=5.0)
        self.until = time.monotonic() + 5.0
        self._exchange_messages(conn, hello_with_trouble, greeting, lambda _: [])

    # -- faults -------------------------------------------------------------------------------------

    def _reach_text(self) -> str:
        return "the name does not resolve" if self.reached.why == "name" else self.reached.why or "not reached"

    def _unreached_fault(self, waited: float) -> RollcallFault:
        detail, who, ranks = escape_unprintable(self.reached.detail), self.own_hello.rank_label, (self.own_hello.rank,)
        if self.reached.why == "name":
            message = f"{who} cannot resolve MASTER_ADDR {escape_unprintable(self.rendezvous.address)} ({detail})"
            fix = f"write the right name, or add a line 'ADDRESS {escape_unprintable(self.rendezvous.address)}' to /etc/hosts of {escape_unprintable(self.own_hello.host)}"
            return RollcallFault("NET016", message, fix, ranks)
        if self.reached.why == "refused" and waited < self.own_hello.left - 0.5:
            return loopback_fault(self.own_hello, self.rendezvous, self.reached.addresses)
        after = f"{self._reach_text()} for {waited:.1f} s; {detail}{self._address_family_note()}"
        message = f"{who} cannot reach rank 0 at {self.address_text} ({after})"
        fix = ADDRESS_FIX
        if self.reached.why == "refused":
            fix = "start rank 0, and give all ranks its address and port" + _other_rollcalls_note()
        return RollcallFault("NET016", message, fix, ranks)

    def _address_family_note(self) -> str:
        """Name the address family that rank 0 has and this host lacks."""
        own_addresses, theirs = endpoint.list_own_addresses(), self.reached.addresses
        families = {":" in one for one in theirs}
        if not own_addresses or not theirs or families & {":" in one for one in own_addresses}:
            return ""
        return f"; that is IPv{6 if True in families else 4}, and this host has only {', '.join(own_addresses[:4])}"

    def _stranger_fault(self, error: wire.ProtocolError) -> RollcallFault:
        """Report that no roll-call answers there: another service, or the store of a job that has started."""
        ranks = (self.own_hello.rank,)
        local = self._local_holder_note()
        ask = None if error.received else self.inquire
        job = ask(self.rendezvous.address, self.rendezvous.port) if ask else None
        if self.rank_holder:
            message = f"{self.own_hello.rank_label} is too many: rank {self.own_hello.rank} of this job is pid {self.rank_holder} of this host, and has begun"
            return RollcallFault("NET006", message, "give each process its own RANK", ranks)
        if job:
            name = hello.format_job_identity(job)
            message = f"the store at {self.address_text} belongs to another start: {name}"
            fix = "choose another MASTER_PORT, or wait until that job has ended"
            return RollcallFault("NET018", message, fix, ranks)
        message = f"something else than rank 0 answers at {self.address_text}: {_describe_stranger(error)}{local}"
        return RollcallFault("NET018", message, "choose another MASTER_PORT, the same for all ranks", ranks)

    def _local_holder_note(self) -> str:
        if not any(map(endpoint.is_local_address, self.reached.addresses)):
            return ""
        port_holder = endpoint.find_port_holder(self.rendezvous.port)
        return f"; the port belongs to {port_holder}" if port_holder else ""

    def _other_job_fault(self, why: str, greeting: Mapping[str, object]) -> RollcallFault:
        run_name = escape_unprintable(self.rendezvous.run_id) or "(without a name)"
        fix = "choose another MASTER_PORT, or give all ranks one GPUREADY_RUN_ID"
        theirs = hello.format_job_identity(greeting) if "run" in greeting else "another run"
        message = f"the roll-call at {self.address_text} belongs to {theirs}; {self.own_hello.rank_label} is of run {run_name}"
        if why == "secret":
            return self._no_secret_fault()
        if why == "token":
            message = f"rank 0 at {self.address_text} does not take the token of {self.own_hello.rank_label}"
            fix = "give all ranks of a job the same GPUREADY_TOKEN"
        return RollcallFault("NET018", message, fix, (self.own_hello.rank,))

    def _lost_server_fault(self, error: wire.ProtocolError) -> RollcallFault:
        if error.why == "closed":
            message = f"{self.server_name} went away during the roll-call, as {self.own_hello.rank_label} saw"
            return RollcallFault("RUN019", message, "look at the last lines of rank 0's output", (0,))
        message = f"{self.server_name} did not answer {self.own_hello.rank_label} in time"
        return RollcallFault("NET016", message, "look whether rank 0 is stopped or overloaded", (0,))


def loopback_fault(own_hello: Hello, rendezvous: Rendezvous, resolved: tuple[str, ...]) -> RollcallFault:
    """Report that MASTER_ADDR is this host although the job has several."""
    address_text = ", ".join(dict.fromkeys(resolved)) or rendezvous.address
    if address_text != rendezvous.address:
        address_text = f"{escape_unprintable(rendezvous.address)} is {address_text} here"
    if own_hello.rank == 0:
        message = f"{own_hello.rank_label} advertises a loopback address to {rendezvous.nodes} nodes: MASTER_ADDR {address_text}"
        own = endpoint.list_own_addresses()
        fix = f"set MASTER_ADDR={own[0]} on all nodes" if own else "set MASTER_ADDR to an address of an interface"
        return RollcallFault("NET008", message, fix, (0,))
    where = f"{own_hello.rank_label} on node {rendezvous.node}"
    message = f"{where} looks for rank 0 on its own host: MASTER_ADDR {address_text}"
    fix = "set MASTER_ADDR to an address of rank 0's host on all nodes"
    return RollcallFault("NET008", message, fix, (own_hello.rank,))


def exchange_greeting(conn: socket.socket, seconds: float) -> dict[str, object]:
    """Exchange greetings; ProtocolError if the other side is no roll-call."""
    until = time.monotonic() + seconds
    try:
        conn.sendall(wire.GREETING + wire.make_nonce().encode() + b"\n")
    except OSError:
        raise wire.ProtocolError("closed") from None
    line, rest = wire.read_line(conn, until, limit=65536)
    greeting = _decode_unsealed(line[len(wire.GREETING) :]) if line.startswith(wire.GREETING) and not rest else None
    if not isinstance(greeting, dict):
        raise wire.ProtocolError("unreadable", line[:200])
    return greeting


def _greet_beacon(name: str, seconds: float = 1.0) -> dict[str, object] | None:
    """Return what a roll-call of this user on this host says of itself; None if it does not answer."""
    conn = beacon.connect_beacon(name) if name else None
    if conn is None:
        return None
    with conn:
        try:
            return exchange_greeting(conn, seconds)
        except wire.ProtocolError:
            return None


def _decode_unsealed(line: bytes) -> object:
    try:
        return wire.decode_message(line, "", "")
    except (ValueError, PermissionError, RecursionError):
        return None


def _describe_stranger(error: wire.ProtocolError) -> str:
    if error.received:
        return f"it says {escape_unprintable(error.received[:60].decode('latin-1'))}"
    return "it takes the connection and says nothing" if error.why == "silent" else "it closes the connection"


def _other_rollcalls_note() -> str:
    """Name other roll-calls of this user on this host, one of which may be the right one."""
    other_rollcalls = []
    for name in beacon.list_beacons()[:4]:
        job = _greet_beacon(name, 0.5)
        if job is not None:
            other_rollcalls.append(
                f"pid {escape_unprintable(job.get('pid'))} holds one at port {escape_unprintable(job.get('port'))}"
            )
    return f"; roll-calls on this host: {', '.join(other_rollcalls)}" if other_rollcalls else ""
