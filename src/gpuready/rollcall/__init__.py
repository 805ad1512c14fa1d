"""The roll-call: every rank reports before the process group is made, and all get the same answer.

Rank 0 listens on MASTER_PORT itself and passes the open listening socket to torch's store when all have come:
no other port has to be open, and no process can take the port in between. Under torchrun the agent has that
port already; there the roll-call uses the agent's store (``store_rollcall``).
"""

from __future__ import annotations

import errno
import time

from gpuready.noun import Noun
from gpuready.rollcall import beacon, endpoint, guest, wire
from gpuready.rollcall.guest import Away
from gpuready.rollcall.hello import Hello
from gpuready.rollcall.register import Fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping, Sequence

    from gpuready.cluster import Rendezvous
    from gpuready.rollcall.board import Store
    from gpuready.rollcall.dial import Door
    from gpuready.rollcall.guest import Inquire

__all__ = ["Attendance", "Fault", "Hello", "Refused", "attend", "complain", "on_board"]

WINDOW_S = 60.0
SUSPECT_S = 3.5
KEPT: list[int] = []
"""File descriptors of the claims to this process's rank, open as long as the process lives."""


class Attendance(Noun):
    """All ranks are present: on which machines, and where rank 0 was reached."""

    nodes: tuple[tuple[str, str, int], ...] = ()  # identity, name, number of ranks; by first rank
    notes: tuple[str, ...] = ()
    address: str = ""  # of rank 0, as it was reached
    first: str = "rank 0"  # who rank 0 is
    listener: socket.socket | None = None  # at rank 0: listening on the store's port
    seconds: float = 0.0

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(name for _, name, _ in self.nodes)

    def place(self, machine: str) -> tuple[int, int]:
        """Return the number of this machine's node, and of the ranks on it."""
        for number, (identity, _, count) in enumerate(self.nodes):
            if identity == machine:
                return number, count
        return 0, 1


class Refused(RuntimeError):
    """The job does not start; every rank gets the same faults."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        self.faults = faults
        lines = [str(fault) for fault in faults]
        super().__init__(lines[0] if len(lines) == 1 else "\n  ".join([f"{len(lines)} faults:", *lines]))


def attend(
    rendezvous: Rendezvous,
    mine: Hello,
    *,
    window: float = WINDOW_S,
    token: str = "",
    allow_skew: bool = False,
    say: Callable[[str], None] | None = None,
    inquire: Inquire | None = None,
) -> Attendance:
    """Take part in the roll-call. RollcallRefused on every rank if something is wrong or a rank is missing
    after ``window``.

    ``own_hello.trouble`` lets a rank that cannot start stop all others at once. ``inquire`` asks a store that
    answers in place of rank 0 which job it belongs to.
    """
    mine = mine.but(left=float(window))
    begun = time.monotonic()
    door = _door(mine)
    try:
        mine = mine.but(data=(mine.data[0], door.port)) if door else mine
        found = _as_rank(rendezvous, mine, window, token, allow_skew, say, inquire, door)
    except Away as no:
        raise Refused(tuple(no.faults)) from None
    finally:
        if door is not None:
            door.close()
    return found.but(seconds=time.monotonic() - begun)


def on_board(
    store: Store,
    rendezvous: Rendezvous,
    mine: Hello,
    *,
    window: float = WINDOW_S,
    allow_skew: bool = False,
    say: Callable[[str], None] | None = None,
) -> Attendance:
    """Take part over an existing store."""
    from gpuready.rollcall import board

    begun = time.monotonic()
    door = _door(mine) if rendezvous.world_size > (rendezvous.local_world_size or 0) else None
    if door is not None:
        where = mine.data[0] or endpoint.towards(rendezvous.address, rendezvous.port)
        mine = mine.but(data=(where, door.port))
    try:
        said = board.attend(store, rendezvous, mine, window, allow_skew, say, _dialler(door))
    except Away as no:
        raise Refused(tuple(no.faults)) from None
    finally:
        if door is not None:
            door.close()
    return _gone(said, rendezvous.address, None).but(seconds=time.monotonic() - begun)


def complain(rendezvous: Rendezvous, mine: Hello, token: str = "", seconds: float = 0.8) -> None:
    """Tell rank 0, if it is reachable, that this rank cannot start; do not wait."""
    if not rendezvous.port:
        return
    visit = guest.Visit(rendezvous, mine.but(left=seconds), token)
    try:
        visit.attend(lambda _: [])
    except (Away, OSError):
        return


# -- server and client ----------------------------------------------------------------------------------


def _as_rank(rendezvous: Rendezvous, mine: Hello, window: float, token: str, allow_skew: bool,
             say: Callable[[str], None] | None, inquire: Inquire | None, door: Door | None) -> Attendance:  # fmt: skip
    claim, held = beacon.claim(rendezvous)
    try:
        found = _as_host(rendezvous, mine, window, token, allow_skew, say, door) if mine.rank == 0 else None
        found = found or _as_guest(rendezvous, mine, token, inquire, door, held)
    except BaseException:
        if claim is not None:
            claim.close()
        raise
    if claim is not None:
        KEPT.append(claim.detach())
    return found


def _as_guest(rendezvous: Rendezvous, mine: Hello, token: str, inquire: Inquire | None, door: Door | None,
              held: int) -> Attendance:  # fmt: skip
    visit = guest.Visit(rendezvous, mine, token, inquire)
    visit.held = held
    try:
        said = visit.attend(_dialler(door))
    except OSError as wrong:
        raise Away(
            Fault("NET016", f"the connection of {mine.who} to rank 0 broke ({wrong})", ranks=(mine.rank,))
        ) from None
    return _gone(said, visit.peer, None).but(first=visit.host)


def _as_host(rendezvous: Rendezvous, mine: Hello, window: float, token: str, allow_skew: bool,
             say: Callable[[str], None] | None, door: Door | None) -> Attendance | None:  # fmt: skip
    """Run the roll-call; None if another rank 0 already runs one at this port."""
    from gpuready.rollcall.host import Host, room

    listener = _listening(rendezvous, mine)
    if listener is None:
        return None
    mine, suspicion = _checked(rendezvous, mine)
    narrow = room(rendezvous.world_size)
    if narrow is not None and not mine.trouble:
        mine = mine.but(trouble=narrow.says, fix=narrow.fix, trouble_code=narrow.code)
    host = Host(listener, rendezvous, mine, window=window, token=token, allow_skew=allow_skew, say=say)
    kept = False
    try:
        faults = host.hold(suspicion, SUSPECT_S)
        if not faults:
            if door is not None and len(host.register.nodes()) > 1:
                door.open()
            faults = host.dial()
        host.tell(faults, suspicion)
        if faults:
            raise Away(*faults)
        kept = True
        return _gone({"nodes": host.register.nodes(), "notes": host.register.notes()}, "127.0.0.1", listener)
    finally:
        host.close()
        if not kept:
            listener.close()


def _listening(rendezvous: Rendezvous, mine: Hello) -> socket.socket | None:
    """Listen on the job's port; None if another roll-call has it. RankRejected names any other holder."""
    end = time.monotonic() + 1.0  # a job that has just ended may still have it
    while True:
        try:
            return endpoint.listen(rendezvous.port)
        except OSError as wrong:
            if wrong.errno != errno.EADDRINUSE:
                said = f"{mine.who} cannot listen on port {rendezvous.port} ({wrong.strerror})"
                raise Away(Fault("NET018", said, "choose a MASTER_PORT above 1024", (0,))) from None
        if _a_roll_call(rendezvous.port):
            return None
        if time.monotonic() > end:
            raise Away(_taken(rendezvous, mine))
        time.sleep(0.1)


