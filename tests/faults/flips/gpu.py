"""Faults of GPUs, as the driver tells them."""

from __future__ import annotations

from pathlib import Path

from tests.faults.flips.machine import GIB, BreakableMachine, Fault
from tests.probe.samples import answer, record

COMPOSE = "services:\n  train:\n    image: nvidia/cuda:12.6.3-runtime-ubuntu22.04\n    command: python train.py\n"


def no_gpu(p: BreakableMachine) -> None:
    for path in Path(f"{p.machine.root}/sys/bus/pci/devices").iterdir():
        p.machine.gone(f"/sys/bus/pci/devices/{path.name}")
    for name in ("/sys/module/nvidia", "/proc/driver/nvidia", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0"):
        p.machine.gone(name)
    p.nvml = {"error": 9, "says": "driver not loaded"}


def below_the_floor(p: BreakableMachine) -> None:
    p.gpu(name="Tesla P100-PCIE-16GB", capability="6.0")
    p.contract('key = "gpu.capability"\nwant = ">=8.0"')


def lost(p: BreakableMachine) -> None:
    p.gpus({}, {})
    p.nvml = answer(record(), {"index": 1, "pci": "00000000:14:00.0", "error": 15, "gap": "GPU is lost"})


def more_ranks_than_gpus(p: BreakableMachine) -> None:
    p.machine.file("/job.yml", "num_gpus_per_node: 8\n")
    p.asked.update(config="/job.yml")


def compose_without_gpus(p: BreakableMachine) -> None:
    p.machine.file("/compose.yml", COMPOSE)
    p.asked.update(dockerfile="/compose.yml", on="h100", what_if={"driver": "580.95.05"})


FAULTS: dict[str, Fault] = {
    "GPU001": no_gpu,
    "GPU002": lambda p: p.set(CUDA_VISIBLE_DEVICES="-1"),
    "GPU003": lambda p: p.set(CUDA_VISIBLE_DEVICES="0,99"),
    "GPU004": lambda p: p.gpu(name="Tesla K80", capability="3.7"),
    "GPU005": below_the_floor,
    "GPU006": lambda p: p.gpu(mode="exclusive_process", processes=[{"pid": 7, "used": GIB, "name": "python"}]),
    "GPU007": lambda p: p.gpu(mig=True),
    "GPU008": lambda p: p.gpu(ecc_errors=7),
    "GPU009": lambda p: p.gpu(remap_pending=True),
    "GPU010": lambda p: p.gpu(pcie_width=4),
    "GPU011": lambda p: p.gpu(throttle=["hw_thermal_slowdown"]),
    "GPU012": lambda p: p.gpu(power_limit=200.0),
    "GPU013": lost,
    "GPU014": lambda p: p.machine.gpus(2),
    "GPU015": more_ranks_than_gpus,
    "GPU016": lambda p: p.gpus({}, {"name": "NVIDIA A100-SXM4-80GB", "capability": "8.0"}),
    "GPU017": lambda p: (p.machine.file("/.dockerenv"), p.machine.gone("/dev/nvidia-uvm")),
    "GPU020": lambda p: p.gpu(nvlink_errors=3),
    "GPU023": compose_without_gpus,
    "GPU025": lambda p: p.gpu(recovery=1),
}
