"""Rank 0's side of the roll-call: one loop in one thread that waits for no single connection."""

from __future__ import annotations

import os
import selectors
import socket
import time

from gpuready.rollcall import beacon, whose, wire
from gpuready.rollcall.endpoint import shown
from gpuready.rollcall.hello import read
from gpuready.rollcall.register import Fault, Register, spans

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuready.cluster import Rendezvous
    from gpuready.rollcall.hello import Hello

SPEAK_S = 3.0  # to say hello before being dropped; longer with many ranks
A_SECOND = 500  # ranks served in one second on a busy machine
SETTLE_S = 0.3  # after the first fault, for others like it
LINGER_S = 2.5  # after a refusal, for late ranks; less if the window has passed
AT_BEACON = "this host"
STRANGERS = 512  # connections that have not sent a hello


class Guest:
    __slots__ = ("conn", "greeted", "heard", "hello", "owed", "salt", "since", "told", "where")

    def __init__(self, conn: socket.socket, where: str, now: float) -> None:
        self.conn, self.where, self.since = conn, where, now
        self.heard, self.owed, self.salt = b"", b"", wire.nonce()
        self.greeted = self.told = False
        self.hello: Hello | None = None


class Host:
    """A roll-call: collects hellos on a listening socket and sends all ranks the same answer."""

    def __init__(self, listener: socket.socket, rendezvous: Rendezvous, mine: Hello, *, window: float, token: str,
                 allow_skew: bool, say: Callable[[str], None] | None) -> None:  # fmt: skip
        self.listener, self.rendezvous, self.mine, self.token = listener, rendezvous, mine, token
        self.window, self.say = window, say
        self.register = Register(rendezvous, allow_skew)
        self.begun = time.monotonic()
        self.patience = SPEAK_S + rendezvous.world_size / A_SECOND
        self.until = self.begun + min(window, mine.left)
        self.guests: dict[int, Guest] = {}
        self.strangers: dict[int, Guest] = {}
        self.turned: dict[str, str] = {}
        self.dropped = 0
        self.answer: dict[str, object] | None = None
        self.words = ""
        self.card = whose.this(rendezvous, mine.host) | {"family": mine.family}
        self.dials: dict[int, list[object]] = {}
        self.selector = selectors.DefaultSelector()
        self.beacon = beacon.lit()
        self.register.enter(mine)

    # -- the loop -----------------------------------------------------------------------------------

    def hold(self, suspicion: Fault | None = None, suspect_s: float = 3.0) -> list[Fault]:
        """Collect hellos until all are there, a fault is certain, or the window has passed.

        A ``suspicion`` (a loopback address in a job with several nodes) becomes a fault unless a rank of
        another node arrives within ``suspect_s``.
        """
        self._open()
        settle = 0.0
        doubt_until = self.begun + suspect_s if suspicion else 0.0
        while True:
            now = time.monotonic()
            if self.register.broken:
                settle = settle or now + SETTLE_S
                if now >= settle or (self.register.complete and not self.strangers):
                    return self.register.faults()
            elif self.register.complete:
                return []
            elif suspicion and now >= doubt_until and not self._others_came():
                return [suspicion]
            elif now >= self.until:
                return self.register.late(self.window, [*self.turned.values(), *self._no_ranks()])
            soonest = min(filter(None, (settle, self.until, doubt_until if suspicion else 0.0)))
            self._turn(max(0.0, min(soonest - now, 0.5)))
            self._progress(now)

    def dial(self) -> list[Fault]:
        """Have the leaders of several machines test the links between them."""
        from gpuready.rollcall import dial

        leaders = self.register.leaders()
        if len(leaders) < 2:
            return []
        plan = dial.plan([(rank, self._address_of(rank)) for rank in leaders])
        for guest in list(self.guests.values()):
            if guest.hello is not None and guest.hello.rank in plan:
                self._send(guest, {"dial": plan[guest.hello.rank]})
        self.dials[self.mine.rank] = dial.all_of(plan[self.mine.rank])
        end = time.monotonic() + dial.WHOLE_S
        while not self.register.broken and len(self.dials) < len(plan) and time.monotonic() < end:
            self._turn(0.1)
        names = {rank: self.register.there[rank].who for rank in leaders}
        self.register.remarks += dial.slow(self.dials, names)
        return self.register.faults() or dial.faults(plan, self.dials, names)

    def tell(self, faults: list[Fault], suspicion: Fault | None = None) -> None:
        """Send the answer to all; after a refusal also to those who still come, for a while."""
        self.register.remarks += self._no_ranks()
        self.answer = self._made(faults)
        for guest in list(self.guests.values()):
            if guest.hello is not None:
                self._send(guest, self.answer)
        had_the_window = time.monotonic() >= self.until or (suspicion is not None and faults == [suspicion])
        end = time.monotonic() + (0.5 if had_the_window else LINGER_S) if faults else time.monotonic() + 5.0
        while time.monotonic() < end and self._owing(bool(faults)):
            self._turn(0.05)

    def close(self) -> None:
        """Close everything but the listener, which torch's store takes over."""
        for guest in list(self.guests.values()):
            self._drop(guest)
        for made in (self.listener, self.beacon):
            if made is not None:
                self._forget(made)
        if self.beacon is not None:
            self.beacon.close()
        self.selector.close()
        self.listener.setblocking(True)

    # -- helpers ------------------------------------------------------------------------------------

    def _open(self) -> None:
        for made in (self.listener, self.beacon):
            if made is not None:
                made.setblocking(False)
                self.selector.register(made, selectors.EVENT_READ)

    def _forget(self, made: socket.socket) -> None:
        if made.fileno() in self.selector.get_map():
            self.selector.unregister(made)

    def _others_came(self) -> bool:
        mine = self.rendezvous.local_world_size or 1
        return any(rank >= mine for rank in self.register.there)

    def _no_ranks(self) -> list[str]:
        """Describe the connections that were no rank's."""
        found = self.dropped
        return (
            [f"{found} connection{'s' * (found > 1)} that {'were' if found > 1 else 'was'} no rank's"]
            if found
            else []
        )

    def _owing(self, refused: bool) -> bool:
        """Whether a rank still has to be told: after a refusal all expected ranks, else those with unsent data."""
        book = self.register
        came = len(book.there) + len(book.troubled) + len(book.odd)
        if refused and came < self.rendezvous.world_size:
            return True
        return bool(refused and self.strangers) or any(guest.owed for guest in self.guests.values())

    def _made(self, faults: list[Fault]) -> dict[str, object]:
        if faults:
            return {"refused": [fault.to_json() for fault in faults]}
        return {"go": {"nodes": self.register.nodes(), "notes": self.register.notes()[:20]}}

    def _progress(self, now: float) -> None:
        waited = now - self.begun
        if self.say is not None and waited > 5 and int(waited / 5) > int(getattr(self, "_said", 0.0) / 5):
            self._said = waited
            absent = self.register.missing()
            self.say(
                f"waiting for {'rank' if len(absent) == 1 else 'ranks'} {spans(absent)} of {self.rendezvous.world_size} ({waited:.0f} of {self.window:g} s)"
            )

    def _address_of(self, rank: int) -> tuple[str, int]:
        """Return where a leader can be called: its chosen interface, else the address seen here."""
        name, port = self.register.there[rank].data
        if not name and rank != self.mine.rank:
            name = next((g.where for g in self.guests.values() if g.hello and g.hello.rank == rank), "")
        return name or self._seen_as(), port

    def _seen_as(self) -> str:
        """Return the address at which the others reached this host."""
        for guest in self.guests.values():
            if guest.hello is not None and guest.hello.machine != self.mine.machine:
                return str(guest.conn.getsockname()[0]).removeprefix("::ffff:")
        return self.rendezvous.address

    # -- connections --------------------------------------------------------------------------------

    def _turn(self, seconds: float) -> None:
        for key, events in self.selector.select(seconds):
            if key.data is None:
                self._accept(key.fileobj)  # type: ignore[arg-type]
            elif events & selectors.EVENT_WRITE:
                self._flush(key.data)
            else:
                self._hear(key.data)
        self._sweep(time.monotonic())

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(256):
            try:
                conn, where = listener.accept()
            except OSError:
                return
            conn.setblocking(False)
            address = str(where[0]).removeprefix("::ffff:") if isinstance(where, tuple) else AT_BEACON
            guest = Guest(conn, address, time.monotonic())
            if len(self.strangers) >= STRANGERS + self.rendezvous.world_size:
                self._drop(next(iter(self.strangers.values())), counted=True)
            self.guests[conn.fileno()] = self.strangers[conn.fileno()] = guest
            self.selector.register(conn, selectors.EVENT_READ, guest)

    def _sweep(self, now: float) -> None:
        """Drop strangers that stay silent. They are in order of time, so the first one allowed to stay ends
        the loop.
        """
        while self.strangers:
            first = next(iter(self.strangers.values()))
            if now - first.since < self.patience:
                return
            self._drop(first, counted=True)

    def _hear(self, guest: Guest) -> None:
        try:
            more = guest.conn.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            more = b""
        guest.heard += more
        if not more or len(guest.heard) > wire.LONGEST:
            self._ended(guest)
            return
        while b"\n" in guest.heard and guest.conn.fileno() >= 0:
            line, _, guest.heard = guest.heard.partition(b"\n")
            self._line(guest, line)

    def _line(self, guest: Guest, line: bytes) -> None:
        if not guest.greeted:
            if not line.startswith(wire.WORD):
                self._drop(guest, counted=True)
                return
            guest.greeted = True
            self._raw(guest, wire.WORD + wire.packed(self._greeting(guest), "", ""))
            return
        try:
            said = wire.opened(line, self.token, guest.salt)
            if guest.hello is not None:
                self._later(guest, said)
                return
            hello = read(said)
        except PermissionError:
            self._turn_away(guest, f"{guest.where} has another token", "token")
            return
        except (ValueError, TypeError, RecursionError):
            self._drop(guest, counted=True)
            return
        self._enter(guest, hello)

    def _later(self, guest: Guest, said: object) -> None:
        if isinstance(said, dict) and isinstance(said.get("dialled"), list) and guest.hello is not None:
            self.dials[guest.hello.rank] = said["dialled"]

    def _enter(self, guest: Guest, hello: Hello) -> None:
        if hello.run_id != self.rendezvous.run_id:
            self._turn_away(guest, f"{hello.who} of run {shown(hello.run_id) or '(none)'}", "run")
            return
        guest.hello = hello
        self.strangers.pop(guest.conn.fileno(), None)
        self.until = min(self.until, time.monotonic() + max(0.0, hello.left))
        self.register.enter(hello, time.time())
        if self.answer is not None:
            self._send(guest, self.answer)

    def _turn_away(self, guest: Guest, said: str, why: str) -> None:
        """Reject a client of another job or without the token; note it once by its address."""
        self.turned.setdefault(f"{why} {guest.where}", said)
        self._raw(guest, wire.packed({"elsewhere": why}, "", ""))
        self._drop(guest)

    def _greeting(self, guest: Guest) -> dict[str, object]:
        """Describe this roll-call; at the beacon also the missing ranks, which those clients look for."""
        found = {"salt": guest.salt, **self.card}
        return found | {"missing": self.register.missing()} if guest.where == AT_BEACON else found

    def _ended(self, guest: Guest) -> None:
        hello = guest.hello
        if hello is not None and self.answer is None and self.register.there.get(hello.rank) is hello:
            self.register.leave(hello, "its connection ended")
        self._drop(guest, counted=hello is None and not guest.greeted)

    def _send(self, guest: Guest, data: dict[str, object]) -> None:
        self._raw(guest, wire.sealed(self._written(data), self.token, guest.salt))

    def _written(self, data: dict[str, object]) -> str:
        """Serialize the answer to thousands of ranks only once."""
        if data is not self.answer:
            return wire.written(data)
        self.words = self.words or wire.written(data)
        return self.words

    def _raw(self, guest: Guest, words: bytes) -> None:
        guest.owed += words
        self._flush(guest)

    def _flush(self, guest: Guest) -> None:
        if guest.conn.fileno() < 0:
            return
        try:
            sent = guest.conn.send(guest.owed) if guest.owed else 0
            guest.owed = guest.owed[sent:]
        except BlockingIOError:
            pass
        except OSError:
            guest.owed = b""
            self._ended(guest)
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if guest.owed else 0)
        if self.selector.get_key(guest.conn).events != events:
            self.selector.modify(guest.conn, events, guest)

    def _drop(self, guest: Guest, counted: bool = False) -> None:
        self.dropped += counted
        number = guest.conn.fileno()
        if number < 0:
            return
        self._forget(guest.conn)
        self.guests.pop(number, None)
        self.strangers.pop(number, None)
        guest.conn.close()


def room(world_size: int) -> Fault | None:
    """Raise the limit of open files for a connection to every rank; return a fault if it is too low."""
    import resource

    needed = world_size + 128
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= needed or soft == resource.RLIM_INFINITY:
        return None
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(needed, hard) if hard != -1 else needed, hard))
        if hard == -1 or hard >= needed:
            return None
    except (OSError, ValueError):
        pass
    said = f"rank 0 (pid {os.getpid()}) may open {soft} files (at most {hard}), and {world_size} ranks need {needed}"
    return Fault("SYS006", said, f"raise the limit: ulimit -n {needed}", (0,))
