"""The side of every rank but 0: find rank 0, send the hello, receive the answer."""

from __future__ import annotations

import time

from gpuready.rollcall import beacon, endpoint, whose, wire
from gpuready.rollcall.endpoint import shown
from gpuready.rollcall.register import Fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping, Sequence

    from gpuready.cluster import Rendezvous
    from gpuready.rollcall.hello import Hello
    from gpuready.rollcall.said import Said

    Dial = Callable[[Sequence[Sequence[object]]], list[object]]
    Inquire = Callable[[str, int], Mapping[str, object] | None]

PATIENCE_S = (
    2.5  # for a name or route that is missing, of the 3 s for the greeting; a refused port may only be early
)
GREET_S = 3.0
ASIDE_S = 1.5  # a port must be refused this long before another beacon counts
SLACK_S = 4.0  # for the answer after the window, which rank 0 ends
NO_ADDRESS = "set MASTER_ADDR to an address of rank 0's host that this host can reach"


class Away(Exception):
    """This rank may not start; the faults say why."""

    def __init__(self, *faults: Fault) -> None:
        super().__init__("; ".join(map(str, faults)))
        self.faults = faults


class Visit:
    """One rank's part in a roll-call."""

    def __init__(
        self, rendezvous: Rendezvous, mine: Hello, token: str, inquire: Inquire | None = None
    ) -> None:
        self.rendezvous, self.mine, self.token, self.inquire = rendezvous, mine, token, inquire
        self.where = f"{rendezvous.address}:{rendezvous.port}"
        self.begun = time.monotonic()
        self.until = self.begun + mine.left
        self.reached = endpoint.Reached()
        self.peer = ""
        self.held = 0  # pid that already has this rank, if any
        self.host = "rank 0"

    def attend(self, dial: Dial) -> dict[str, object]:
        """Return rank 0's answer; RankRejected if there is none or it is negative."""
        conn, greeting = self._greeted()
        self.host = f"rank 0 ({shown(greeting.get('host'))[:80]}, pid {shown(greeting.get('pid'))[:10]})"
        with conn:
            self.peer = str(conn.getpeername()[0])
            waited = time.monotonic() - self.begun
            mine = self.mine.but(
                left=max(0.1, self.until - time.monotonic()),
                resolved=self.reached.addresses,
                clock=self.mine.clock + waited,
            )
            return self._asked(conn, mine, greeting, dial)

    def _asked(
        self,
        conn: socket.socket,
        mine: Hello,
        greeting: Mapping[str, object],
        dial: Dial,
    ) -> dict[str, object]:
        salt, rest = str(greeting.get("salt")), b""
        conn.sendall(wire.packed(mine.to_json(), self.token, salt))
        while True:
            try:
                line, rest = wire.read_line(conn, self.until + SLACK_S, rest)
                heard = self._opened(line, salt, greeting)
            except wire.Strange as odd:
                raise Away(self._lost(odd)) from None
            if heard.dial is not None:
                conn.sendall(wire.packed({"dialled": dial(heard.dial)}, self.token, salt))
            elif heard.refused:
                raise Away(*heard.refused)
            elif heard.go is not None:
                return heard.go.to_json()

    def _opened(self, line: bytes, salt: str, greeting: Mapping[str, object]) -> Said:
        try:
            said = wire.opened(line, self.token, salt)
        except (PermissionError, ValueError):
            said = _plain(line)
            if isinstance(said, dict) and "elsewhere" not in said:
                said = None  # without a valid seal only a rejection is accepted
        if not isinstance(said, dict):
            raise wire.Strange("odd", line[:100])
        if "elsewhere" in said:
            raise Away(self._elsewhere(str(said["elsewhere"]), greeting))
        from gpuready.rollcall.said import read

        try:
            return read(said)
        except ValueError:
            raise wire.Strange("odd", line[:100]) from None

    # -- finding rank 0 -----------------------------------------------------------------------------

    def _greeted(self) -> tuple[socket.socket, dict[str, object]]:
        while True:
            conn = self._connected()
            try:
                return conn, greet(conn, min(GREET_S, max(0.5, self.until - time.monotonic())))
            except wire.Strange as odd:
                conn.close()
                # A store that is being closed may have accepted the connection.
                if odd.why != "closed" or odd.heard or time.monotonic() > self.begun + 2:
                    raise Away(self._stranger(odd)) from None
                time.sleep(0.2)

    def _connected(self) -> socket.socket:
        pause = 0.005
        while True:
            left = self.until - time.monotonic()
            conn, self.reached = endpoint.connect(
                self.rendezvous.address, self.rendezvous.port, max(0.2, min(PATIENCE_S, left))
            )
            if conn is not None:
                return conn
            waited = time.monotonic() - self.begun
            if waited >= self._patience() or time.monotonic() >= self.until:
                self._aside(True)
                raise Away(self._unreached(waited))
            if self.reached.why == "refused" and waited > ASIDE_S:
                self._aside(False)
            time.sleep(min(pause, max(0.01, self.until - time.monotonic())))
            pause = min(pause * 1.5, 0.25)

    def _patience(self) -> float:
        """How long to try: the whole window for a refused port, as rank 0 may be late, and in Kubernetes for
        a name too.
        """
        window = self.until - self.begun
        if self.reached.why != "refused":
            return window if self.rendezvous.launcher == "kubernetes" else min(PATIENCE_S, window)
        elsewhere = self.rendezvous.nodes > 1 and self.rendezvous.node > 0
        if elsewhere and all(map(endpoint.is_loopback, self.reached.addresses)):
            return min(PATIENCE_S, window)
        return window

    def _aside(self, last: bool) -> None:
        """If rank 0 of this job listens at another port of this host, report it to all, so that no rank waits."""
        for name in beacon.seen():
            conn = beacon.call(name)
            if conn is None:
                continue
            with conn:
                try:
                    greeting = greet(conn, 1.0)
                except wire.Strange:
                    continue
                if self._same_job(greeting):
                    self._complain(conn, greeting)

    def _same_job(self, greeting: Mapping[str, object]) -> bool:
        missing = greeting.get("missing")
        same = (greeting.get("run"), greeting.get("world"), greeting.get("family"))
        mine = (self.rendezvous.run_id, self.rendezvous.world_size, self.mine.family)
        return same == mine and isinstance(missing, list) and self.rendezvous.rank in missing

    def _complain(self, conn: socket.socket, greeting: Mapping[str, object]) -> None:
        here = ", ".join(endpoint.addresses()[:3]) or "127.0.0.1"
        there = f"{shown(greeting.get('address'))}:{shown(greeting.get('port'))}"
        said = f"it looks for rank 0 at {self.where} ({self._tale()}), and rank 0 (pid {shown(greeting.get('pid'))}) listens on port {shown(greeting.get('port'))} of {here}"
        fix = f"give all ranks the same MASTER_ADDR and MASTER_PORT (rank 0 was told {there})"
        troubled = self.mine.but(trouble=said, fix=fix, trouble_code="NET016", left=5.0)
        self.until = time.monotonic() + 5.0
        self._asked(conn, troubled, greeting, lambda _: [])

    # -- faults -------------------------------------------------------------------------------------

    def _tale(self) -> str:
        words = {
            "name": "the name does not resolve",
            "refused": "refused",
            "no route": "no route",
            "no answer": "no answer",
        }
        return words.get(self.reached.why, "not reached")

    def _unreached(self, waited: float) -> Fault:
        told, who, ranks = shown(self.reached.told), self.mine.who, (self.mine.rank,)
        if self.reached.why == "name":
            said = f"{who} cannot resolve MASTER_ADDR {shown(self.rendezvous.address)} ({told})"
            fix = f"write the right name, or add a line 'ADDRESS {shown(self.rendezvous.address)}' to /etc/hosts of {shown(self.mine.host)}"
            return Fault("NET016", said, fix, ranks)
        if self.reached.why == "refused" and waited < self.mine.left - 0.5:
            return loopback(self.mine, self.rendezvous, self.reached.addresses)
        after = f"{self._tale()} for {waited:.1f} s; {told}{self._family()}"
        said = f"{who} cannot reach rank 0 at {self.where} ({after})"
        fix = NO_ADDRESS
        if self.reached.why == "refused":
            fix = "start rank 0, and give all ranks its address and port" + _lights()
        return Fault("NET016", said, fix, ranks)

    def _family(self) -> str:
        """Name the address family that rank 0 has and this host lacks."""
        ours, theirs = endpoint.addresses(), self.reached.addresses
        families = {":" in one for one in theirs}
        if not ours or not theirs or families & {":" in one for one in ours}:
            return ""
        return f"; that is IPv{6 if True in families else 4}, and this host has only {', '.join(ours[:4])}"

    def _stranger(self, odd: wire.Strange) -> Fault:
        """Report that no roll-call answers there: another service, or the store of a job that has started."""
        ranks = (self.mine.rank,)
        local = self._local()
        asked = self.inquire is not None and not odd.heard
        job = self.inquire(self.rendezvous.address, self.rendezvous.port) if asked and self.inquire else None
        if self.held:
            said = f"{self.mine.who} is too many: rank {self.mine.rank} of this job is pid {self.held} of this host, and has begun"
            return Fault("NET006", said, "give each process its own RANK", ranks)
        if job:
            said = f"the store at {self.where} belongs to another start: {whose.told(job)}"
            return Fault(
                "NET018", said, "choose another MASTER_PORT, or wait until that job has ended", ranks
            )
        said = f"something else than rank 0 answers at {self.where}: {_heard(odd)}{local}"
        return Fault("NET018", said, "choose another MASTER_PORT, the same for all ranks", ranks)

    def _local(self) -> str:
        if not any(map(endpoint.is_local, self.reached.addresses)):
            return ""
        found = endpoint.holder(self.rendezvous.port)
        return f"; the port belongs to {found}" if found else ""

    def _elsewhere(self, why: str, greeting: Mapping[str, object]) -> Fault:
        mine = shown(self.rendezvous.run_id) or "(without a name)"
        said = f"the roll-call at {self.where} belongs to {whose.told(greeting)}; {self.mine.who} is of run {mine}"
        if why == "token":
            said = f"rank 0 at {self.where} does not take the token of {self.mine.who}"
            return Fault("NET018", said, "give all ranks of a job the same GPUREADY_TOKEN", (self.mine.rank,))
        return Fault(
            "NET018",
            said,
            "choose another MASTER_PORT, or give all ranks one GPUREADY_RUN_ID",
            (self.mine.rank,),
        )

    def _lost(self, odd: wire.Strange) -> Fault:
        if odd.why == "closed":
            said = f"{self.host} went away during the roll-call, as {self.mine.who} saw"
            return Fault("RUN019", said, "look at the last lines of rank 0's output", (0,))
        said = f"{self.host} did not answer {self.mine.who} in time"
        return Fault("NET016", said, "look whether rank 0 is stopped or overloaded", (0,))


