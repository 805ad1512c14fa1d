"""Trial connections between machines: whether data will pass, both ways, in small and in large pieces.

The roll-call itself proves one port in one direction. Collectives open ports of their own, so that a firewall
which lets only the rendezvous through, or a path that loses large packets, shows itself later as a hang.
"""

from __future__ import annotations

import socket
import time

from tarmac.rollcall import endpoint
from tarmac.rollcall.register import Fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SMALL, LARGE = 64, 65536
CONNECT_S, ECHO_S = 3.0, 3.0
LONG = 60.0

Call = tuple[int, str, int]
"""Whom to call: rank, address, port."""


class Door:
    """A port of the kernel's choice at which trial connections are echoed, by a thread, while it is open."""

    def __init__(self) -> None:
        import threading

        self.listener = endpoint.listen(0, 16)
        self.port = int(self.listener.getsockname()[1])
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def open(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Wakes the thread where it waits for a caller, so that none is left."""
        if self._thread.is_alive():
            self.listener.shutdown(socket.SHUT_RDWR)
            self._thread.join(1.0)
        self.listener.close()

    def _serve(self) -> None:
        end = time.monotonic() + LONG
        while time.monotonic() < end:
            try:
                conn, _ = self.listener.accept()
            except OSError:
                return
            with conn:
                _echo(conn)


def _echo(conn: socket.socket) -> None:
    left = SMALL + LARGE
    try:
        conn.settimeout(ECHO_S)
        while left > 0:
            piece = conn.recv(min(left, LARGE))
            if not piece:
                return
            conn.sendall(piece)
            left -= len(piece)
    except OSError:
        return


def plan(leaders: Sequence[tuple[int, tuple[str, int]]]) -> dict[int, list[Call]]:
    """Each leader calls the next and the one before, so that every link of the ring is tried both ways."""
    count = len(leaders)
    found: dict[int, list[Call]] = {}
    for at, (rank, _) in enumerate(leaders):
        others = {(at + 1) % count, (at - 1) % count} - {at}
        found[rank] = [(leaders[i][0], *leaders[i][1]) for i in sorted(others)]
    return found


def all_of(calls: Sequence[Sequence[object]]) -> list[object]:
    """The outcome of each call: rank, what went wrong (or nothing), seconds."""
    return [_call(int(str(rank)), str(host), int(str(port))) for rank, host, port in calls]


def _call(rank: int, host: str, port: int) -> list[object]:
    begun = time.monotonic()
    conn, told = endpoint.connect(host, port, CONNECT_S)
    if conn is None:
        return [rank, f"{told.why}: {told.told}", time.monotonic() - begun]
    with conn:
        for size in (SMALL, LARGE):
            if not _echoed(conn, size):
                why = (
                    "it connects, and nothing comes back"
                    if size == SMALL
                    else f"{SMALL} B pass, {LARGE // 1024} KiB stall"
                )
                return [rank, why, time.monotonic() - begun]
    return [rank, "", time.monotonic() - begun]


def _echoed(conn: socket.socket, size: int) -> bool:
    heard, end = 0, time.monotonic() + ECHO_S
    try:
        conn.settimeout(ECHO_S)
        conn.sendall(b"t" * size)
        while heard < size and time.monotonic() < end:
            piece = conn.recv(LARGE)
            if not piece:
                return False
            heard += len(piece)
    except OSError:
        return False
    return heard >= size


def faults(
    planned: Mapping[int, Sequence[Call]], heard: Mapping[int, Sequence[object]], names: Mapping[int, str]
) -> list[Fault]:
    """The links that do not carry data, with the direction that fails and the one that works."""
    outcome = _outcomes(heard)
    found = []
    for rank, calls in planned.items():
        for other, host, port in calls:
            why = outcome.get((rank, other), "it did not finish")
            if why:
                back = outcome.get((other, rank), "it did not finish")
                found.append(_fault(names[rank], names[other], f"{host}:{port}", why, back, (rank, other)))
    return found


def _outcomes(heard: Mapping[int, Sequence[object]]) -> dict[tuple[int, int], str]:
    found = {}
    for rank, rows in heard.items():
        for row in rows:
            if isinstance(row, (list, tuple)) and len(row) == 3 and isinstance(row[0], int):
                found[rank, row[0]] = endpoint.shown(row[1])[:200]
    return found


def _fault(one: str, other: str, where: str, why: str, back: str, ranks: tuple[int, ...]) -> Fault:
    way = "the other way works" if not back else "the other way fails too"
    said = f"{one} cannot send data to {other} at {where} ({why}); {way}"
    if "stall" in why:
        return Fault(
            "NET017",
            said,
            "large packets are lost: give both interfaces one MTU, or allow path MTU discovery",
            ranks,
        )
    return Fault("NET017", said, f"let both hosts open ports {_range()} to each other", ranks)


def _range() -> str:
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
            return "-".join(file.read().split())
    except OSError:
        return "32768-60999"
