"""NVML through ctypes, and what it reports about one GPU, field by field; an unavailable field is {"gap": why}.

Memory is in bytes, power in watts, clocks in MHz, temperature in degrees Celsius.
"""

import ctypes
import sys
from collections.abc import Callable
from typing import Any

GPU_IS_LOST, INSUFFICIENT_SIZE, FUNCTION_NOT_FOUND = 15, 7, 13
"""NVML error codes that need special handling."""


class NvmlError(Exception):
    """NVML returned an error: its code and text."""

    def __init__(self, code: int, message: str):
        super().__init__(message)
        self.code, self.message = code, message


class NvmlLibrary:
    """Call functions by name; a code other than success raises NvmlError."""

    def __init__(self, path: str):
        self.ctypes = ctypes
        self.library = ctypes.CDLL(path)

    def call_newest(self, names: str, *args: Any) -> str:
        """Call the first of several names (newest first) this driver has; return that name."""
        for name in names.split():
            function = getattr(self.library, name, None)
            if function is not None:
                code = function(*args)
                if code:
                    raise NvmlError(code, self.error_text(code))
                return name
        raise NvmlError(FUNCTION_NOT_FOUND, "Function Not Found")

    def error_text(self, code: int) -> str:
        """NVML's text for an error code."""
        try:
            function = self.library.nvmlErrorString
            function.restype = self.ctypes.c_char_p
            return decode_text(function(code)) or f"NVML error {code}"
        except AttributeError:
            return f"NVML error {code}"

    def get_number(self, names: str, device: Any, *before: Any, kind: str = "c_uint") -> int:
        """A call whose last argument receives one number."""
        value = getattr(self.ctypes, kind)()
        self.call_newest(names, *device, *before, self.ctypes.byref(value))
        return int(value.value)

    def get_numbers(self, names: str, device: Any, count: int, kind: str = "c_uint") -> list[int]:
        """A call whose last arguments receive one number each."""
        values = [getattr(self.ctypes, kind)() for _ in range(count)]
        self.call_newest(names, *device, *(self.ctypes.byref(v) for v in values))
        return [int(v.value) for v in values]

    def get_text(self, names: str, *device: Any) -> str:
        """A call that fills a buffer with text."""
        buffer = self.ctypes.create_string_buffer(128)
        self.call_newest(names, *device, buffer, self.ctypes.c_uint(96))
        return decode_text(buffer.value)

    def get_struct(self, names: str, device: Any, size: int) -> bytes:
        """A call that fills a structure; the buffer has spare bytes in case a driver writes a longer one."""
        buffer = self.ctypes.create_string_buffer(size + 64)
        self.call_newest(names, *device, buffer)
        return buffer.raw


def decode_text(raw: bytes | None) -> str:
    return (raw or b"").decode("utf-8", "backslashreplace").strip()


_COMPUTE_MODES = ("default", "exclusive_thread", "prohibited", "exclusive_process")
_BRANDS = (
    *("unknown", "quadro", "tesla", "nvs", "grid", "geforce", "titan", "vapps", "vpc", "vcs", "vws"),
    *("cloud_gaming", "quadro_rtx", "nvidia_rtx", "nvidia", "geforce_rtx", "titan_rtx"),
)
_THROTTLE_BITS = (
    *("gpu_idle", "application_clocks", "sw_power_cap", "hw_slowdown", "sync_boost"),
    *("sw_thermal", "hw_thermal", "hw_power_brake", "display_clocks"),
)
_RECOVERY_ACTION, _NVLINK_RECOVERIES = 230, 59
"""Field ids: NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, and NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL."""

_MAX_NVLINKS, _PROCESS_SLOTS, _NOT_AVAILABLE = 18, 512, (1 << 64) - 1


def read_field(get: Callable[[], Any]) -> Any:
    """A value, or {"gap": why}. The error of a lost GPU concerns all fields and is raised."""
    try:
        return get()
    except NvmlError as error:
        if error.code == GPU_IS_LOST:
            raise
        return {"gap": error.message}


def read_gpu(nvml: NvmlLibrary, index: int) -> dict[str, Any]:
    """All fields of one GPU; a GPU that is lost or inaccessible has only a gap."""
    handle = nvml.ctypes.c_void_p()
    found: dict[str, Any] = {"index": index}
    try:
        names = "nvmlDeviceGetHandleByIndex_v2 nvmlDeviceGetHandleByIndex"
        nvml.call_newest(names, nvml.ctypes.c_uint(index), nvml.ctypes.byref(handle))
        found["pci"] = read_field(lambda: _pci_address(nvml, (handle,)))
        return {**found, **_read_fields(nvml, (handle,))}
    except NvmlError as error:
        return {**found, "gap": f"{error.message} (NVML {error.code})"}


