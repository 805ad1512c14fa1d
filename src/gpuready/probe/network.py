"""The network as NCCL sees it: interfaces and addresses, RDMA devices, the host's name. From /proc and /sys.

IPv4 addresses and interfaces are in different files, connected only by routes: an address belongs to the
interface that has a route into its network.
"""

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address, IPv6Address
from typing import Any

from gpuready.model import Fact
from gpuready.probe.fact_helpers import NETWORK as KEYS
from gpuready.probe.fact_helpers import gap_facts, read_fact, read_if_present
from gpuready.system import AccessError, HostAccess

__all__ = ["KEYS", "choose_nccl_interface", "probe_network"]

NET_CLASS, INFINIBAND_CLASS = "/sys/class/net", "/sys/class/infiniband"
FIB_TRIE_FILE, ROUTE_FILE, INET6_FILE = "/proc/net/fib_trie", "/proc/net/route", "/proc/net/if_inet6"
PEER_MODULES = (
    "/sys/module/nvidia_peermem",
    "/sys/kernel/mm/memory_peers/nv_mem",
    "/sys/kernel/mm/memory_peers/nv_mem_nc",
)
INTERFACE_KINDS = {"772": "loopback", "32": "infiniband"}
NCCL_DEFAULT_ORDER = ("ib", "^docker,lo,virbr", "docker", "lo", "virbr")
"""What NCCL 2.28 tries in order (ncclFindInterfaces in src/misc/socket.cc); older ones do not avoid virbr."""

ADDRESS_FAMILIES = {"AF_INET": (".",), "AF_INET6": (":",)}
MBIT, GBIT = 125_000, 125_000_000
"""Bytes per second of one Mbit/s (Ethernet) and one Gbit/s (InfiniBand)."""


def probe_network(host: HostAccess) -> list[Fact]:
    """Return the interfaces, the one NCCL would choose, RDMA, and the address of the host's name."""
    hosts = read_fact("net.hostname_address", "/etc/hosts", _find_own_address, host)
    return [*_interface_facts(host), _infiniband_fact(host), _peer_memory_fact(host), hosts]


# -- interfaces ---------------------------------------------------------------------------------------


def _interface_facts(host: HostAccess) -> list[Fact]:
    source = f"{NET_CLASS}, {FIB_TRIE_FILE}, {ROUTE_FILE}, {INET6_FILE}"
    try:
        names = host.list_directory(NET_CLASS)
        if names is None:
            return gap_facts(KEYS[:2], f"there is no {NET_CLASS}", NET_CLASS)
        rows = {name: row for name in names if (row := _read_interface(host, name))}
        uncertain = _assign_interface_addresses(host, rows)
    except AccessError as error:
        return gap_facts(KEYS[:2], str(error), source)
    return [Fact("net.interfaces", rows, source), _nccl_interface_fact(host, rows, uncertain, source)]


def _read_interface(host: HostAccess, name: str) -> dict[str, Any] | None:
    """Read one interface, without addresses; None for a file such as bonding_masters."""
    at = f"{NET_CLASS}/{name}"

    def read_word(file: str) -> str:
        return (read_if_present(host.read_text, f"{at}/{file}") or "").strip()

    flags = (host.read_text(f"{at}/flags") or "").strip()
    if not flags.startswith("0x"):
        return None
    device = read_if_present(host.stat_path, f"{at}/device") is not None
    kind = INTERFACE_KINDS.get(read_word("type"), "ethernet" if device else "virtual")
    if kind == "virtual" and read_if_present(host.stat_path, f"{at}/bridge"):
        kind = "bridge"
    speed = _parse_decimal(read_word("speed")) if device else None
    return {
        # The kernel's definition of running: enabled, and the link is up or unknown.
        "up": int(flags, 16) & 1 == 1 and read_word("operstate") in ("up", "unknown"),
        "kind": kind,
        "addresses": [],
        "mtu": _parse_decimal(read_word("mtu")),
        "speed": None if speed is None else speed * MBIT,
        "index": _parse_decimal(read_word("ifindex")),
    }


def _parse_decimal(word: str) -> int | None:
    return int(word) if word.isdecimal() else None  # a link that is down reports -1


