"""Trial connections between machines: whether data passes both ways, in small and large pieces, and how fast.

The roll-call itself proves one port in one direction. Collectives open ports of their own, so a firewall that
allows only the rendezvous, or a path that loses large packets, would appear later as a hang; and one slow
link slows all ranks.
"""

import socket
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from gpuready.model.visible_text import escape_unprintable
from gpuready.rollcall import endpoint
from gpuready.rollcall.rank_register import RollcallFault

SMALL_BYTES, LARGE_BYTES = 64, 65536
CONNECT_SECONDS, ECHO_SECONDS = 3.0, 3.0
SERVE_SECONDS, ALL_CALLS_SECONDS = 60.0, 8.0
CALL_SECONDS, MAX_CALLERS = 10.0, 32
"""How long one caller is served, and how many at once: for one more, the oldest is closed. A rank has two callers."""
SLOW_SECONDS, SLOW_FACTOR = 0.02, 5.0
"""Round-trip time of a large piece on a link that is checked again, and how many times its peers' it must be."""

TrialCall = tuple[int, str, int]
"""Rank, address and port to call."""


class EchoServer:
    """Echoes trial connections at a free port, in a thread."""

    def __init__(self) -> None:
        self.listener = endpoint.listen_on_port(0, 16)
        self.port = int(self.listener.getsockname()[1])
        self._thread = threading.Thread(target=self._serve_echoes, daemon=True)

    def start_serving(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Close the port and wake the thread if it waits for a connection."""
        if self._thread.is_alive():
            self.listener.shutdown(socket.SHUT_RDWR)
            self._thread.join(1.0)
        self.listener.close()

    def _serve_echoes(self) -> None:
        end, callers = time.monotonic() + SERVE_SECONDS, list[tuple[socket.socket, threading.Thread]]()
        while time.monotonic() < end:
            try:
                conn, _ = self.listener.accept()
            except OSError:
                return
            callers = [one for one in callers if one[1].is_alive()]
            if len(callers) >= MAX_CALLERS:
                _hang_up(*callers.pop(0))
            # One thread for each caller: a slow one must not make the others look slow.
            callers.append((conn, threading.Thread(target=_echo_connection, args=(conn,), daemon=True)))
            callers[-1][1].start()


def _hang_up(conn: socket.socket, thread: threading.Thread) -> None:
    """Wake the thread that serves a caller, and let it end."""
    try:
        conn.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it has just ended
    thread.join(1.0)


def _echo_connection(conn: socket.socket) -> None:
    left, end = SMALL_BYTES + 2 * LARGE_BYTES, time.monotonic() + CALL_SECONDS
    try:
        conn.settimeout(ECHO_SECONDS)
        while left > 0 and time.monotonic() < end:
            piece = conn.recv(min(left, LARGE_BYTES))
            if not piece:
                break
            conn.sendall(piece)
            left -= len(piece)
    except OSError:
        pass
    finally:
        conn.close()


def plan_ring_calls(leaders: Sequence[tuple[int, tuple[str, int]]]) -> dict[int, list[TrialCall]]:
    """Each leader calls its two neighbours, so that every link of the ring is tested both ways."""
    count = len(leaders)
    calls_of_rank: dict[int, list[TrialCall]] = {}
    for at, (rank, _) in enumerate(leaders):
        others = {(at + 1) % count, (at - 1) % count} - {at}
        calls_of_rank[rank] = [(leaders[i][0], *leaders[i][1]) for i in sorted(others)]
    return calls_of_rank


def run_trial_calls(calls: Sequence[Sequence[object]]) -> list[object]:
    """Return the outcome of each call: rank, error or empty, round-trip seconds of a large piece."""
    return [_run_trial_call(int(str(rank)), str(host), int(str(port))) for rank, host, port in calls]


def _run_trial_call(rank: int, host: str, port: int) -> list[object]:
    conn, reached = endpoint.connect_to_host(host, port, CONNECT_SECONDS)
    if conn is None:
        return [rank, f"{reached.why}: {reached.detail}", 0.0]
    with conn:
        if _measure_echo(conn, SMALL_BYTES)[0] < SMALL_BYTES:
            return [rank, "it connects, and nothing comes back", 0.0]
        echoed_bytes, seconds = _measure_echo(conn, LARGE_BYTES)
        if not echoed_bytes:
            return [rank, f"{SMALL_BYTES} B pass, {LARGE_BYTES // 1024} KiB stall", 0.0]
        if echoed_bytes == LARGE_BYTES and seconds > SLOW_SECONDS:
            again, once_more = _measure_echo(conn, LARGE_BYTES)  # a busy host is slow once, a slow link always
            seconds = min(seconds, once_more) if again == LARGE_BYTES else seconds
    return [rank, "", seconds * LARGE_BYTES / echoed_bytes]


def _measure_echo(conn: socket.socket, size: int) -> tuple[int, float]:
    """Return how many bytes came back in time, and after how many seconds."""
    echoed_bytes, started = 0, time.monotonic()
    with suppress(OSError):
        conn.settimeout(ECHO_SECONDS)
        conn.sendall(b"t" * size)
        while echoed_bytes < size and time.monotonic() - started < ECHO_SECONDS:
            piece = conn.recv(LARGE_BYTES)
            if not piece:
                break
            echoed_bytes += len(piece)
    return echoed_bytes, time.monotonic() - started


def find_link_faults(
    planned: Mapping[int, Sequence[TrialCall]], outcomes: Mapping[int, Sequence[object]], names: Mapping[int, str]
) -> list[RollcallFault]:
    """Return the links that do not carry data, with the state of the other direction."""
    outcome = {(rank, other): why for rank, rows in outcomes.items() for other, why, _ in _valid_rows(rows)}
    collected = []
    for rank, calls in planned.items():
        for other, host, port in calls:
            why = outcome.get((rank, other), "it did not finish")
            if why:
                reverse_why = outcome.get((other, rank), "it did not finish")
                where = f"{host}:{port}"
                collected.append(_link_fault(names[rank], names[other], where, why, reverse_why, (rank, other)))
    return collected


def find_slow_links(outcomes: Mapping[int, Sequence[object]], names: Mapping[int, str]) -> list[str]:
    """Return links many times slower than the others; without others, links slower than any current network."""
    links: dict[tuple[int, int], float] = {}
    for rank, rows in outcomes.items():
        for other, why, seconds in _valid_rows(rows):
            if not why and rank in names and other in names:
                link = (min(rank, other), max(rank, other))
                links[link] = min(seconds, links.get(link, seconds))
    collected = []
    for link, seconds in sorted(links.items()):
        others = sorted(s for one, s in links.items() if one != link)
        usual = others[(len(others) - 1) // 2] if others else 0.0
        if seconds > SLOW_SECONDS and seconds > SLOW_FACTOR * usual:
            than = f", and the others {_format_rate(usual)}" if others else ""
            between = f"the link between {names[link[0]]} and {names[link[1]]}"
            collected.append(f"{between} is slow: {_format_rate(seconds)}{than} [NET019]")
    return collected


def _format_rate(seconds: float) -> str:
    return f"{2 * LARGE_BYTES / max(seconds, 1e-6) / 1e6:.3g} MB/s"


def _valid_rows(rows: Sequence[object]) -> list[tuple[int, str, float]]:
    """Validate a leader's outcomes; any sender may have written them."""
    return [
        (row[0], escape_unprintable(row[1])[:200], float(row[2]))
        for row in rows
        if isinstance(row, (list, tuple))
        and len(row) == 3
        and isinstance(row[0], int)
        and isinstance(row[2], (int, float))
        and 0 <= row[2] < 1e6
    ]


def _link_fault(one: str, other: str, where: str, why: str, reverse_why: str, ranks: tuple[int, ...]) -> RollcallFault:
    way = "the other way works" if not reverse_why else "the other way fails too"
    message = f"{one} cannot send data to {other} at {where} ({why}); {way}"
    ports = "-".join(endpoint.read_text("/proc/sys/net/ipv4/ip_local_port_range").split()) or "32768-60999"
    fix = f"let both hosts open ports {ports} to each other"
    if "stall" in why:
        fix = "large packets are lost: give both interfaces one MTU, or allow path MTU discovery"
    return RollcallFault("NET017", message, fix, ranks)
