"""InfiniBand and RoCE ports."""

from __future__ import annotations

from typing import Any

from gpuready.model import Facts

READS = ("net.ib",)


def list_rdma_ports(facts: Facts) -> dict[str, dict[str, Any]]:
    """Return every port by name (``mlx5_0/1``); empty if the machine has no such card."""
    return dict(facts.value("net.ib") or {})


def active_rdma_ports(facts: Facts) -> list[str]:
    return [name for name, row in list_rdma_ports(facts).items() if row.get("state") == "active"]


def infiniband_ports(facts: Facts) -> dict[str, dict[str, Any]]:
    """Return the ports of InfiniBand proper; RoCE ports have other uses too and may be down."""
    return {name: row for name, row in list_rdma_ports(facts).items() if row.get("link_layer") == "InfiniBand"}
