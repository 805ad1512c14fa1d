"""Addresses, ports and interfaces of this host; every lookup has a deadline."""

from __future__ import annotations

import errno
import fcntl
import os
import pwd
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from gpuready.model.record import Record
from gpuready.model.visible_text import escape_unprintable

RESOLVE_SECONDS = 3.0
TCP_LISTEN = "0A"


def read_text(path: str, most: int = 4096) -> str:
    """The beginning of a file; nothing where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(most)
    except OSError:
        return ""


class PortHolder(Record):
    """The process that has a port, as far as this user may see."""

    pid: int = 0  # 0: not visible to this user, or in another container
    user: str = ""
    command: str = ""
    age_s: float = 0.0
    state: str = "listening"

    def __str__(self) -> str:
        if not self.pid:
            return f"a process that is not visible here (user {self.user or 'unknown'}, {self.state})"
        return f"pid {self.pid} of {self.user or 'unknown'}, {self.state}, {self.age_s:.0f} s old: {self.command}"


class ReachResult(Record):
    """Whether a host and port could be reached, and the result for each of its addresses."""

    ok: bool = False
    why: str = ""  # "name", "refused", "no route", "no answer"
    detail: str = ""
    addresses: tuple[str, ...] = ()


PLAIN_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-:/+=,@%")


def quote_peer(text: object, limit: int = 80) -> str:
    """Return a peer's word: as it is if it is plain, else in quotes, so that nobody takes it for ours."""
    word = str(text)[:limit]
    return word if PLAIN_LETTERS.issuperset(word) else escape_unprintable(repr(word))


# -- names ----------------------------------------------------------------------------------------------


def resolve_host(host: str, port: int, seconds: float = RESOLVE_SECONDS) -> list[tuple[int, tuple[object, ...]]]:
    """Return families and addresses in the resolver's order; OSError if there are none or it does not answer."""
    try:
        return _getaddrinfo_rows(host, port, socket.AI_NUMERICHOST)
    except OSError:
        return _run_with_timeout(
            seconds, lambda: _getaddrinfo_rows(host, port, 0), f"the resolver is silent about {host}"
        )


def _getaddrinfo_rows(host: str, port: int, flags: int) -> list[tuple[int, tuple[object, ...]]]:
    rows = socket.getaddrinfo(_host_bytes(host), port, type=socket.SOCK_STREAM, flags=flags)
    return [(int(family), tuple(where)) for family, _, _, _, where in rows]


def _host_bytes(host: str) -> str | bytes:
    """Return bytes if possible: for text Python loads the IDNA tables, 5 ms in every rank."""
    return host.encode("ascii") if host.isascii() else host


def _run_with_timeout(
    seconds: float, work: Callable[[], list[tuple[int, tuple[object, ...]]]], late: str
) -> list[tuple[int, tuple[object, ...]]]:
    """Run ``work`` in a thread that is abandoned at the deadline: a resolver cannot be interrupted."""
    answers: list[object] = []

    def run_work() -> None:
        try:
            answers.append(work())
        except (OSError, UnicodeError) as error:
            answers.append(error)

    thread = threading.Thread(target=run_work, daemon=True)
    thread.start()
    thread.join(seconds)
    if not answers:
        raise TimeoutError(f"{late} for {seconds:.0f} s")
    outcome = answers[0]
    if isinstance(outcome, list):
        return outcome
    raise outcome if isinstance(outcome, OSError) else OSError(str(outcome))


# -- connections ----------------------------------------------------------------------------------------


def connect_to_host(host: str, port: int, seconds: float) -> tuple[socket.socket | None, ReachResult]:
    """Connect to the first address that accepts, and report the others' errors."""
    end = time.monotonic() + seconds
    try:
        resolved = resolve_host(host, port, min(seconds, RESOLVE_SECONDS))
    except OSError as error:
        return None, ReachResult(False, "name", _error_text(error))
    address_texts = tuple(str(where[0]) for _, where in resolved)
    tried: list[tuple[str, str]] = []
    for at, (family, where) in enumerate(resolved):
        share = max(0.2, (end - time.monotonic()) / (len(resolved) - at))
        sock, why, detail = _try_connect(family, where, share)
        if sock is not None:
            return sock, ReachResult(True, "", "", address_texts)
        tried.append((why, f"{where[0]}: {detail}"))
    order = ("refused", "no answer", "no route")
    why = min((one for one, _ in tried), key=order.index, default="name")
    return None, ReachResult(False, why, "; ".join(detail for _, detail in tried), address_texts)


def test_reachability(host: str, port: int, seconds: float = 3.0) -> ReachResult:
    """Whether something accepts connections there."""
    sock, result = connect_to_host(host, port, seconds)
    if sock is not None:
        sock.close()
    return result


def _try_connect(family: int, where: tuple[object, ...], seconds: float) -> tuple[socket.socket | None, str, str]:
    try:
        sock = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        return None, "no route", _error_text(error)
    try:
        sock.settimeout(seconds)
        sock.connect(where)
        if sock.getsockname() == sock.getpeername():
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")  # it connected to itself
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock, "", ""
    except ConnectionRefusedError as error:
        why, detail = "refused", _error_text(error)
    except TimeoutError:
        why, detail = "no answer", f"no answer within {seconds:.2g} s"
    except OSError as error:
        why, detail = "no route", _error_text(error)
    sock.close()
    return None, why, detail


