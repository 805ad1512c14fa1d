"""Check the interfaces that variables select for the ranks' communication before any rank waits for them."""

from __future__ import annotations

from gpuready.rollcall import endpoint
from gpuready.rollcall.rank_register import RollcallFault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

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
    for name in INTERFACE_VARIABLES:
        value = environ.get(name, "").strip()
        if not value or not _is_used_by_backend(name, backend):
            continue
        existing = endpoint.list_interfaces() if interfaces is None else interfaces
        matching = match_interfaces(name, value, existing)
        listed = ", ".join(f"{endpoint.escape_text(one)}{'' if up else ' (down)'}" for one, (up, _) in existing.items())
        if not matching:
            message = f"{who} has no interface that {name}={endpoint.escape_text(value)} names; it has {listed}"
            return RollcallFault("NET001", message, f"set {name} to one of them", (rank,))
        if not any(existing[one][0] and existing[one][1] for one in matching):
            first = endpoint.escape_text(matching[0])
            message = f"the interface {first} of {who}, which {name} names, is down or has no address; it has {listed}"
            return RollcallFault("NET002", message, f"ip link set {first} up, or set {name} to another", (rank,))
    return None


def find_data_address(environ: Mapping[str, str], backend: str) -> str:
    """Return the address for incoming data if a variable selects the interface."""
    for name in INTERFACE_VARIABLES:
        value = environ.get(name, "").strip()
        if value and _is_used_by_backend(name, backend):
            interfaces = endpoint.list_interfaces()
            for one in match_interfaces(name, value, interfaces):
                if interfaces[one][0] and interfaces[one][1]:
                    return interfaces[one][1][0]
    return ""


def _is_used_by_backend(name: str, backend: str) -> bool:
    return name.partition("_")[0].lower() in backend
