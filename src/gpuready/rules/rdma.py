"""Ports of network cards that reach memory by themselves: InfiniBand and RoCE."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuready.model import Facts

READS = ("net.ib",)


def ports(facts: Facts) -> dict[str, dict[str, Any]]:
    """Every port by name (``mlx5_0/1``); none where the machine has no such card."""
    return dict(facts.value("net.ib") or {})


def active(facts: Facts) -> list[str]:
    """The ports that carry data."""
    return [name for name, row in ports(facts).items() if row.get("state") == "active"]


def infiniband(facts: Facts) -> dict[str, dict[str, Any]]:
    """The ports of InfiniBand proper; those over Ethernet serve for much else and may well be down."""
    return {name: row for name, row in ports(facts).items() if row.get("link_layer") == "InfiniBand"}
