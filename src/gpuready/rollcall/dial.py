"""Trial connections between machines: whether data passes both ways, in small and large pieces, and how fast.

The roll-call itself proves one port in one direction. Collectives open ports of their own, so a firewall that
allows only the rendezvous, or a path that loses large packets, would appear later as a hang; and one slow
link slows all ranks.
"""

from __future__ import annotations

import socket
import time

from gpuready.rollcall import endpoint
from gpuready.rollcall.register import Fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SMALL, LARGE = 64, 65536
CONNECT_S, ECHO_S = 3.0, 3.0
LONG, WHOLE_S = 60.0, 8.0
SLOW_S, TIMES = 0.02, 5.0
"""Round-trip time of a large piece on a link that is checked again, and how many times its peers' it must be."""

Call = tuple[int, str, int]
"""Rank, address and port to call."""


class Door:
    """Echoes trial connections at a free port, in a thread."""

    def __init__(self) -> None:
        import threading

        self.listener = endpoint.listen(0, 16)
        self.port = int(self.listener.getsockname()[1])
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def open(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Close the port and wake the thread if it waits for a connection."""
        if self._thread.is_alive():
            self.listener.shutdown(socket.SHUT_RDWR)
            self._thread.join(1.0)
        self.listener.close()

    def _serve(self) -> None:
        import threading

        end = time.monotonic() + LONG
        while time.monotonic() < end:
            try:
                conn, _ = self.listener.accept()
            except OSError:
                return
            # One thread for each caller: a slow one must not make the others look slow.
            threading.Thread(target=_echo, args=(conn,), daemon=True).start()


def _echo(conn: socket.socket) -> None:
    left = SMALL + 2 * LARGE
    try:
        conn.settimeout(ECHO_S)
        while left > 0:
            piece = conn.recv(min(left, LARGE))
            if not piece:
                break
            conn.sendall(piece)
            left -= len(piece)
    except OSError:
        pass
    finally:
        conn.close()


def plan(leaders: Sequence[tuple[int, tuple[str, int]]]) -> dict[int, list[Call]]:
    """Each leader calls its two neighbours, so that every link of the ring is tested both ways."""
    count = len(leaders)
    found: dict[int, list[Call]] = {}
    for at, (rank, _) in enumerate(leaders):
        others = {(at + 1) % count, (at - 1) % count} - {at}
        found[rank] = [(leaders[i][0], *leaders[i][1]) for i in sorted(others)]
    return found


def all_of(calls: Sequence[Sequence[object]]) -> list[object]:
    """Return the outcome of each call: rank, error or empty, round-trip seconds of a large piece."""
    return [_call(int(str(rank)), str(host), int(str(port))) for rank, host, port in calls]


def _call(rank: int, host: str, port: int) -> list[object]:
    conn, told = endpoint.connect(host, port, CONNECT_S)
    if conn is None:
        return [rank, f"{told.why}: {told.told}", 0.0]
    with conn:
        if _echoed(conn, SMALL)[0] < SMALL:
            return [rank, "it connects, and nothing comes back", 0.0]
        heard, seconds = _echoed(conn, LARGE)
        if not heard:
            return [rank, f"{SMALL} B pass, {LARGE // 1024} KiB stall", 0.0]
        if heard == LARGE and seconds > SLOW_S:
            again, once_more = _echoed(conn, LARGE)  # a busy host is slow once, a slow link always
            seconds = min(seconds, once_more) if again == LARGE else seconds
    return [rank, "", seconds * LARGE / heard]


def _echoed(conn: socket.socket, size: int) -> tuple[int, float]:
    """Return how many bytes came back in time, and after how many seconds."""
    heard, begun = 0, time.monotonic()
    try:
        conn.settimeout(ECHO_S)
        conn.sendall(b"t" * size)
        while heard < size and time.monotonic() - begun < ECHO_S:
            piece = conn.recv(LARGE)
            if not piece:
                break
            heard += len(piece)
    except OSError:
        pass
    return heard, time.monotonic() - begun


def faults(
    planned: Mapping[int, Sequence[Call]], heard: Mapping[int, Sequence[object]], names: Mapping[int, str]
) -> list[Fault]:
    """Return the links that do not carry data, with the state of the other direction."""
    outcome = _outcomes(heard)
    found = []
    for rank, calls in planned.items():
        for other, host, port in calls:
            why = outcome.get((rank, other), "it did not finish")
            if why:
                back = outcome.get((other, rank), "it did not finish")
                found.append(_fault(names[rank], names[other], f"{host}:{port}", why, back, (rank, other)))
    return found


def slow(heard: Mapping[int, Sequence[object]], names: Mapping[int, str]) -> list[str]:
    """Return links many times slower than the others; without others, links slower than any current network."""
    links: dict[tuple[int, int], float] = {}
    for rank, rows in heard.items():
        for other, why, seconds in _rows(rows):
            if not why and rank in names and other in names:
                link = (min(rank, other), max(rank, other))
                links[link] = min(seconds, links.get(link, seconds))
    found = []
    for link, seconds in sorted(links.items()):
        others = sorted(s for one, s in links.items() if one != link)
        usual = others[(len(others) - 1) // 2] if others else 0.0
        if seconds > SLOW_S and seconds > TIMES * usual:
            than = f", and the others {_rate(usual)}" if others else ""
            found.append(
                f"the link between {names[link[0]]} and {names[link[1]]} is slow: {_rate(seconds)}{than} [NET019]"
            )
    return found


def _rate(seconds: float) -> str:
    return f"{2 * LARGE / max(seconds, 1e-6) / 1e6:.3g} MB/s"


def _rows(rows: Sequence[object]) -> list[tuple[int, str, float]]:
    """Validate a leader's outcomes; any sender may have written them."""
    return [
        (row[0], endpoint.shown(row[1])[:200], float(row[2]))
        for row in rows
        if isinstance(row, (list, tuple))
        and len(row) == 3
        and isinstance(row[0], int)
        and isinstance(row[2], (int, float))
        and 0 <= row[2] < 1e6
    ]


def _outcomes(heard: Mapping[int, Sequence[object]]) -> dict[tuple[int, int], str]:
    return {(rank, other): why for rank, rows in heard.items() for other, why, _ in _rows(rows)}


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
