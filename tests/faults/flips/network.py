"""Faults of interfaces, adapters and the variables of a start."""

from __future__ import annotations

from tests.faults.flips.machine import ROUTE, BreakableMachine, Fault
from tests.probe.samples import answer


def two_rtx_4090_under_an_old_driver(p: BreakableMachine) -> None:
    p.gpus(
        {"name": "NVIDIA GeForce RTX 4090", "capability": "8.9"},
        {"name": "NVIDIA GeForce RTX 4090", "capability": "8.9"},
    )
    p.machine.gpus(2, "535.104.05")
    p.machine.gone("/usr/bin/nvidia-smi")
    p.nvml = answer(*p.nvml["gpus"], driver="535.104.05", cuda="12.2")


def only_the_bridge_of_docker(p: BreakableMachine) -> None:
    p.interface("docker0")
    p.machine.gone("/sys/class/net/docker0/device")
    p.machine.folder_at("/sys/class/net/docker0/bridge")
    p.machine.file("/proc/net/route", ROUTE.format("docker0"))
    p.wants("multi-node")


FAULTS: dict[str, Fault] = {
    "NET001": lambda p: (p.interface("enp1s0"), p.set(NCCL_SOCKET_IFNAME="eth77"), p.wants("multi-gpu")),
    "NET002": lambda p: (
        p.interface("eth0"),
        p.interface("ib0", up=False),
        p.set(NCCL_SOCKET_IFNAME="ib0"),
        p.wants("multi-node"),
    ),
    "NET003": only_the_bridge_of_docker,
    "NET004": lambda p: p.infiniband("2: INIT"),
    "NET005": lambda p: (p.infiniband("4: ACTIVE"), p.kernel("5.4.0"), p.closed_module()),
    "NET006": lambda p: p.set(RANK="5", WORLD_SIZE="2", LOCAL_RANK="0", MASTER_ADDR="10.0.0.1", MASTER_PORT="29500"),
    "NET007": lambda p: p.set(RANK="0", WORLD_SIZE="2", LOCAL_RANK="0", MASTER_ADDR="10.0.0.1", MASTER_PORT="99999"),
    "NET008": lambda p: p.set(
        RANK="0", WORLD_SIZE="16", LOCAL_RANK="0", LOCAL_WORLD_SIZE="8", MASTER_ADDR="127.0.0.1", MASTER_PORT="29500"
    ),
    "NET009": lambda p: (
        p.machine.file("/etc/hosts", "127.0.0.1 localhost\n127.0.1.1 here\n"),
        p.kernel("6.8.0"),
        p.wants("multi-node"),
    ),
    "NET010": lambda p: (p.gpus({}, {}), p.set(NCCL_P2P_DISABLE="1")),
    "NET011": two_rtx_4090_under_an_old_driver,
    "NET012": lambda p: p.set(
        RANK="0", WORLD_SIZE="8", LOCAL_RANK="0", LOCAL_WORLD_SIZE="8", MASTER_ADDR="127.0.0.1", MASTER_PORT="29500"
    ),
}