def _a_roll_call(port: int) -> bool:
    conn, _ = endpoint.connect("127.0.0.1", port, 0.5)
    if conn is None:
        return False
    with conn:
        try:
            return bool(guest.greet(conn, 0.5))
        except wire.Strange:
            return False


def _taken(rendezvous: Rendezvous, mine: Hello) -> Fault:
    found = endpoint.holder(rendezvous.port)
    by = f"it belongs to {found}" if found else "its holder is not visible from here"
    said = f"{mine.who} cannot listen on port {rendezvous.port}: {by}"
    own = f", or end that process: kill {found.pid}" if found and found.pid else ""
    return Fault("NET018", said, f"set MASTER_PORT={endpoint.free_port()} for all ranks{own}", (0,))


def _checked(rendezvous: Rendezvous, mine: Hello) -> tuple[Hello, Fault | None]:
    """Check that others can find this host by MASTER_ADDR: trouble if not, a suspicion if it is loopback."""
    if mine.trouble:
        return mine, None
    try:
        resolved = tuple(str(where[0]) for _, where in endpoint.resolve(rendezvous.address, rendezvous.port))
    except OSError as wrong:
        why = endpoint.shown(wrong.strerror or wrong)
        said = f"MASTER_ADDR {endpoint.shown(rendezvous.address)} does not resolve ({why})"
        fix = f"{_ours()}; or add a line 'ADDRESS {endpoint.shown(rendezvous.address)}' to /etc/hosts of every host"
        return mine.but(trouble=said, fix=fix, trouble_code="NET016"), None
    mine = mine.but(resolved=resolved)
    if all(map(endpoint.is_loopback, resolved)):
        return mine, guest.loopback(mine, rendezvous, resolved) if rendezvous.nodes > 1 else None
    if rendezvous.launcher == "kubernetes" or any(map(endpoint.is_local, resolved)):
        return mine, None
    told = endpoint.reach(rendezvous.address, rendezvous.port, 2.0)
    if told.ok:
        return mine, None
    said = f"MASTER_ADDR {endpoint.shown(rendezvous.address)} is no address of rank 0's host, and is not reached from it ({told.why}: {told.told})"
    return mine.but(trouble=said, fix=_ours(), trouble_code="NET016"), None


def _ours() -> str:
    found = endpoint.addresses()
    if not found:
        return "set MASTER_ADDR=127.0.0.1, as this host has no other address"
    return f"rank 0 listens on {', '.join(found[:4])}: set MASTER_ADDR={found[0]} for all ranks"


def _door(mine: Hello) -> Door | None:
    """Only the first rank of each host accepts trial connections."""
    from gpuready.rollcall.dial import Door

    return None if mine.local_rank or mine.trouble else Door()


def _dialler(door: Door | None) -> Callable[[Sequence[Sequence[object]]], list[object]]:
    from gpuready.rollcall import dial

    def dialled(calls: Sequence[Sequence[object]]) -> list[object]:
        if door is not None:
            door.open()
        return dial.all_of(calls)

    return dialled


def _gone(said: Mapping[str, object], address: str, listener: socket.socket | None) -> Attendance:
    nodes = said.get("nodes")
    notes = said.get("notes")
    return Attendance(
        tuple((str(m), str(n), int(c)) for m, n, c in nodes) if isinstance(nodes, (list, tuple)) else (),
        tuple(map(str, notes)) if isinstance(notes, (list, tuple)) else (),
        address.removeprefix("::ffff:"),
        listener=listener,
    )
