"""Network interfaces as NCCL and Gloo select them."""

from __future__ import annotations

from gpuready.rules import cards, shell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from gpuready.model import Facts

    Table = Mapping[str, Mapping[str, Any]]

READS = ("net.interfaces", "env.*")
VARIABLES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
CITE = {
    "NCCL_SOCKET_IFNAME": "NCCL user guide, environment variables, NCCL_SOCKET_IFNAME",
    "GLOO_SOCKET_IFNAME": "torch.distributed, common environment variables, GLOO_SOCKET_IFNAME",
}


def asked(facts: Facts) -> dict[str, str]:
    """Return the set variables that name interfaces; NCCL ignores a single letter."""
    found = {name: shell.value(facts, name) for name in VARIABLES}
    return {name: text for name, text in found.items() if text and len(text) > 1}


def named(variable: str, text: str, every: Iterable[str]) -> list[str] | None:
    """Return the interfaces that a variable allows; None if it names one that must exist and does not.

    NCCL accepts prefixes (``eth``), exact names (``=eth0``) and exclusions (``^docker``), and one match is enough.
    Gloo accepts names, and needs all of them.
    """
    names = list(every)
    if variable == "GLOO_SOCKET_IFNAME":
        wanted = [entry.strip() for entry in text.split(",") if entry.strip()]
        return wanted if set(wanted) <= set(names) else None
    negative, rest = text.startswith("^"), text.removeprefix("^")
    exact, rest = rest.startswith("="), rest.removeprefix("=")
    entries = [entry for part in rest.split(",") if (entry := part.partition(":")[0])]

    def fits(name: str) -> bool:
        return not entries or any(name == e if exact else name.startswith(e) for e in entries)

    return [name for name in names if fits(name) != negative] or None


def ready(row: Mapping[str, Any]) -> bool:
    """Return whether an interface is up and has an address; unknown addresses (None) count as some."""
    held = row.get("addresses")
    return bool(row.get("up")) and (held is None or any(address != "::1" for address in held))


def in_words(table: Table) -> str:
    """List the interfaces: ``eth0, ib0 and lo``."""
    return cards.listed(sorted(table)) or "none"


def best(table: Table) -> str | None:
    """Return an interface to use instead: InfiniBand first, as NCCL does, then Ethernet."""
    usable = [name for name, row in table.items() if ready(row)]
    kinds = {name: table[name].get("kind") for name in usable}
    for wanted in ("infiniband", "ethernet"):
        for name in usable:
            if kinds[name] == wanted:
                return name
    return None
