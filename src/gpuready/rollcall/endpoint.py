"""Addresses, ports and interfaces of this host; every lookup has a deadline."""

from __future__ import annotations

import errno
import os
import socket
import time

from gpuready.noun import Noun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RESOLVE_S = 3.0
LISTENING = "0A"


class Holder(Noun):
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


class Reached(Noun):
    """Whether a host and port could be reached, and the result for each of its addresses."""

    ok: bool = False
    why: str = ""  # "name", "refused", "no route", "no answer"
    told: str = ""
    addresses: tuple[str, ...] = ()


def shown(text: object) -> str:
    """Escape foreign text for one terminal line."""
    return repr(str(text))[1:-1]


# -- names ----------------------------------------------------------------------------------------------


def resolve(host: str, port: int, seconds: float = RESOLVE_S) -> list[tuple[int, tuple[object, ...]]]:
    """Return families and addresses in the resolver's order; OSError if there are none or it does not answer."""
    try:
        return _looked_up(host, port, socket.AI_NUMERICHOST)
    except OSError:
        return _within(seconds, lambda: _looked_up(host, port, 0), f"the resolver is silent about {host}")


def _looked_up(host: str, port: int, flags: int) -> list[tuple[int, tuple[object, ...]]]:
    rows = socket.getaddrinfo(_plain(host), port, type=socket.SOCK_STREAM, flags=flags)
    return [(int(family), tuple(where)) for family, _, _, _, where in rows]


def _plain(host: str) -> str | bytes:
    """Return bytes if possible: for text Python loads the IDNA tables, 5 ms in every rank."""
    return host.encode("ascii") if host.isascii() else host


def _within(
    seconds: float, work: Callable[[], list[tuple[int, tuple[object, ...]]]], late: str
) -> list[tuple[int, tuple[object, ...]]]:
    """Run ``work`` in a thread that is abandoned at the deadline: a resolver cannot be interrupted."""
    import threading

    answers: list[object] = []

    def ask() -> None:
        try:
            answers.append(work())
        except (OSError, UnicodeError) as wrong:
            answers.append(wrong)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(seconds)
    if not answers:
        raise TimeoutError(f"{late} for {seconds:.0f} s")
    found = answers[0]
    if isinstance(found, list):
        return found
    raise found if isinstance(found, OSError) else OSError(str(found))


# -- connections ----------------------------------------------------------------------------------------


def connect(host: str, port: int, seconds: float) -> tuple[socket.socket | None, Reached]:
    """Connect to the first address that accepts, and report the others' errors."""
    end = time.monotonic() + seconds
    try:
        found = resolve(host, port, min(seconds, RESOLVE_S))
    except OSError as wrong:
        return None, Reached(False, "name", _said(wrong))
    shown_ = tuple(str(where[0]) for _, where in found)
    tried: list[tuple[str, str]] = []
    for at, (family, where) in enumerate(found):
        share = max(0.2, (end - time.monotonic()) / (len(found) - at))
        made, why, told = _tried(family, where, share)
        if made is not None:
            return made, Reached(True, "", "", shown_)
        tried.append((why, f"{where[0]}: {told}"))
    order = ("refused", "no answer", "no route")
    why = min((one for one, _ in tried), key=order.index, default="name")
    return None, Reached(False, why, "; ".join(told for _, told in tried), shown_)


def reach(host: str, port: int, seconds: float = 3.0) -> Reached:
    """Whether something accepts connections there."""
    made, told = connect(host, port, seconds)
    if made is not None:
        made.close()
    return told


def _tried(family: int, where: tuple[object, ...], seconds: float) -> tuple[socket.socket | None, str, str]:
    try:
        made = socket.socket(family, socket.SOCK_STREAM)
    except OSError as wrong:
        return None, "no route", _said(wrong)
    try:
        made.settimeout(seconds)
        made.connect(where)
        if made.getsockname() == made.getpeername():
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")  # it connected to itself
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made, "", ""
    except ConnectionRefusedError as wrong:
        why, told = "refused", _said(wrong)
    except TimeoutError:
        why, told = "no answer", f"no answer within {seconds:.2g} s"
    except OSError as wrong:
        why, told = "no route", _said(wrong)
    made.close()
    return None, why, told


def _said(wrong: OSError) -> str:
    return shown(wrong.strerror or wrong)


