"""Check the interfaces that variables select for the ranks' communication before any rank waits for them."""

import socket
from collections.abc import Mapping, MutableMapping
from typing import Any

from gpuready.model.visible_text import escape_unprintable
from gpuready.rollcall import endpoint
from gpuready.rollcall.rank_register import RollcallFault

Interfaces = Mapping[str, tuple[bool, tuple[str, ...]]]


INTERFACE_VARIABLES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME")


def match_interfaces(name: str, value: str, interfaces: Interfaces) -> list[str]:
    """Return the interfaces that a value selects. NCCL takes prefixes, ``=`` for whole names and ``^`` for
    all others.
    """
    words = [word.strip() for word in value.lstrip("^=").split(",") if word.strip()]
    whole = value.startswith(("=", "^=")) or name.startswith("GLOO")

    def is_named(one: str) -> bool:
        return any(one == word if whole else one.startswith(word) for word in words)

    return [one for one in interfaces if is_named(one) != value.startswith("^")]


def find_interface_fault(
    environ: Mapping[str, str], who: str, rank: int, backend: str, interfaces: Interfaces | None = None
) -> RollcallFault | None:
    """Return what is wrong with the interface that the backend would use; None if nothing is."""
    for name, value in _used_variables(environ, backend):
        existing = endpoint.list_interfaces() if interfaces is None else interfaces
        matching = match_interfaces(name, value, existing)
        listed = ", ".join(f"{escape_unprintable(one)}{'' if up else ' (down)'}" for one, (up, _) in existing.items())
        if not matching:
            message = f"{who} has no interface that {name}={escape_unprintable(value)} names; it has {listed}"
            return RollcallFault("NET001", message, f"set {name} to one of them", (rank,))
        if not any(existing[one][0] and existing[one][1] for one in matching):
            first = escape_unprintable(matching[0])
            message = f"the interface {first} of {who}, which {name} names, is down or has no address; it has {listed}"
            return RollcallFault("NET002", message, f"ip link set {first} up, or set {name} to another", (rank,))
    return None


def find_data_address(environ: Mapping[str, str], backend: str) -> str:
    """Return the address for incoming data if a variable selects the interface."""
    for name, value in _used_variables(environ, backend):
        interfaces = endpoint.list_interfaces()
        for one in match_interfaces(name, value, interfaces):
            if interfaces[one][0] and interfaces[one][1]:
                return interfaces[one][1][0]
    return ""


def choose_gloo_interface(environ: MutableMapping[str, str], master: str, host: str = "") -> str:
    """Set GLOO_SOCKET_IFNAME where the host's name leads to a loopback, at which no other host could reach it; return a note.

    gloo listens at the address of the host's own name, and at 127.0.0.1 where it has none.
    """
    name = host or socket.gethostname()
    if environ.get("GLOO_SOCKET_IFNAME"):
        return ""
    addresses = _resolve(name)
    if any(not endpoint.is_loopback_address(one) for one in addresses):
        return ""
    interface, address = interface_towards(master)
    if not interface:
        return ""
    environ["GLOO_SOCKET_IFNAME"] = interface
    where = f"is {addresses[0]}, a loopback" if addresses else "does not resolve"
    return f"the name of this host, {escape_unprintable(name)}, {where}: GLOO_SOCKET_IFNAME={interface} ({address}) is set for gloo"


def _resolve(name: str) -> list[str]:
    try:
        return [str(row[4][0]) for row in socket.getaddrinfo(name, None, 0, socket.SOCK_STREAM)]
    except OSError:
        return []


def interface_towards(master: str) -> tuple[str, str]:
    """Return the interface, and its address, by which this host reaches rank 0's; nothing is sent."""
    for family, kind, _, _, where in _addresses_of(master):
        try:
            with socket.socket(family, kind) as probe:
                probe.connect(where)
                address = str(probe.getsockname()[0])
        except OSError:
            continue
        for name, (up, addresses) in endpoint.list_interfaces().items():
            if up and address in addresses and not endpoint.is_loopback_address(address):
                return name, address
    return "", ""


def _addresses_of(master: str) -> list[Any]:
    try:
        return list(socket.getaddrinfo(master, 9, 0, socket.SOCK_DGRAM))
    except OSError:
        return []


def _used_variables(environ: Mapping[str, str], backend: str) -> list[tuple[str, str]]:
    """The variables that select interfaces of this backend, with their values."""
    names = [name for name in INTERFACE_VARIABLES if name.partition("_")[0].lower() in backend]
    return [(name, value) for name in names if (value := environ.get(name, "").strip())]