def _read_fields(nvml: NvmlLibrary, device: tuple[Any]) -> dict[str, Any]:
    get, number, text = "nvmlDeviceGet", nvml.get_number, nvml.get_text
    sm = nvml.ctypes.c_int(1)  # the clock of the SMs, in MHz
    memory = _read_field_group(lambda: _memory_info(nvml, device), ("memory_total", "memory_free", "memory_used"))
    remap = _read_field_group(lambda: _remapped_rows(nvml, device), ("remap_pending", "remap_failure"))
    return {
        "name": read_field(lambda: text(f"{get}Name", *device)),
        "uuid": read_field(lambda: text(f"{get}UUID", *device)),
        **memory,
        "capability": read_field(
            lambda: "{}.{}".format(*nvml.get_numbers(f"{get}CudaComputeCapability", device, 2, "c_int"))
        ),
        "mode": read_field(lambda: _name_at(_COMPUTE_MODES, number(f"{get}ComputeMode", device))),
        "persistence": read_field(lambda: bool(number(f"{get}PersistenceMode", device))),
        "mig": read_field(lambda: bool(nvml.get_numbers(f"{get}MigMode", device, 2)[0])),
        "mig_devices": read_field(lambda: _mig_devices(nvml, device)),
        "ecc": read_field(lambda: bool(nvml.get_numbers(f"{get}EccMode", device, 2)[0])),
        "ecc_errors": read_field(lambda: _count_ecc_errors(nvml, device)),
        **remap,
        "recovery": read_field(lambda: _field_value(nvml, device, _RECOVERY_ACTION)),
        "pcie_gen": read_field(lambda: number(f"{get}CurrPcieLinkGeneration", device)),
        "pcie_width": read_field(lambda: number(f"{get}CurrPcieLinkWidth", device)),
        "pcie_gen_max": read_field(lambda: number(f"{get}MaxPcieLinkGeneration", device)),
        "pcie_width_max": read_field(lambda: number(f"{get}MaxPcieLinkWidth", device)),
        "power_limit": read_field(lambda: number(f"{get}EnforcedPowerLimit {get}PowerManagementLimit", device) / 1000),
        "power_limit_default": read_field(lambda: number(f"{get}PowerManagementDefaultLimit", device) / 1000),
        "power_draw": read_field(lambda: number(f"{get}PowerUsage", device) / 1000),
        "temperature": read_field(lambda: number(f"{get}Temperature", device, nvml.ctypes.c_int(0))),
        "throttle": read_field(lambda: _throttle_reasons(nvml, device)),
        "clock_sm": read_field(lambda: number(f"{get}ClockInfo", device, sm)),
        "clock_sm_max": read_field(lambda: number(f"{get}MaxClockInfo", device, sm)),
        "nvlink": read_field(lambda: _count_nvlinks(nvml, device)),
        "nvlink_errors": read_field(lambda: _field_value(nvml, device, _NVLINK_RECOVERIES)),
        "numa": read_field(lambda: number(f"{get}NumaNodeId", device)),
        "minor": read_field(lambda: number(f"{get}MinorNumber", device)),
        "brand": read_field(lambda: _name_at(_BRANDS, number(f"{get}Brand", device))),
        "processes": read_field(lambda: _compute_processes(nvml, device)),
    }


def _read_field_group(get: Callable[[], dict[str, Any]], names: tuple[str, ...]) -> dict[str, Any]:
    """Several fields of one call: all of them, or the same gap for each."""
    found = read_field(get)
    return found if set(found) == set(names) else dict.fromkeys(names, found)


def _name_at(names: tuple[str, ...], number: int) -> str:
    return names[number] if number < len(names) else str(number)


def _pci_address(nvml: NvmlLibrary, device: tuple[Any]) -> str:
    raw = nvml.get_struct("nvmlDeviceGetPciInfo_v3 nvmlDeviceGetPciInfo_v2", device, 68)
    long, short = (decode_text(raw[a:b].partition(b"\0")[0]) for a, b in ((36, 68), (0, 16)))
    return (long or short).lower()


def _memory_info(nvml: NvmlLibrary, device: tuple[Any]) -> dict[str, int]:
    raw = nvml.get_struct("nvmlDeviceGetMemoryInfo", device, 24)
    total, free, used = (_read_u64(raw, place) for place in (0, 8, 16))
    return {"memory_total": total, "memory_free": free, "memory_used": used}


def _read_u64(raw: bytes, at: int) -> int:
    return int.from_bytes(raw[at : at + 8], sys.byteorder)


def _remapped_rows(nvml: NvmlLibrary, device: tuple[Any]) -> dict[str, Any]:
    """Pending and failed replacements of bad memory: rows since Ampere, pages before."""
    try:
        _, _, pending, failure = nvml.get_numbers("nvmlDeviceGetRemappedRows", device, 4)
    except NvmlError as error:
        if error.code == GPU_IS_LOST:
            raise
        retired = read_field(lambda: bool(nvml.get_number("nvmlDeviceGetRetiredPagesPendingStatus", device)))
        gap = {"gap": error.message}
        return {"remap_pending": gap if isinstance(retired, dict) else retired, "remap_failure": gap}
    return {"remap_pending": bool(pending), "remap_failure": bool(failure)}


