"""Interpret one field of a GPU record, from NVML or from nvidia-smi.

NVML gives numbers and flags, nvidia-smi words; a field without a value is ``{"gap": reason}``.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Record = dict[str, Any]
    Reader = Callable[[Any, Record], Any]

WORDS = {"yes": True, "enabled": True, "on": True, "no": False, "disabled": False, "off": False}
MODES = ("default", "exclusive-thread", "prohibited", "exclusive-process")
IDLE = ("gpu_idle", "idle", "none", "")
THROTTLES = {0x2: "applications_clocks_setting", 0x4: "sw_power_cap", 0x8: "hw_slowdown", 0x10: "sync_boost"}
THROTTLES |= {0x20: "sw_thermal_slowdown", 0x40: "hw_thermal_slowdown", 0x80: "hw_power_brake_slowdown"}
THROTTLES |= {0x100: "display_clocks_setting"}


def value(gpu: Record, field: str, reader: Reader) -> tuple[Any, str]:
    """Return the value of one field of one GPU, or the reason that it has none."""
    raw = gpu.get(field, {"gap": gpu.get("gap", "not given")})
    if isinstance(raw, dict) and "gap" in raw:
        if reader is switch and unsupported(raw["gap"]):
            return "none", ""
        return None, str(raw["gap"] or "not given")
    try:
        return reader(raw, gpu), ""
    except (TypeError, ValueError, KeyError, IndexError):
        return None, f"not understood: {str(raw)[:40]!r}"


def unsupported(reason: object) -> bool:
    """Whether a gap means that the GPU lacks the feature, rather than that it could not be read."""
    return any(word in str(reason).lower() for word in ("not supported", "n/a", "not_supported"))


def text(raw: Any, gpu: Record) -> str:
    if not isinstance(raw, str) or not raw:
        raise ValueError
    return raw


def number(raw: Any, gpu: Record) -> int:
    if isinstance(raw, bool):
        raise ValueError
    return int(raw)


def address(raw: Any, gpu: Record) -> str:
    from gpuready.probe.smi import pci

    return pci(text(raw, gpu))


def capability(raw: Any, gpu: Record) -> str:
    return raw if isinstance(raw, str) and raw else f"{int(raw[0])}.{int(raw[1])}"


def flag(raw: Any, gpu: Record) -> bool:
    return WORDS[raw.lower()] if isinstance(raw, str) else bool(raw)


def switch(raw: Any, gpu: Record) -> str:
    if raw is None or raw == "none":
        return "none"
    return "on" if flag(raw, gpu) else "off"


def mode(raw: Any, gpu: Record) -> str:
    if isinstance(raw, int):
        return MODES[raw]
    return text(raw, gpu).lower().replace("_", "-").replace(" ", "-")


def links(raw: Any, gpu: Record) -> int:
    return len([link for link in raw if link]) if isinstance(raw, (list, tuple)) else number(raw, gpu)


def throttle(raw: Any, gpu: Record) -> str:
    if isinstance(raw, int):
        raw = [name for bit, name in THROTTLES.items() if raw & bit]
    words = [raw] if isinstance(raw, str) else [str(word) for word in raw]
    return ", ".join(word for word in words if word not in IDLE) or "none"


def link(width: str) -> Reader:
    """Read generation and width together: ``5 x16``."""

    def reader(raw: Any, gpu: Record) -> str:
        return f"{int(raw)} x{int(gpu[width])}"

    return reader


LISTS: dict[str, tuple[str, Reader]] = {
    "gpu.name": ("name", text),
    "gpu.uuid": ("uuid", text),
    "gpu.pci": ("pci", address),
    "gpu.memory": ("memory_total", number),
    "gpu.free": ("memory_free", number),
    "gpu.mode": ("mode", mode),
    "gpu.persistence": ("persistence", switch),
    "gpu.mig": ("mig", switch),
    "gpu.ecc": ("ecc", switch),
    "gpu.ecc_errors": ("ecc_errors", number),
    "gpu.pcie": ("pcie_gen", link("pcie_width")),
    "gpu.pcie_max": ("pcie_gen_max", link("pcie_width_max")),
    "gpu.power_limit": ("power_limit", number),
    "gpu.power_limit_default": ("power_limit_default", number),
    "gpu.throttle": ("throttle", throttle),
    "gpu.nvlink": ("nvlink", links),
}
"""Facts with one item per GPU: the record field and its reader."""
