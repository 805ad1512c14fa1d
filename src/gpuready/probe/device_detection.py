"""Detect accelerators without asking a driver: PCI, device nodes, kernel modules.

A driver that hangs must not decide whether the machine has a GPU, so only folders are read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpuready.model import Fact, Record
from gpuready.probe.fact_helpers import read_if_present
from gpuready.system import AccessError, HostAccess

KEYS = ("gpu.pci_count", "gpu.nodes", "gpu.other", "platform.name")
PCI_DEVICES = "/sys/bus/pci/devices"
PCI_VENDORS = {"0x10de": "nvidia", "0x1002": "amd", "0x8086": "intel", "0x19e5": "huawei", "0x1da3": "habana"}
PCI_VENDORS |= {"0x1ed5": "moore threads", "0x106b": "apple"}
DISPLAY_CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")
"""VGA, 3D and other display controllers, and processing accelerators."""

INTEGRATED_GRAPHICS = "0000:00:02.0"
"""PCI address of Intel's integrated graphics, which compute only with Level Zero installed."""

PLATFORM_NODES = (("kfd", "rocm"), ("davinci", "npu"), ("hl", "hpu"), ("mtgpu", "musa"))
"""Device nodes that only the driver of one other platform creates."""


class DetectedDevices(Record):
    """What the folders show. ``pci`` is None if the bus is not readable; ``read_errors`` has the reasons."""

    signs: tuple[str, ...] = ()
    shows_driver: bool = False  # anything but PCI: a card alone may have none
    pci: tuple[str, ...] | None = None
    others: tuple[tuple[str, str], ...] = ()
    nodes: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    wsl: bool = False
    jetson: bool = False
    read_errors: tuple[str, ...] = ()


def detect_devices(host: HostAccess) -> DetectedDevices:
    """Collect every trace of an NVIDIA GPU and of other accelerators."""
    errors: list[str] = []
    devices = _try_read(PCI_DEVICES, errors, _list_pci_devices, host)
    names = _try_read("/dev", errors, host.list_directory, "/dev") or ()
    nodes = tuple(f"/dev/{n}" for n in names if n.startswith("nvidia") or n == "dxg")
    pci = None if devices is None else tuple(a for v, a in devices if v == "nvidia")
    jetson = bool(read_if_present(host.stat_path, "/etc/nv_tegra_release"))
    module = _find_kernel_module(host, errors)
    if devices is None and not errors and read_if_present(host.get_uname, default={}).get("system") != "Darwin":
        errors.append(f"there is no {PCI_DEVICES} here")
    driver = (*nodes, *([module] if module else []), *(["/etc/nv_tegra_release"] if jetson else []))
    return DetectedDevices(
        signs=(*(f"PCI {address}" for address in pci or ()), *driver),
        shows_driver=bool(driver),
        pci=pci,
        others=tuple((v, a) for v, a in devices or () if v != "nvidia"),
        nodes=nodes,
        foreign=tuple(n for n in names if n.startswith(tuple(p for p, _ in PLATFORM_NODES))),
        wsl="/dev/dxg" in nodes,
        jetson=jetson,
        read_errors=tuple(errors),
    )


def _try_read(what: str, errors: list[str], read: Callable[..., Any], *args: Any) -> Any:
    try:
        return read(*args)
    except AccessError as error:
        errors.append(f"{what}: {error}")
        return None


def _list_pci_devices(host: HostAccess) -> list[tuple[str, str]] | None:
    """Vendor and address of every display controller and accelerator; None without a readable bus."""
    addresses = host.list_directory(PCI_DEVICES)
    if addresses is None:
        return None
    devices = []
    for address in addresses:
        vendor = PCI_VENDORS.get((host.read_text(f"{PCI_DEVICES}/{address}/vendor") or "").strip())
        if vendor and (host.read_text(f"{PCI_DEVICES}/{address}/class") or "").startswith(DISPLAY_CLASSES):
            devices.append((vendor, address))
    return devices


def _find_kernel_module(host: HostAccess, errors: list[str]) -> str | None:
    """Return the path of the loaded kernel module; a container may hide one place and not the other."""
    for path in ("/sys/module/nvidia", "/proc/driver/nvidia"):
        if _try_read(path, errors, host.stat_path, path):
            return path
    return None


def detected_device_facts(host: HostAccess, detected: DetectedDevices) -> list[Fact]:
    why = "; ".join(detected.read_errors)
    other = tuple({"vendor": v, "pci": a} for v, a in detected.others)
    count = None if detected.pci is None else len(detected.pci)
    return [
        Fact("gpu.pci_count", count, PCI_DEVICES, gap="" if detected.pci is not None else why or "no PCI bus here"),
        Fact("gpu.nodes", tuple(_describe_device_node(host, path) for path in detected.nodes), "/dev"),
        Fact("gpu.other", other, PCI_DEVICES, gap="" if detected.pci is not None else why or "no PCI bus here"),
        _platform_fact(host, detected),
    ]


def _describe_device_node(host: HostAccess, path: str) -> dict[str, Any]:
    status = read_if_present(host.stat_path, path) or {}
    mode = status.get("mode")
    return {"path": path, "mode": None if mode is None else f"{mode:04o}", "uid": status.get("uid")}


def _platform_of_pci_device(host: HostAccess, vendor: str, address: str) -> str | None:
    """Platform of a card without device files of its own: Gaudi uses accel's, Intel dri's."""
    if vendor == "habana":
        return "hpu"
    if vendor == "intel" and address != INTEGRATED_GRAPHICS:
        uevent = read_if_present(host.read_text, f"{PCI_DEVICES}/{address}/uevent") or ""
        return "xpu" if any(f"DRIVER={name}" in uevent.split() for name in ("i915", "xe")) else None
    return None


def _platform_fact(host: HostAccess, detected: DetectedDevices) -> Fact:
    if detected.signs:
        return Fact("platform.name", "cuda", detected.signs[0])
    for start, platform in PLATFORM_NODES:
        for name in detected.foreign:
            if name.startswith(start) and (start == "kfd" or name[len(start) :].lstrip(".")[:1].isdigit()):
                return Fact("platform.name", platform, f"/dev/{name}")
    for vendor, address in detected.others:
        if on_bus := _platform_of_pci_device(host, vendor, address):
            return Fact("platform.name", on_bus, f"{PCI_DEVICES}/{address}")
    system = read_if_present(host.get_uname, default={})
    if system.get("system") == "Darwin" and system.get("machine") == "arm64":
        return Fact("platform.name", "mps", "uname")
    if detected.read_errors:
        return Fact("platform.name", None, PCI_DEVICES, gap="; ".join(detected.read_errors))
    return Fact("platform.name", "cpu", f"{PCI_DEVICES}, /dev, /sys/module")