def _assign_interface_addresses(host: HostAccess, rows: dict[str, dict[str, Any]]) -> set[str]:
    """Set the addresses of each interface; return those that may have one more."""
    trie = host.read_text(FIB_TRIE_FILE, 1 << 20)
    if trie is None:
        raise AccessError(f"there is no {FIB_TRIE_FILE}")
    owned, uncertain = assign_addresses(
        parse_local_addresses(trie), parse_routes(host.read_text(ROUTE_FILE, 1 << 20) or ""), rows
    )
    for name, addresses in owned.items():
        rows[name]["addresses"] = addresses
    for name, address in parse_inet6_addresses(host.read_text(INET6_FILE) or ""):
        if name in rows and rows[name]["addresses"] is not None:
            rows[name]["addresses"].append(address)
    return uncertain


# -- the choice of NCCL -------------------------------------------------------------------------------


def _nccl_interface_fact(host: HostAccess, rows: dict[str, dict[str, Any]], uncertain: set[str], source: str) -> Fact:
    try:
        value, by = read_nccl_setting(host, "NCCL_SOCKET_IFNAME")
        family, _ = read_nccl_setting(host, "NCCL_SOCKET_FAMILY")
        hint, _ = read_nccl_setting(host, "NCCL_COMM_ID")
    except AccessError as error:
        return Fact("net.interface", None, "NCCL_SOCKET_IFNAME", gap=str(error))
    is_named = value is not None and len(value) > 1
    if not is_named and len(hint or "") > 1 and not match_interfaces(rows, NCCL_DEFAULT_ORDER[0], family):
        return Fact("net.interface", None, "NCCL_COMM_ID", gap="NCCL takes it from the address in NCCL_COMM_ID")
    rows_without = {n: {**row, "addresses": []} if n in uncertain else row for n, row in rows.items()}
    interface = choose_nccl_interface(rows, value, family)
    if interface != choose_nccl_interface(rows_without, value, family):
        gap = f"nobody says which of {', '.join(sorted(uncertain))} has an address"
        return Fact("net.interface", None, source, gap=gap)
    return Fact("net.interface", interface, by if is_named else source)


def read_nccl_setting(host: HostAccess, name: str) -> tuple[str | None, str]:
    """Return a variable as NCCL reads it: environment, else the user's file, else /etc/nccl.conf."""
    value = host.get_env_var(name)
    if value is not None:
        return value, name
    user_file = host.get_env_var("NCCL_CONF_FILE") or f"{host.get_env_var('HOME') or ''}/.nccl.conf"
    for path in (user_file, "/etc/nccl.conf"):
        for line in (host.read_text(path) or "").splitlines():
            left, equals, right = line.partition("=")
            if equals and left == name:
                return right, f"{name} in {path}"
    return None, name


def choose_nccl_interface(
    interfaces: Mapping[str, Mapping[str, Any]], value: str | None, family: str | None = None
) -> str | None:
    """Return the interface that NCCL chooses with this NCCL_SOCKET_IFNAME; None if it finds none."""
    lists = (value,) if value and len(value) > 1 else NCCL_DEFAULT_ORDER
    return next((matches[0] for one in lists if (matches := match_interfaces(interfaces, one, family))), None)


def match_interfaces(interfaces: Mapping[str, Mapping[str, Any]], wanted: str, family: str | None = None) -> list[str]:
    """Return the interfaces that a prefix list allows, in NCCL's order: ``eth,ib0``, ``=eth0``, ``^docker,lo``."""
    negative, names = wanted.startswith("^"), wanted.removeprefix("^")
    exact, names = names.startswith("="), names.removeprefix("=")
    entries = [name for entry in names.split(",") if (name := entry.partition(":")[0])]

    def is_allowed(name: str) -> bool:
        hit = not entries or any(name == e if exact else name.startswith(e) for e in entries)
        return hit != negative

    return [name for name in _usable_interfaces(interfaces, family) if is_allowed(name)]


