"""Detect accelerators without asking a driver: PCI, device nodes, kernel modules.

A driver that hangs must not decide whether the machine has a GPU, so only folders are read.
"""

from __future__ import annotations

from gpuready.model import Fact, Noun
from gpuready.probe.sight import glimpse
from gpuready.system import Blind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from gpuready.system import Door

KEYS = ("gpu.pci_count", "gpu.nodes", "gpu.other", "platform.name")
PCI = "/sys/bus/pci/devices"
VENDORS = {"0x10de": "nvidia", "0x1002": "amd", "0x8086": "intel", "0x19e5": "huawei", "0x1da3": "habana"}
VENDORS |= {"0x1ed5": "moore threads", "0x106b": "apple"}
CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")
"""VGA, 3D and other display controllers, and processing accelerators."""

OWN_GRAPHICS = "0000:00:02.0"
"""PCI address of Intel's integrated graphics, which compute only with Level Zero installed."""

NODES = (("kfd", "rocm"), ("davinci", "npu"), ("hl", "hpu"), ("mtgpu", "musa"))
"""Device nodes that only the driver of one other platform creates."""


class Presence(Noun):
    """What the folders show. ``pci`` is None if the bus is not readable; ``blind`` has the reasons."""

    signs: tuple[str, ...] = ()
    pci: tuple[str, ...] | None = None
    others: tuple[tuple[str, str], ...] = ()
    nodes: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    wsl: bool = False
    jetson: bool = False
    blind: tuple[str, ...] = ()


def presence(door: Door) -> Presence:
    """Collect every trace of an NVIDIA GPU and of other accelerators."""
    blind: list[str] = []
    devices = _tried(PCI, blind, _devices, door)
    names = _tried("/dev", blind, door.list, "/dev") or ()
    nodes = tuple(f"/dev/{n}" for n in names if n.startswith("nvidia") or n == "dxg")
    pci = None if devices is None else tuple(a for v, a in devices if v == "nvidia")
    jetson = bool(glimpse(door.stat, "/etc/nv_tegra_release"))
    module = _module(door, blind)
    if devices is None and not blind and glimpse(door.uname, otherwise={}).get("system") != "Darwin":
        blind.append(f"there is no {PCI} here")
    signs = [f"PCI {address}" for address in pci or ()]
    signs += [*nodes, *([module] if module else []), *(["/etc/nv_tegra_release"] if jetson else [])]
    return Presence(
        signs=tuple(signs),
        pci=pci,
        others=tuple((v, a) for v, a in devices or () if v != "nvidia"),
        nodes=nodes,
        foreign=tuple(n for n in names if n.startswith(tuple(p for p, _ in NODES))),
        wsl="/dev/dxg" in nodes,
        jetson=jetson,
        blind=tuple(blind),
    )


def _tried(what: str, blind: list[str], see: Callable[..., Any], *args: Any) -> Any:
    try:
        return see(*args)
    except Blind as why:
        blind.append(f"{what}: {why}")
        return None


def _devices(door: Door) -> list[tuple[str, str]] | None:
    """Vendor and address of every display controller and accelerator; None without a readable bus."""
    addresses = door.list(PCI)
    if addresses is None:
        return None
    found = []
    for address in addresses:
        vendor = VENDORS.get((door.read(f"{PCI}/{address}/vendor") or "").strip())
        if vendor and (door.read(f"{PCI}/{address}/class") or "").startswith(CLASSES):
            found.append((vendor, address))
    return found


def _module(door: Door, blind: list[str]) -> str | None:
    """Return the path of the loaded kernel module; a container may hide one place and not the other."""
    for path in ("/sys/module/nvidia", "/proc/driver/nvidia"):
        if _tried(path, blind, door.stat, path):
            return path
    return None


def facts(door: Door, found: Presence) -> list[Fact]:
    why = "; ".join(found.blind)
    other = tuple({"vendor": v, "pci": a} for v, a in found.others)
    count = None if found.pci is None else len(found.pci)
    return [
        Fact("gpu.pci_count", count, PCI, gap="" if found.pci is not None else why or "no PCI bus here"),
        Fact("gpu.nodes", tuple(_node(door, path) for path in found.nodes), "/dev"),
        Fact("gpu.other", other, PCI, gap="" if found.pci is not None else why or "no PCI bus here"),
        _platform(door, found),
    ]


def _node(door: Door, path: str) -> dict[str, Any]:
    status = glimpse(door.stat, path) or {}
    mode = status.get("mode")
    return {"path": path, "mode": None if mode is None else f"{mode:04o}", "uid": status.get("uid")}


def _on_bus(door: Door, vendor: str, address: str) -> str | None:
    """Platform of a card without device files of its own: Gaudi uses accel's, Intel dri's."""
    if vendor == "habana":
        return "hpu"
    if vendor == "intel" and address != OWN_GRAPHICS:
        uevent = glimpse(door.read, f"{PCI}/{address}/uevent") or ""
        return "xpu" if any(f"DRIVER={name}" in uevent.split() for name in ("i915", "xe")) else None
    return None


def _platform(door: Door, found: Presence) -> Fact:
    if found.signs:
        return Fact("platform.name", "cuda", found.signs[0])
    for start, platform in NODES:
        for name in found.foreign:
            if name.startswith(start) and (start == "kfd" or name[len(start) :].lstrip(".")[:1].isdigit()):
                return Fact("platform.name", platform, f"/dev/{name}")
    for vendor, address in found.others:
        if on_bus := _on_bus(door, vendor, address):
            return Fact("platform.name", on_bus, f"{PCI}/{address}")
    system = glimpse(door.uname, otherwise={})
    if system.get("system") == "Darwin" and system.get("machine") == "arm64":
        return Fact("platform.name", "mps", "uname")
    if found.blind:
        return Fact("platform.name", None, PCI, gap="; ".join(found.blind))
    return Fact("platform.name", "cpu", f"{PCI}, /dev, /sys/module")