def loopback(mine: Hello, rendezvous: Rendezvous, resolved: tuple[str, ...]) -> Fault:
    """Report that MASTER_ADDR is this host although the job has several."""
    found = ", ".join(dict.fromkeys(resolved)) or rendezvous.address
    shown_ = f"{shown(rendezvous.address)} is {found} here" if found != rendezvous.address else found
    if mine.rank == 0:
        said = f"{mine.who} advertises a loopback address to {rendezvous.nodes} nodes: MASTER_ADDR {shown_}"
        ours = endpoint.addresses()
        fix = (
            f"set MASTER_ADDR={ours[0]} on all nodes"
            if ours
            else "set MASTER_ADDR to an address of an interface"
        )
        return Fault("NET008", said, fix, (0,))
    said = f"{mine.who} on node {rendezvous.node} looks for rank 0 on its own host: MASTER_ADDR {shown_}"
    return Fault("NET008", said, "set MASTER_ADDR to an address of rank 0's host on all nodes", (mine.rank,))


def greet(conn: socket.socket, seconds: float) -> dict[str, object]:
    """Exchange greetings; ProtocolError if the other side is no roll-call."""
    until = time.monotonic() + seconds
    try:
        conn.sendall(wire.WORD + wire.nonce().encode() + b"\n")
    except OSError:
        raise wire.Strange("closed") from None
    line, rest = wire.read_line(conn, until, limit=65536)
    said = _plain(line[len(wire.WORD) :]) if line.startswith(wire.WORD) and not rest else None
    if not isinstance(said, dict):
        raise wire.Strange("odd", line[:200])
    return said


def _plain(line: bytes) -> object:
    try:
        return wire.opened(line, "", "")
    except (ValueError, PermissionError, RecursionError):
        return None


def _heard(odd: wire.Strange) -> str:
    if odd.heard:
        return f"it says {shown(odd.heard[:60].decode('latin-1'))}"
    return "it takes the connection and says nothing" if odd.why == "silent" else "it closes the connection"


def _lights() -> str:
    """Name other roll-calls of this user on this host, one of which may be the right one."""
    found = []
    for name in beacon.seen()[:4]:
        conn = beacon.call(name)
        if conn is not None:
            with conn:
                try:
                    job = greet(conn, 0.5)
                except wire.Strange:
                    continue
                found.append(f"pid {shown(job.get('pid'))} holds one at port {shown(job.get('port'))}")
    return f"; roll-calls on this host: {', '.join(found)}" if found else ""
