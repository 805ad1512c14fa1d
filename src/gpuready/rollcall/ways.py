"""Check the interfaces that variables select for the ranks' communication before any rank waits for them."""

from __future__ import annotations

from gpuready.rollcall import endpoint
from gpuready.rollcall.register import Fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    Interfaces = Mapping[str, tuple[bool, tuple[str, ...]]]

NAMES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME")


def chosen(name: str, value: str, have: Interfaces) -> list[str]:
    """Return the interfaces that a value selects. NCCL takes prefixes, ``=`` for whole names and ``^`` for
    all others.
    """
    words = [word.strip() for word in value.lstrip("^=").split(",") if word.strip()]
    whole = value.startswith(("=", "^=")) or name.startswith("GLOO")

    def named(one: str) -> bool:
        return any(one == word if whole else one.startswith(word) for word in words)

    return [one for one in have if named(one) != value.startswith("^")]


def fault(
    environ: Mapping[str, str], who: str, rank: int, backend: str, have: Interfaces | None = None
) -> Fault | None:
    """Return what is wrong with the interface that the backend would use; None if nothing is."""
    for name in NAMES:
        value = environ.get(name, "").strip()
        if not value or not _used(name, backend):
            continue
        found = endpoint.interfaces() if have is None else have
        left = chosen(name, value, found)
        listed = ", ".join(
            f"{endpoint.shown(one)}{'' if up else ' (down)'}" for one, (up, _) in found.items()
        )
        if not left:
            said = f"{who} has no interface that {name}={endpoint.shown(value)} names; it has {listed}"
            return Fault("NET001", said, f"set {name} to one of them", (rank,))
        if not any(found[one][0] and found[one][1] for one in left):
            said = f"the interface {endpoint.shown(left[0])} of {who}, which {name} names, is down or has no address; it has {listed}"
            return Fault(
                "NET002", said, f"ip link set {endpoint.shown(left[0])} up, or set {name} to another", (rank,)
            )
    return None


def address(environ: Mapping[str, str], backend: str) -> str:
    """Return the address for incoming data if a variable selects the interface."""
    for name in NAMES:
        value = environ.get(name, "").strip()
        if value and _used(name, backend):
            have = endpoint.interfaces()
            for one in chosen(name, value, have):
                if have[one][0] and have[one][1]:
                    return have[one][1][0]
    return ""


def _used(name: str, backend: str) -> bool:
    return name.partition("_")[0].lower() in backend
