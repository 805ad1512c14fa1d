"""The network as NCCL sees it: interfaces and addresses, RDMA devices, the host's name.

IPv4 addresses and interfaces are in different files, connected only by routes: an address belongs to the
interface that has a route into its network.
"""

from __future__ import annotations

from gpuready.model import Fact
from gpuready.probe.addresses import attributed, inet6, local, routes
from gpuready.probe.keys import NETWORK as KEYS
from gpuready.probe.sight import gaps, glimpse, seen
from gpuready.system import Blind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gpuready.system import Door

__all__ = ["KEYS", "chosen", "look"]

NET, IB = "/sys/class/net", "/sys/class/infiniband"
TRIE, ROUTES, INET6 = "/proc/net/fib_trie", "/proc/net/route", "/proc/net/if_inet6"
PEERS = (
    "/sys/module/nvidia_peermem",
    "/sys/kernel/mm/memory_peers/nv_mem",
    "/sys/kernel/mm/memory_peers/nv_mem_nc",
)
KINDS = {"772": "loopback", "32": "infiniband"}
AUTOMATIC = ("ib", "^docker,lo,virbr", "docker", "lo", "virbr")
"""What NCCL 2.28 tries in order (ncclFindInterfaces in src/misc/socket.cc); older ones do not avoid virbr."""

FAMILIES = {"AF_INET": (".",), "AF_INET6": (":",)}
MBIT, GBIT = 125_000, 125_000_000
"""Bytes per second of one Mbit/s (Ethernet) and one Gbit/s (InfiniBand)."""


def look(door: Door) -> list[Fact]:
    """Return the interfaces, the one NCCL would choose, RDMA, and the address of the host's name."""
    hosts = seen("net.hostname_address", "/etc/hosts", _own_address, door)
    return [*_interfaces(door), _infiniband(door), _peers(door), hosts]


# -- interfaces ---------------------------------------------------------------------------------------


def _interfaces(door: Door) -> list[Fact]:
    source = f"{NET}, {TRIE}, {ROUTES}, {INET6}"
    try:
        names = door.list(NET)
        if names is None:
            return gaps(KEYS[:2], f"there is no {NET}", NET)
        rows = {name: row for name in names if (row := _row(door, name))}
        unsure = _address(door, rows)
    except Blind as blind:
        return gaps(KEYS[:2], str(blind), source)
    return [Fact("net.interfaces", rows, source), _interface(door, rows, unsure, source)]


def _row(door: Door, name: str) -> dict[str, Any] | None:
    """Read one interface, without addresses; None for a file such as bonding_masters."""
    at = f"{NET}/{name}"

    def word(file: str) -> str:
        return (glimpse(door.read, f"{at}/{file}") or "").strip()

    flags = (door.read(f"{at}/flags") or "").strip()
    if not flags.startswith("0x"):
        return None
    device = glimpse(door.stat, f"{at}/device") is not None
    kind = KINDS.get(word("type"), "ethernet" if device else "virtual")
    if kind == "virtual" and glimpse(door.stat, f"{at}/bridge"):
        kind = "bridge"
    speed = _number(word("speed")) if device else None
    return {
        # The kernel's definition of running: enabled, and the link is up or unknown.
        "up": int(flags, 16) & 1 == 1 and word("operstate") in ("up", "unknown"),
        "kind": kind,
        "addresses": [],
        "mtu": _number(word("mtu")),
        "speed": None if speed is None else speed * MBIT,
        "index": _number(word("ifindex")),
    }


def _number(word: str) -> int | None:
    return int(word) if word.isdecimal() else None  # a link that is down reports -1


def _address(door: Door, rows: dict[str, dict[str, Any]]) -> set[str]:
    """Set the addresses of each interface; return those that may have one more."""
    trie = door.read(TRIE, 1 << 20)
    if trie is None:
        raise Blind(f"there is no {TRIE}")
    owned, unsure = attributed(local(trie), routes(door.read(ROUTES, 1 << 20) or ""), rows)
    for name, addresses in owned.items():
        rows[name]["addresses"] = addresses
    for name, address in inet6(door.read(INET6) or ""):
        if name in rows and rows[name]["addresses"] is not None:
            rows[name]["addresses"].append(address)
    return unsure


# -- the choice of NCCL -------------------------------------------------------------------------------


def _interface(door: Door, rows: dict[str, dict[str, Any]], unsure: set[str], source: str) -> Fact:
    try:
        value, by = setting(door, "NCCL_SOCKET_IFNAME")
        family, _ = setting(door, "NCCL_SOCKET_FAMILY")
        hint, _ = setting(door, "NCCL_COMM_ID")
    except Blind as blind:
        return Fact("net.interface", None, "NCCL_SOCKET_IFNAME", gap=str(blind))
    named = value is not None and len(value) > 1
    if not named and len(hint or "") > 1 and not matching(rows, AUTOMATIC[0], family):
        return Fact(
            "net.interface", None, "NCCL_COMM_ID", gap="NCCL takes it from the address in NCCL_COMM_ID"
        )
    without = {n: {**row, "addresses": []} if n in unsure else row for n, row in rows.items()}
    found = chosen(rows, value, family)
    if found != chosen(without, value, family):
        gap = f"nobody says which of {', '.join(sorted(unsure))} has an address"
        return Fact("net.interface", None, source, gap=gap)
    return Fact("net.interface", found, by if named else source)


