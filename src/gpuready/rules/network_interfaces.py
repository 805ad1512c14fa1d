"""Network interfaces as NCCL and Gloo select them; InfiniBand and RoCE ports."""

from collections.abc import Iterable, Mapping
from typing import Any

from gpuready.model import Facts
from gpuready.rules import environment_variables, visible_gpus

InterfaceTable = Mapping[str, Mapping[str, Any]]


READS = ("net.interfaces", "env.*")
VARIABLES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
CITE = {
    "NCCL_SOCKET_IFNAME": "NCCL user guide, environment variables, NCCL_SOCKET_IFNAME",
    "GLOO_SOCKET_IFNAME": "torch.distributed, common environment variables, GLOO_SOCKET_IFNAME",
}


def requested_interfaces(facts: Facts) -> dict[str, str]:
    """Return the set variables that name interfaces; NCCL ignores a single letter."""
    values = {name: environment_variables.read_variable(facts, name) for name in VARIABLES}
    return {name: text for name, text in values.items() if text and len(text) > 1}


def allowed_interfaces(variable: str, text: str, available: Iterable[str]) -> list[str] | None:
    """Return the interfaces that a variable allows; None if it names one that must exist and does not.

    NCCL accepts prefixes (``eth``), exact names (``=eth0``) and exclusions (``^docker``), and one match is enough.
    Gloo accepts names, and needs all of them.
    """
    names = list(available)
    if variable == "GLOO_SOCKET_IFNAME":
        wanted = [entry.strip() for entry in text.split(",") if entry.strip()]
        return wanted if set(wanted) <= set(names) else None
    negative, rest = text.startswith("^"), text.removeprefix("^")
    exact, rest = rest.startswith("="), rest.removeprefix("=")
    entries = [entry for part in rest.split(",") if (entry := part.partition(":")[0])]

    def matches_entry(name: str) -> bool:
        return not entries or any(name == e if exact else name.startswith(e) for e in entries)

    return [name for name in names if matches_entry(name) != negative] or None


def is_interface_ready(row: Mapping[str, Any]) -> bool:
    """Return whether an interface is up and has an address; unknown addresses (None) count as some."""
    addresses = row.get("addresses")
    return bool(row.get("up")) and (addresses is None or any(address != "::1" for address in addresses))


def describe_interfaces(table: InterfaceTable) -> str:
    """List the interfaces: ``eth0, ib0 and lo``."""
    return visible_gpus.join_names(sorted(table)) or "none"


def best_interface(table: InterfaceTable) -> str | None:
    """Return an interface to use instead: InfiniBand first, as NCCL does, then Ethernet."""
    usable = [name for name, row in table.items() if is_interface_ready(row)]
    kinds = {name: table[name].get("kind") for name in usable}
    for wanted in ("infiniband", "ethernet"):
        for name in usable:
            if kinds[name] == wanted:
                return name
    return None


RDMA_READS = ("net.ib",)


def list_rdma_ports(facts: Facts) -> dict[str, dict[str, Any]]:
    """Return every port by name (``mlx5_0/1``); empty if the machine has no such card."""
    return dict(facts.value("net.ib") or {})


def active_rdma_ports(facts: Facts) -> list[str]:
    return [name for name, row in list_rdma_ports(facts).items() if row.get("state") == "active"]


def infiniband_ports(facts: Facts) -> dict[str, dict[str, Any]]:
    """Return the ports of InfiniBand proper; RoCE ports have other uses too and may be down."""
    return {name: row for name, row in list_rdma_ports(facts).items() if row.get("link_layer") == "InfiniBand"}