def _error_text(error: OSError) -> str:
    return escape_unprintable(error.strerror or error)


def listen_on_port(port: int, backlog: int = 4096, host: str = "") -> socket.socket:
    """Listen at one address of this host, or at all of them, IPv6 and IPv4 together if possible."""
    if host:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return _bind_and_listen(socket.socket(family, socket.SOCK_STREAM), host, port, backlog)
    try:
        sock = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    except OSError:
        return _bind_and_listen(socket.socket(socket.AF_INET, socket.SOCK_STREAM), "", port, backlog)
    try:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        return _bind_and_listen(sock, "::", port, backlog)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise
    return _bind_and_listen(socket.socket(socket.AF_INET, socket.SOCK_STREAM), "", port, backlog)


def _bind_and_listen(sock: socket.socket, host: str, port: int, backlog: int) -> socket.socket:
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(backlog)
    except OSError:
        sock.close()
        raise
    return sock


def listening_address(listener: socket.socket) -> str:
    """Return an address of this host at which a listening socket is reached."""
    host = str(listener.getsockname()[0])
    return "127.0.0.1" if host in ("::", "0.0.0.0") else host


def find_free_port() -> int:
    with listen_on_port(0, 1) as sock:
        return int(sock.getsockname()[1])


def is_local_address(address: str) -> bool:
    """Whether an address belongs to this host: only then can it be bound."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        where = socket.getaddrinfo(_host_bytes(address), 0, family, socket.SOCK_DGRAM, 0, socket.AI_NUMERICHOST)[0][4]
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.bind(where)
        return True
    except OSError:
        return False


def is_loopback_address(address: str) -> bool:
    return address.startswith(("127.", "::ffff:127.")) or address == "::1"


# -- port holders -----------------------------------------------------------------------------------------


def find_port_holder(port: int) -> PortHolder | None:
    """Return who has this port, preferring a listening socket; None if the kernel knows of none."""
    rows = [row for row in read_socket_table(port) if len(row) > 9 and row[9] != "0"]
    if not rows:
        return None
    row = min(rows, key=lambda row: row[3] != TCP_LISTEN)
    word = "listening" if row[3] == TCP_LISTEN else "in a connection of its own"
    pid = _find_inode_owner(row[9])
    return PortHolder(pid, _user_name(int(row[7])), process_command(pid), process_age(pid), word)


def read_socket_table(port: int, tables: Sequence[str] = ("/proc/net/tcp", "/proc/net/tcp6")) -> list[list[str]]:
    """Return the kernel's rows of the sockets at a local port: 1 local address, 2 peer, 3 state, 7 uid, 9 inode."""
    rows = [line.split() for path in tables for line in read_text(path, 1 << 26).splitlines()[1:]]
    return [row for row in rows if len(row) > 3 and int(row[1].rpartition(":")[2], 16) == port]


def _find_inode_owner(inode: str) -> int:
    wanted = f"socket:[{inode}]"
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError):
            for fd in os.listdir(f"/proc/{pid}/fd"):
                if os.readlink(f"/proc/{pid}/fd/{fd}") == wanted:
                    return int(pid)
    return 0


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def process_command(pid: int) -> str:
    """Return the program and its first words; the rest may be secret."""
    words = read_text(f"/proc/{pid}/cmdline").split("\0")
    return escape_unprintable(" ".join(word for word in words[:3] if word)[:100]) or "unknown"


def process_age(pid: int) -> float:
    try:
        started = int(read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        return max(0.0, float(read_text("/proc/uptime").split()[0]) - started)
    except (ValueError, IndexError):
        return 0.0


# -- interfaces -------------------------------------------------------------------------------------------


def list_interfaces() -> dict[str, tuple[bool, tuple[str, ...]]]:
    """List this host's interfaces: whether each is up, and its addresses."""
    ipv6_addresses = _ipv6_addresses()
    return {
        name: (
            bool(int(read_text(f"/sys/class/net/{name}/flags") or "1", 16) & 1),
            (*_ipv4_addresses(name), *ipv6_addresses.get(name, ())),
        )
        for _, name in sorted(socket.if_nameindex())
    }


def list_own_addresses() -> tuple[str, ...]:
    """List the addresses at which others could reach this host, IPv4 first."""
    all_addresses = [one for up, many in list_interfaces().values() if up for one in many]
    usable = [one for one in all_addresses if not is_loopback_address(one) and not one.startswith("fe80")]
    return tuple(sorted(usable, key=lambda one: ":" in one))


def _ipv4_addresses(name: str) -> tuple[str, ...]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            raw = fcntl.ioctl(sock.fileno(), 0x8915, struct.pack("256s", name.encode()[:15]))  # SIOCGIFADDR
        except OSError:
            return ()
    return (socket.inet_ntoa(raw[20:24]),)


def _ipv6_addresses() -> dict[str, tuple[str, ...]]:
    by_interface: dict[str, tuple[str, ...]] = {}
    for row in map(str.split, read_text("/proc/net/if_inet6", 1 << 20).splitlines()):
        address = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(row[0]))
        by_interface[row[5]] = (*by_interface.get(row[5], ()), address)
    return by_interface
