"""Faults of the driver, its module and its libraries."""

from __future__ import annotations

from tests.faults.bench import SITE
from tests.faults.flips.machine import BreakableMachine, Fault


def container(p: BreakableMachine, text: str, **what_if: str) -> None:
    p.machine.file("/Dockerfile", text)
    p.asked.update(dockerfile="/Dockerfile", on="h100", what_if=what_if)


def driver_below_the_contract(p: BreakableMachine) -> None:
    p.contract('key = "driver.version"\nwant = ">=590"')


def silent(p: BreakableMachine) -> None:
    p.nvml = {"error": 999, "says": "unknown error"}
    p.machine.program("nvidia-smi", "echo 'Failed to initialize NVML: Unknown Error'; exit 255")


def stub(p: BreakableMachine) -> None:
    p.machine.gone("/usr/lib/libcuda.so.1")
    p.toolkit("12.6.20")
    p.machine.libcuda("12.6", "/usr/local/cuda/lib64/stubs")
    p.set(LD_LIBRARY_PATH="/usr/local/cuda/lib64/stubs")


def toolkit_newer_than_driver(p: BreakableMachine) -> None:
    p.driver("550.144.03", "12.4")
    p.machine.gone(f"{SITE}/torch", f"{SITE}/torch-2.13.0+cu126.dist-info")
    p.toolkit("13.0.48")
    p.wants("build")


def closed_module_for_a_new_gpu(p: BreakableMachine) -> None:
    p.undriven("NVIDIA GeForce RTX 5090", "580.95.05")
    p.closed_module()


def no_fabric_manager(p: BreakableMachine) -> None:
    p.gpus(*[{}] * 8)
    for index in range(4):
        folder = f"/sys/bus/pci/devices/0000:{index + 0xC0:02x}:00.0"
        p.machine.file(f"{folder}/vendor", "0x10de\n")
        p.machine.file(f"{folder}/class", "0x068000\n")
        p.machine.file(f"/dev/nvidia-nvswitch{index}", mode=0o666)
    p.machine.program("nv-fabricmanager", "exit 0")
    p.machine.file("/proc/2/comm", "kthreadd\n")


def compat_library(p: BreakableMachine) -> None:
    p.driver("470.256.02", "11.4")
    p.machine.libcuda("560.35.05", "/usr/local/cuda/compat")
    p.set(LD_LIBRARY_PATH="/usr/local/cuda/compat")


FAULTS: dict[str, Fault] = {
    "DRV001": lambda p: p.driver("470.256.02", "11.4"),
    "DRV002": lambda p: p.machine.libcuda("570.86.10"),
    "DRV003": driver_below_the_contract,
    "DRV004": silent,
    "DRV005": stub,
    "DRV006": toolkit_newer_than_driver,
    "DRV007": lambda p: p.undriven("Tesla V100-SXM2-16GB", "590.48.01"),
    "DRV008": lambda p: p.undriven("NVIDIA GeForce RTX 5090", "550.144.03"),
    "DRV009": closed_module_for_a_new_gpu,
    "DRV010": no_fabric_manager,
    "DRV011": compat_library,
    "DRV012": lambda p: (
        p.machine.file("/dev/dxg", mode=0o666),
        p.machine.file("/proc/version", "Linux version 5.15.90.1-microsoft-standard-WSL2\n"),
        p.kernel("5.15.90.1-microsoft-standard-WSL2"),
    ),
    "DRV013": lambda p: p.gpus(*[{"persistence": False}] * 8),
    "DRV014": lambda p: container(
        p, "FROM nvidia/cuda:13.0.1-runtime-ubuntu22.04\nRUN pip install transformers\n", driver="525.60.13"
    ),
}