def _field_value(nvml: NvmlLibrary, device: tuple[Any], field: int) -> int:
    """One unsigned number of nvmlDeviceGetFieldValues.

    nvmlFieldValue_t: fieldId and scopeId (4 bytes each), timestamp and latency (8 each), type and return code
    (4 each), value (8).
    """
    buffer = nvml.ctypes.create_string_buffer(field.to_bytes(4, sys.byteorder), 40 + 64)
    nvml.call_newest("nvmlDeviceGetFieldValues", *device, nvml.ctypes.c_int(1), buffer)
    kind, code = (int.from_bytes(buffer.raw[at : at + 4], sys.byteorder) for at in (24, 28))
    if code:
        raise NvmlError(code, nvml.error_text(code))
    return int.from_bytes(buffer.raw[32 : 36 if kind == 1 else 40], sys.byteorder)


def _count_ecc_errors(nvml: NvmlLibrary, device: tuple[Any]) -> int:
    """Uncorrected errors since the driver was loaded."""
    uncorrected, volatile = nvml.ctypes.c_int(1), nvml.ctypes.c_int(0)
    return nvml.get_number("nvmlDeviceGetTotalEccErrors", device, uncorrected, volatile, kind="c_ulonglong")


def _throttle_reasons(nvml: NvmlLibrary, device: tuple[Any]) -> list[str]:
    names = "nvmlDeviceGetCurrentClocksEventReasons nvmlDeviceGetCurrentClocksThrottleReasons"
    bits = nvml.get_number(names, device, kind="c_ulonglong")
    return [name for bit, name in enumerate(_THROTTLE_BITS) if bits >> bit & 1]


def _count_nvlinks(nvml: NvmlLibrary, device: tuple[Any]) -> int:
    """Number of active NVLinks. An error on the first is raised; a later one ends the list."""
    active = 0
    for link in range(_MAX_NVLINKS):
        try:
            active += nvml.get_number("nvmlDeviceGetNvLinkState", device, nvml.ctypes.c_uint(link)) == 1
        except NvmlError as error:
            if link == 0 or error.code == GPU_IS_LOST:
                raise
            break
    return active


def _mig_devices(nvml: NvmlLibrary, device: tuple[Any]) -> list[dict[str, Any]]:
    if not nvml.get_numbers("nvmlDeviceGetMigMode", device, 2)[0]:
        return []
    found = []
    for index in range(min(nvml.get_number("nvmlDeviceGetMaxMigDeviceCount", device), 64)):
        part = nvml.ctypes.c_void_p()
        try:
            nvml.call_newest(
                "nvmlDeviceGetMigDeviceHandleByIndex", *device, nvml.ctypes.c_uint(index), nvml.ctypes.byref(part)
            )
        except NvmlError as error:
            if error.code == GPU_IS_LOST:
                raise
            continue  # an empty slot
        found.append(_mig_device(nvml, (part,)))
    return found


def _mig_device(nvml: NvmlLibrary, device: tuple[Any]) -> dict[str, Any]:
    return {
        "uuid": read_field(lambda: nvml.get_text("nvmlDeviceGetUUID", *device)),
        "name": read_field(lambda: nvml.get_text("nvmlDeviceGetName", *device)),
        "memory_total": read_field(lambda: _memory_info(nvml, device)["memory_total"]),
    }


def _compute_processes(nvml: NvmlLibrary, device: tuple[Any]) -> list[dict[str, Any]]:
    """pid and used bytes of each compute process; used is None where the driver does not report it."""
    base, slots = "nvmlDeviceGetComputeRunningProcesses", _PROCESS_SLOTS
    while True:
        count = nvml.ctypes.c_uint(slots)
        buffer = nvml.ctypes.create_string_buffer(b"\xa5" * (slots * 32), slots * 32)
        try:
            nvml.call_newest(f"{base}_v3 {base}_v2 {base}", *device, nvml.ctypes.byref(count), buffer)
            break
        except NvmlError as error:
            if error.code != INSUFFICIENT_SIZE or slots > 1 << 16:
                raise
            slots *= 4
    return _parse_process_rows(buffer.raw, min(count.value, slots))


def _parse_process_rows(raw: bytes, count: int) -> list[dict[str, Any]]:
    # The same function has had rows of 16, 24 and 32 bytes in different drivers: the bytes written show which.
    written = len(raw.rstrip(b"\xa5"))
    size = next((s for s in (16, 24, 32) if s * count >= written), 32)
    rows = [raw[at : at + 16] for at in range(0, count * size, size)]
    used = [_read_u64(row, 8) for row in rows]
    pids = [_read_u64(row[:4], 0) for row in rows]
    return [{"pid": p, "used": None if u == _NOT_AVAILABLE else u} for p, u in zip(pids, used, strict=True)]
