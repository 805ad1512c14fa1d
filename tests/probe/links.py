"""Hosts on a network, out of the kernel's files."""

from __future__ import annotations

from gpuready.probe import network
from tests.probe.fakes import Fake, by_key

CLASS = {"/sys/class/.": "", "/sys/module/.": ""}


def interface(name, index, kind="1", flags="0x1003", state="up", device=True, speed="25000", **more):
    """One folder of /sys/class/net."""
    words = {"type": kind, "flags": flags, "operstate": state, "mtu": "1500", "ifindex": str(index), **more}
    if device:
        words |= {"device/vendor": "0x15b3", "speed": speed}
    return {f"/sys/class/net/{name}/{file}": f"{word}\n" for file, word in words.items()}


LO = interface("lo", 1, "772", "0x9", "unknown", device=False)


def trie(*addresses):
    """/proc/net/fib_trie: main and local tables that both list our own addresses."""
    leaves = "".join(f"           |-- {a}\n              /32 host LOCAL\n" for a in addresses)
    rest = "        |-- 10.0.0.255\n           /32 link BROADCAST\n     |-- 10.0.0.0\n        /24 link UNICAST\n"
    return f"Main:\n  +-- 0.0.0.0/0 3 0 5\n{leaves}{rest}Local:\n  +-- 0.0.0.0/0 3 0 5\n{leaves}{rest}"


def backwards(address):
    return "".join(f"{int(part):02X}" for part in reversed(address.split(".")))


def route(*rows):
    """/proc/net/route; a row is interface, destination, mask and perhaps a gateway."""
    lines = ["Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT"]
    for name, to, mask, *gateway in rows:
        flags = "0003" if gateway else "0001"
        by = backwards(gateway[0]) if gateway else "00000000"
        lines.append(f"{name}\t{backwards(to)}\t{by}\t{flags}\t0\t0\t0\t{backwards(mask)}\t0\t0\t0")
    return "\n".join(lines) + "\n"


def machine(*parts, addresses=("127.0.0.1", "10.0.0.5"), ways=None, six="", **requested):
    proc = {"/proc/net/fib_trie": trie(*addresses), "/proc/net/if_inet6": six}
    proc["/proc/net/route"] = ways or route(("eth0", "10.0.0.0", "255.255.255.0"))
    files = {**CLASS, **LO, **proc}
    for part in parts:
        files |= part
    return Fake(files, **requested)


def looked(host):
    return by_key(network.probe_network(host))


def row(up=True, addresses=("10.0.0.5",), index=2, kind="ethernet"):
    return {"up": up, "kind": kind, "addresses": addresses, "mtu": 1500, "speed": None, "index": index}