def _usable_interfaces(interfaces: Mapping[str, Mapping[str, Any]], family: str | None) -> list[str]:
    """Interfaces that are up and have an address: IPv4 first, then the rest, by kernel index."""
    order = sorted(interfaces, key=lambda name: (interfaces[name].get("index") or 0, name))
    usable: dict[str, None] = {}
    for separator in ADDRESS_FAMILIES.get(family or "", (".", ":")):
        for name in order:
            row = interfaces[name]
            # Several interfaces in one network: each has an address of it, but which is unknown.
            every = (".",) if row["addresses"] is None else row["addresses"]
            if row["up"] and any(separator in address and address != "::1" for address in every):
                usable[name] = None
    return list(usable)


# -- RDMA, and the host's name ------------------------------------------------------------------------


def _infiniband_fact(host: HostAccess) -> Fact:
    try:
        devices = host.list_directory(INFINIBAND_CLASS)
        if devices is None:
            gap = "" if host.stat_path("/sys/class") else "there is no /sys/class"
            return Fact("net.ib", None if gap else {}, INFINIBAND_CLASS, gap=gap)
        ports = {
            f"{d}/{p}": (d, p) for d in devices for p in host.list_directory(f"{INFINIBAND_CLASS}/{d}/ports") or ()
        }
        return Fact(
            "net.ib", {key: _read_infiniband_port(host, *port) for key, port in ports.items()}, INFINIBAND_CLASS
        )
    except AccessError as error:
        return Fact("net.ib", None, INFINIBAND_CLASS, gap=str(error))


def _read_infiniband_port(host: HostAccess, device: str, port: str) -> dict[str, Any]:
    at = f"{INFINIBAND_CLASS}/{device}/ports/{port}"
    state, rate, layer = (
        (read_if_present(host.read_text, f"{at}/{file}") or "").strip() for file in ("state", "rate", "link_layer")
    )
    number = rate.partition(" ")[0]  # 400 Gb/sec (4X NDR)
    whole = number.replace(".", "", 1).isdecimal()
    return {
        "state": state.partition(":")[2].strip().lower() or None,
        "rate": int(float(number) * GBIT) if whole else None,
        "link_layer": layer or None,
        "netdev": _find_port_netdev(host, device, port, at),
    }


def _find_port_netdev(host: HostAccess, device: str, port: str, at: str) -> str | None:
    """Return the network interface of a port; a two-port device may have one for each."""
    netdev = (read_if_present(host.read_text, f"{at}/gid_attrs/ndevs/0") or "").strip()
    if netdev:
        return netdev
    names: tuple[str, ...] = read_if_present(host.list_directory, f"{INFINIBAND_CLASS}/{device}/device/net") or ()
    if len(names) == 1:
        return names[0]
    candidates = (
        n
        for n in names
        if _parse_decimal((read_if_present(host.read_text, f"{NET_CLASS}/{n}/dev_port") or "").strip()) == int(port) - 1
    )
    return next(candidates, None) if port.isdecimal() else None


def _peer_memory_fact(host: HostAccess) -> Fact:
    """Whether a module gives network cards access to GPU memory; NCCL checks the same three."""
    try:
        for path in PEER_MODULES:
            if host.stat_path(f"{path}/version"):
                return Fact("net.peermem", True, path)
        gap = "" if host.stat_path("/sys/module") else "there is no /sys/module"
    except AccessError as error:
        gap = str(error)
    return Fact("net.peermem", None if gap else False, ", ".join(PEER_MODULES), gap=gap)


def _find_own_address(host: HostAccess) -> str | None:
    """Return the first address in /etc/hosts for the host's name."""
    hostname = host.get_uname().get("node", "").lower()
    for line in (host.read_text("/etc/hosts") or "").splitlines():
        words = line.partition("#")[0].lower().split()
        if hostname and hostname in words[1:]:
            return words[0]
    return None


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
        if len(words) == 6 and len(words[0]) == 32 and not words[0].strip("0123456789abcdef"):
            yield words[5], str(IPv6Address(int(words[0], 16)))


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
    try:
        return int(IPv4Address(address))
    except ValueError:
        return None


def _parse_kernel_hex(word: str) -> int:
    """The kernel prints these in host byte order, which is little-endian on every GPU machine."""
    return int.from_bytes(bytes.fromhex(word), "little")