def setting(door: Door, name: str) -> tuple[str | None, str]:
    """Return a variable as NCCL reads it: environment, else the user's file, else /etc/nccl.conf."""
    value = door.env(name)
    if value is not None:
        return value, name
    own = door.env("NCCL_CONF_FILE") or f"{door.env('HOME') or ''}/.nccl.conf"
    for path in (own, "/etc/nccl.conf"):
        for line in (door.read(path) or "").splitlines():
            left, equals, right = line.partition("=")
            if equals and left == name:
                return right, f"{name} in {path}"
    return None, name


def chosen(
    interfaces: Mapping[str, Mapping[str, Any]], value: str | None, family: str | None = None
) -> str | None:
    """Return the interface that NCCL chooses with this NCCL_SOCKET_IFNAME; None if it finds none."""
    lists = (value,) if value and len(value) > 1 else AUTOMATIC
    return next((found[0] for one in lists if (found := matching(interfaces, one, family))), None)


def matching(
    interfaces: Mapping[str, Mapping[str, Any]], wanted: str, family: str | None = None
) -> list[str]:
    """Return the interfaces that a prefix list allows, in NCCL's order: ``eth,ib0``, ``=eth0``, ``^docker,lo``."""
    negative, names = wanted.startswith("^"), wanted.removeprefix("^")
    exact, names = names.startswith("="), names.removeprefix("=")
    entries = [name for entry in names.split(",") if (name := entry.partition(":")[0])]

    def allowed(name: str) -> bool:
        hit = not entries or any(name == e if exact else name.startswith(e) for e in entries)
        return hit != negative

    return [name for name in _usable(interfaces, family) if allowed(name)]


def _usable(interfaces: Mapping[str, Mapping[str, Any]], family: str | None) -> list[str]:
    """Interfaces that are up and have an address: IPv4 first, then the rest, by kernel index."""
    order = sorted(interfaces, key=lambda name: (interfaces[name].get("index") or 0, name))
    found: dict[str, None] = {}
    for sign in FAMILIES.get(family or "", (".", ":")):
        for name in order:
            row = interfaces[name]
            # Several interfaces in one network: each has an address of it, but which is unknown.
            every = (".",) if row["addresses"] is None else row["addresses"]
            if row["up"] and any(sign in address and address != "::1" for address in every):
                found[name] = None
    return list(found)


# -- RDMA, and the host's name ------------------------------------------------------------------------


def _infiniband(door: Door) -> Fact:
    try:
        devices = door.list(IB)
        if devices is None:
            gap = "" if door.stat("/sys/class") else "there is no /sys/class"
            return Fact("net.ib", None if gap else {}, IB, gap=gap)
        ports = {f"{d}/{p}": (d, p) for d in devices for p in door.list(f"{IB}/{d}/ports") or ()}
        return Fact("net.ib", {key: _port(door, *port) for key, port in ports.items()}, IB)
    except Blind as blind:
        return Fact("net.ib", None, IB, gap=str(blind))


def _port(door: Door, device: str, port: str) -> dict[str, Any]:
    at = f"{IB}/{device}/ports/{port}"
    state, rate, layer = (
        (glimpse(door.read, f"{at}/{file}") or "").strip() for file in ("state", "rate", "link_layer")
    )
    number = rate.partition(" ")[0]  # 400 Gb/sec (4X NDR)
    whole = number.replace(".", "", 1).isdecimal()
    return {
        "state": state.partition(":")[2].strip().lower() or None,
        "rate": int(float(number) * GBIT) if whole else None,
        "link_layer": layer or None,
        "netdev": _netdev(door, device, port, at),
    }


def _netdev(door: Door, device: str, port: str, at: str) -> str | None:
    """Return the network interface of a port; a two-port device may have one for each."""
    told = (glimpse(door.read, f"{at}/gid_attrs/ndevs/0") or "").strip()
    if told:
        return told
    names: tuple[str, ...] = glimpse(door.list, f"{IB}/{device}/device/net") or ()
    if len(names) == 1:
        return names[0]
    own = (
        n
        for n in names
        if _number((glimpse(door.read, f"{NET}/{n}/dev_port") or "").strip()) == int(port) - 1
    )
    return next(own, None) if port.isdecimal() else None


def _peers(door: Door) -> Fact:
    """Whether a module gives network cards access to GPU memory; NCCL checks the same three."""
    try:
        for path in PEERS:
            if door.stat(f"{path}/version"):
                return Fact("net.peermem", True, path)
        gap = "" if door.stat("/sys/module") else "there is no /sys/module"
    except Blind as blind:
        gap = str(blind)
    return Fact("net.peermem", None if gap else False, ", ".join(PEERS), gap=gap)


def _own_address(door: Door) -> str | None:
    """Return the first address in /etc/hosts for the host's name."""
    own = door.uname().get("node", "").lower()
    for line in (door.read("/etc/hosts") or "").splitlines():
        words = line.partition("#")[0].lower().split()
        if own and own in words[1:]:
            return words[0]
    return None