def listen(port: int, backlog: int = 4096) -> socket.socket:
    """Listen at all addresses of this host, IPv6 and IPv4 together if possible."""
    try:
        made = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    except OSError:
        return _bound(socket.socket(socket.AF_INET, socket.SOCK_STREAM), "", port, backlog)
    try:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        return _bound(made, "::", port, backlog)
    except OSError as wrong:
        if wrong.errno == errno.EADDRINUSE:
            raise
    return _bound(socket.socket(socket.AF_INET, socket.SOCK_STREAM), "", port, backlog)


def _bound(made: socket.socket, host: str, port: int, backlog: int) -> socket.socket:
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(backlog)
    except OSError:
        made.close()
        raise
    return made


def free_port() -> int:
    with listen(0, 1) as made:
        return int(made.getsockname()[1])


def towards(host: str, port: int) -> str:
    """Return the local address from which another host is reached; nothing is sent."""
    for family, where in resolve(host, port):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as made:
                made.connect(where)
                return str(made.getsockname()[0])
        except OSError:
            continue
    return ""


def is_local(address: str) -> bool:
    """Whether an address belongs to this host: only then can it be bound."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        where = socket.getaddrinfo(_plain(address), 0, family, socket.SOCK_DGRAM, 0, socket.AI_NUMERICHOST)[
            0
        ][4]
        with socket.socket(family, socket.SOCK_DGRAM) as made:
            made.bind(where)
        return True
    except OSError:
        return False


def is_loopback(address: str) -> bool:
    return address.startswith(("127.", "::ffff:127.")) or address == "::1"


# -- port holders -----------------------------------------------------------------------------------------


def holder(port: int) -> Holder | None:
    """Return who has this port, preferring a listening socket; None if the kernel knows of none."""
    rows = [row for name in ("tcp", "tcp6") for row in _sockets(f"/proc/net/{name}") if row[0] == port]
    if not rows:
        return None
    _, state, uid, inode = min(rows, key=lambda row: row[1] != LISTENING)
    word = "listening" if state == LISTENING else "in a connection of its own"
    pid = _owner(inode)
    return Holder(pid, _user(uid), _command(pid), _age(pid), word)


def _sockets(path: str) -> Iterator[tuple[int, str, int, str]]:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            lines = file.read().splitlines()[1:]
    except OSError:
        return
    for line in lines:
        fields = line.split()
        if len(fields) > 9 and fields[9] != "0":
            yield int(fields[1].rpartition(":")[2], 16), fields[3], int(fields[7]), fields[9]


def _owner(inode: str) -> int:
    wanted = f"socket:[{inode}]"
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            for fd in os.listdir(f"/proc/{pid}/fd"):
                if os.readlink(f"/proc/{pid}/fd/{fd}") == wanted:
                    return int(pid)
        except OSError:
            continue
    return 0


def _user(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _command(pid: int) -> str:
    """Return the program and its first words; the rest may be secret."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(4096).decode("utf-8", "replace").split("\0")
    except OSError:
        return "unknown"
    return shown(" ".join(word for word in words[:3] if word)[:100]) or "unknown"


def _age(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            started = int(file.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        with open("/proc/uptime", encoding="ascii") as file:
            return max(0.0, float(file.read().split()[0]) - started)
    except (OSError, ValueError, IndexError):
        return 0.0


# -- interfaces -------------------------------------------------------------------------------------------


def interfaces() -> dict[str, tuple[bool, tuple[str, ...]]]:
    """List this host's interfaces: whether each is up, and its addresses."""
    sixes = _sixes()
    return {
        name: (_up(name), (*_four(name), *sixes.get(name, ()))) for _, name in sorted(socket.if_nameindex())
    }


def addresses() -> tuple[str, ...]:
    """List the addresses at which others could reach this host, IPv4 first."""
    found = [one for up, many in interfaces().values() if up for one in many]
    usable = [one for one in found if not is_loopback(one) and not one.startswith("fe80")]
    return tuple(sorted(usable, key=lambda one: ":" in one))


def _up(name: str) -> bool:
    try:
        with open(f"/sys/class/net/{name}/flags", encoding="ascii") as file:
            return bool(int(file.read(), 16) & 1)
    except (OSError, ValueError):
        return True


def _four(name: str) -> tuple[str, ...]:
    import fcntl
    import struct

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        try:
            raw = fcntl.ioctl(made.fileno(), 0x8915, struct.pack("256s", name.encode()[:15]))  # SIOCGIFADDR
        except OSError:
            return ()
    return (socket.inet_ntoa(raw[20:24]),)


def _sixes() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    try:
        with open("/proc/net/if_inet6", encoding="ascii") as file:
            rows = [line.split() for line in file]
    except OSError:
        return found
    for row in rows:
        address = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(row[0]))
        found[row[5]] = (*found.get(row[5], ()), address)
    return found
