"""Interpret one field of a GPU record, from NVML or from nvidia-smi.

NVML gives numbers and flags, nvidia-smi words; a field without a value is ``{"gap": reason}``.
"""

from collections.abc import Callable
from typing import Any

GpuRecord = dict[str, Any]
FieldReader = Callable[[Any, GpuRecord], Any]


FLAG_WORDS = {"yes": True, "enabled": True, "on": True, "no": False, "disabled": False, "off": False}
COMPUTE_MODES = ("default", "exclusive-thread", "prohibited", "exclusive-process")
RECOVERY_ACTIONS = {0: "none", 1: "gpu-reset", 2: "node-reboot", 3: "drain-p2p", 4: "drain-and-reset"}
RECOVERY_ACTIONS |= {5: "recover-imex-domain", 6: "bus-reset", 7: "system-reboot"}
"""Names of nvmlDeviceGpuRecoveryAction_t."""

SMI_RECOVERY_WORDS = {"reset": "gpu-reset", "reboot": "node-reboot"}
UNKNOWN_TO_DRIVER = (
    "not supported",
    "n/a",
    "not_supported",
    "not found",
    "invalid argument",
    "not given",
    "not listed",
    "empty",
)
"""How drivers answer a query that they do not know; any other answer is a query that failed."""
RESET_REQUIRED = ("NVML 16", "requires reset", "requires restart")
"""How NVML's refusal to talk to a GPU before a reset is worded."""

IDLE_REASONS = ("gpu_idle", "idle", "none", "")
THROTTLE_REASONS = {0x2: "applications_clocks_setting", 0x4: "sw_power_cap", 0x8: "hw_slowdown", 0x10: "sync_boost"}
THROTTLE_REASONS |= {0x20: "sw_thermal_slowdown", 0x40: "hw_thermal_slowdown", 0x80: "hw_power_brake_slowdown"}
THROTTLE_REASONS |= {0x100: "display_clocks_setting"}


def normalize_pci_address(text: str) -> str:
    """Normalize a PCI address: ``00000000:5E:00.0`` -> ``0000:5e:00.0``."""
    domain, _, rest = text.strip().lower().partition(":")
    return f"{domain.lstrip('0').rjust(4, '0')}:{rest}" if rest.count(":") == 1 else text.strip().lower()


def read_gpu_field(gpu: GpuRecord, field: str, reader: FieldReader) -> tuple[Any, str]:
    """Return the value of one field of one GPU, or the reason that it has none."""
    raw = gpu.get(field, {"gap": gpu.get("gap", "not given")})
    if isinstance(raw, dict) and "gap" in raw:
        if reader is read_switch_field and is_unsupported(raw["gap"]):
            return "none", ""
        return None, str(raw["gap"] or "not given")
    try:
        return reader(raw, gpu), ""
    except (TypeError, ValueError, KeyError, IndexError):
        return None, f"not understood: {str(raw)[:40]!r}"


def is_unsupported(reason: object) -> bool:
    """Whether a gap means that the GPU lacks the feature, rather than that it could not be read."""
    return any(word in str(reason).lower() for word in ("not supported", "n/a", "not_supported"))


def read_text_field(raw: Any, gpu: GpuRecord) -> str:
    if not isinstance(raw, str) or not raw:
        raise ValueError
    return raw


def read_number_field(raw: Any, gpu: GpuRecord) -> int:
    if isinstance(raw, bool):
        raise ValueError
    return int(raw)


def read_pci_address(raw: Any, gpu: GpuRecord) -> str:
    return normalize_pci_address(read_text_field(raw, gpu))


def read_compute_capability(raw: Any, gpu: GpuRecord) -> str:
    return raw if isinstance(raw, str) and raw else f"{int(raw[0])}.{int(raw[1])}"


def read_flag_field(raw: Any, gpu: GpuRecord) -> bool:
    return FLAG_WORDS[raw.lower()] if isinstance(raw, str) else bool(raw)


def read_switch_field(raw: Any, gpu: GpuRecord) -> str:
    if raw is None or raw == "none":
        return "none"
    return "on" if read_flag_field(raw, gpu) else "off"


def read_compute_mode(raw: Any, gpu: GpuRecord) -> str:
    if isinstance(raw, int):
        return COMPUTE_MODES[raw]
    return read_text_field(raw, gpu).lower().replace("_", "-").replace(" ", "-")


def count_nvlinks(raw: Any, gpu: GpuRecord) -> int:
    return len([link for link in raw if link]) if isinstance(raw, (list, tuple)) else read_number_field(raw, gpu)


def read_throttle_reasons(raw: Any, gpu: GpuRecord) -> str:
    if isinstance(raw, int):
        raw = [name for bit, name in THROTTLE_REASONS.items() if raw & bit]
    words = [raw] if isinstance(raw, str) else [str(word) for word in raw]
    return ", ".join(word for word in words if word not in IDLE_REASONS) or "none"


def read_recovery_action(gpu: GpuRecord) -> tuple[str | None, str]:
    """Return the recovery that the driver asks for, or why it is unknown; ``unsupported`` by older drivers."""
    raw = gpu.get("recovery", {"gap": gpu.get("gap", "not given")})
    if not isinstance(raw, dict):
        word = RECOVERY_ACTIONS.get(raw) or str(raw).strip().lower().replace(" ", "-")
        return SMI_RECOVERY_WORDS.get(word, word), ""
    reason = str(raw.get("gap"))
    if any(words in reason for words in RESET_REQUIRED):
        return "gpu-reset", ""
    if "gap" in gpu or not any(words in reason.lower() for words in UNKNOWN_TO_DRIVER):
        return None, reason
    return "unsupported", ""


def make_link_reader(width: str) -> FieldReader:
    """Read generation and width together: ``5 x16``."""

    def read_link_field(raw: Any, gpu: GpuRecord) -> str:
        return f"{int(raw)} x{int(gpu[width])}"

    return read_link_field


LIST_FIELDS: dict[str, tuple[str, FieldReader]] = {
    "gpu.name": ("name", read_text_field),
    "gpu.uuid": ("uuid", read_text_field),
    "gpu.pci": ("pci", read_pci_address),
    "gpu.memory": ("memory_total", read_number_field),
    "gpu.free": ("memory_free", read_number_field),
    "gpu.mode": ("mode", read_compute_mode),
    "gpu.persistence": ("persistence", read_switch_field),
    "gpu.mig": ("mig", read_switch_field),
    "gpu.ecc": ("ecc", read_switch_field),
    "gpu.ecc_errors": ("ecc_errors", read_number_field),
    "gpu.pcie": ("pcie_gen", make_link_reader("pcie_width")),
    "gpu.pcie_max": ("pcie_gen_max", make_link_reader("pcie_width_max")),
    "gpu.power_limit": ("power_limit", read_number_field),
    "gpu.power_limit_default": ("power_limit_default", read_number_field),
    "gpu.throttle": ("throttle", read_throttle_reasons),
    "gpu.nvlink": ("nvlink", count_nvlinks),
    "gpu.nvlink_errors": ("nvlink_errors", read_number_field),
}
"""Facts with one item per GPU: the record field and its reader."""
