"""IP addresses from /proc: which exist, and which interface each belongs to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Route = tuple[str, int, int]


def parse_local_addresses(trie: str) -> list[str]:
    """Parse this host's IPv4 addresses from /proc/net/fib_trie, where each appears in several tables."""
    addresses: dict[str, None] = {}
    address = ""
    for line in trie.splitlines():
        words = line.split()
        if words[:1] == ["|--"] and len(words) == 2:
            address = words[1]
        elif words == ["/32", "host", "LOCAL"] and _ipv4_to_int(address) is not None:
            addresses[address] = None
    return list(addresses)


def parse_routes(text: str) -> list[Route]:
    """Parse interface, network and mask of every route in /proc/net/route.

    A route through a gateway leads to another network, so its mask is set to 0 (no network).
    """
    parsed = []
    for line in text.splitlines()[1:]:
        words = line.split()
        if len(words) > 7 and len(words[1]) == len(words[7]) == 8:
            try:
                gateway = int(words[3], 16) & 2
                parsed.append((words[0], _parse_kernel_hex(words[1]), 0 if gateway else _parse_kernel_hex(words[7])))
            except ValueError:
                continue
    return parsed


def parse_inet6_addresses(text: str) -> Iterator[tuple[str, str]]:
    """Yield interface and address of every line of /proc/net/if_inet6."""
    for line in text.splitlines():
        words = line.split()
        if len(words) == 6 and len(words[0]) == 32:
            yield words[5], format_ipv6(words[0])


def assign_addresses(
    addresses: list[str], routes: list[Route], rows: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, list[str] | None], set[str]]:
    """Return the addresses per interface, and the interfaces that may have an unassigned address.

    None stands for addresses that cannot be distinguished. If several interfaces are in one network, each has an
    address in it, because the kernel creates the route from the address.
    """
    owned: dict[str, list[str] | None] = {}
    left = []
    for address in addresses:
        holders = [name for name in _interfaces_with_route(address, routes, rows) if name in rows]
        if not holders:
            left.append(address)
        for name in holders:
            known = owned.setdefault(name, [])
            owned[name] = None if len(holders) > 1 or known is None else [*known, address]
    return _assign_unrouted_addresses(owned, left, routes, rows) if left else (owned, set())


def _interfaces_with_route(address: str, routes: list[Route], rows: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Return the interfaces with the narrowest route into the network of an address."""
    number = _ipv4_to_int(address) or 0
    if number >> 24 == 127:
        return {name for name, row in rows.items() if row["kind"] == "loopback"}
    fitting = [(mask, name) for name, network, mask in routes if mask and number & mask == network]
    narrowest = max((mask for mask, _ in fitting), default=0)
    return {name for mask, name in fitting if mask == narrowest}


def _assign_unrouted_addresses(
    owned: dict[str, list[str] | None], left: list[str], routes: list[Route], rows: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, list[str] | None], set[str]]:
    """Some clouds assign an address without a network: it belongs to the only interface without one."""
    free = [n for n, row in rows.items() if n not in owned and row["up"] and row["kind"] != "loopback"]
    routed = {name for name, _, _ in routes}
    free = [name for name in free if name in routed] or free
    if len(free) == 1:
        return {**owned, free[0]: left}, set()
    return {**owned, **dict.fromkeys(free)}, set(free)


def _ipv4_to_int(address: str) -> int | None:
    parts = address.split(".")
    if len(parts) != 4 or not all(part.isdecimal() and len(part) <= 3 for part in parts):
        return None
    return int.from_bytes(bytes(int(part) & 255 for part in parts), "big")


def _parse_kernel_hex(word: str) -> int:
    """The kernel prints these in host byte order, which is little-endian on every GPU machine."""
    return int.from_bytes(bytes.fromhex(word), "little")


def format_ipv6(digits: str) -> str:
    """Format 32 hexadecimal digits: ``fe80::1``."""
    groups = [digits[at : at + 4].lstrip("0") or "0" for at in range(0, 32, 4)]
    best, length, at = 0, 1, 0
    while at < 8:
        run = 0
        while at + run < 8 and groups[at + run] == "0":
            run += 1
        if run > length:
            best, length = at, run
        at += run or 1
    if length == 1:
        return ":".join(groups)
    return f"{':'.join(groups[:best])}::{':'.join(groups[best + length :])}"
