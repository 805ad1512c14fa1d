"""Network interfaces as NCCL and Gloo choose among them."""

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
    """The variables that name interfaces here; NCCL takes no notice of a single letter."""
    found = {name: shell.value(facts, name) for name in VARIABLES}
    return {name: text for name, text in found.items() if text and len(text) > 1}


def named(variable: str, text: str, every: Iterable[str]) -> list[str] | None:
    """The interfaces that a variable allows; None where it names one that must be there and is not.

    NCCL takes prefixes (``eth``), exact names (``=eth0``) and what it must not take (``^docker``); one that
    fits is enough for it. Gloo takes names, and needs them all.
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
    """Whether an interface is up and has an address. Addresses that nobody could tell apart are some."""
    held = row.get("addresses")
    return bool(row.get("up")) and (held is None or any(address != "::1" for address in held))


def in_words(table: Table) -> str:
    """What there is: ``eth0, ib0 and lo``."""
    return cards.listed(sorted(table)) or "none"


def best(table: Table) -> str | None:
    """An interface to name instead: InfiniBand first, as NCCL does, then one of a network card."""
    usable = [name for name, row in table.items() if ready(row)]
    kinds = {name: table[name].get("kind") for name in usable}
    for wanted in ("infiniband", "ethernet"):
        for name in usable:
            if kinds[name] == wanted:
                return name
    return None
