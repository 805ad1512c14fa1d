"""What NVML reports about one GPU, field by field; an unavailable field is {"gap": why}.

Memory is in bytes, power in watts, clocks in MHz, temperature in degrees Celsius.
"""

from __future__ import annotations

from gpuready.system.nvml_calls import LOST, TOO_SMALL, Refused, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from gpuready.system.nvml_calls import Nvml

_MODES = ("default", "exclusive_thread", "prohibited", "exclusive_process")
_BRANDS = (
    *("unknown", "quadro", "tesla", "nvs", "grid", "geforce", "titan", "vapps", "vpc", "vcs", "vws"),
    *("cloud_gaming", "quadro_rtx", "nvidia_rtx", "nvidia", "geforce_rtx", "titan_rtx"),
)
_THROTTLE = (
    *("gpu_idle", "application_clocks", "sw_power_cap", "hw_slowdown", "sync_boost"),
    *("sw_thermal", "hw_thermal", "hw_power_brake", "display_clocks"),
)
_LINKS, _PROCESSES, _UNTOLD = 18, 512, (1 << 64) - 1


def field(get: Callable[[], Any]) -> Any:
    """A value, or {"gap": why}. The error of a lost GPU concerns all fields and is raised."""
    try:
        return get()
    except Refused as no:
        if no.code == LOST:
            raise
        return {"gap": no.says}


def gpu(nvml: Nvml, index: int) -> dict[str, Any]:
    """All fields of one GPU; a GPU that is lost or inaccessible has only a gap."""
    handle = nvml.c.c_void_p()
    found: dict[str, Any] = {"index": index}
    try:
        names = "nvmlDeviceGetHandleByIndex_v2 nvmlDeviceGetHandleByIndex"
        nvml.call(names, nvml.c.c_uint(index), nvml.c.byref(handle))
        found["pci"] = field(lambda: _pci(nvml, (handle,)))
        return {**found, **_fields(nvml, (handle,))}
    except Refused as no:
        return {**found, "gap": f"{no.says} (NVML {no.code})"}


def _fields(nvml: Nvml, at: tuple[Any]) -> dict[str, Any]:
    get, number, text = "nvmlDeviceGet", nvml.number, nvml.words_of
    sm = nvml.c.c_int(1)  # the clock of the SMs, in MHz
    memory = _group(lambda: _memory(nvml, at), ("memory_total", "memory_free", "memory_used"))
    remap = _group(lambda: _remapped(nvml, at), ("remap_pending", "remap_failure"))
    return {
        "name": field(lambda: text(f"{get}Name", *at)),
        "uuid": field(lambda: text(f"{get}UUID", *at)),
        **memory,
        "capability": field(
            lambda: "{}.{}".format(*nvml.numbers(f"{get}CudaComputeCapability", at, 2, "c_int"))
        ),
        "mode": field(lambda: _nth(_MODES, number(f"{get}ComputeMode", at))),
        "persistence": field(lambda: bool(number(f"{get}PersistenceMode", at))),
        "mig": field(lambda: bool(nvml.numbers(f"{get}MigMode", at, 2)[0])),
        "mig_devices": field(lambda: _instances(nvml, at)),
        "ecc": field(lambda: bool(nvml.numbers(f"{get}EccMode", at, 2)[0])),
        "ecc_errors": field(lambda: _ecc_errors(nvml, at)),
        **remap,
        "pcie_gen": field(lambda: number(f"{get}CurrPcieLinkGeneration", at)),
        "pcie_width": field(lambda: number(f"{get}CurrPcieLinkWidth", at)),
        "pcie_gen_max": field(lambda: number(f"{get}MaxPcieLinkGeneration", at)),
        "pcie_width_max": field(lambda: number(f"{get}MaxPcieLinkWidth", at)),
        "power_limit": field(lambda: number(f"{get}EnforcedPowerLimit {get}PowerManagementLimit", at) / 1000),
        "power_limit_default": field(lambda: number(f"{get}PowerManagementDefaultLimit", at) / 1000),
        "power_draw": field(lambda: number(f"{get}PowerUsage", at) / 1000),
        "temperature": field(lambda: number(f"{get}Temperature", at, nvml.c.c_int(0))),
        "throttle": field(lambda: _throttle(nvml, at)),
        "clock_sm": field(lambda: number(f"{get}ClockInfo", at, sm)),
        "clock_sm_max": field(lambda: number(f"{get}MaxClockInfo", at, sm)),
        "nvlink": field(lambda: _links(nvml, at)),
        "numa": field(lambda: number(f"{get}NumaNodeId", at)),
        "minor": field(lambda: number(f"{get}MinorNumber", at)),
        "brand": field(lambda: _nth(_BRANDS, number(f"{get}Brand", at))),
        "processes": field(lambda: _processes(nvml, at)),
    }


def _group(get: Callable[[], dict[str, Any]], names: tuple[str, ...]) -> dict[str, Any]:
    """Several fields of one call: all of them, or the same gap for each."""
    found = field(get)
    return found if set(found) == set(names) else dict.fromkeys(names, found)


def _nth(names: tuple[str, ...], number: int) -> str:
    return names[number] if number < len(names) else str(number)


def _pci(nvml: Nvml, at: tuple[Any]) -> str:
    raw = nvml.record("nvmlDeviceGetPciInfo_v3 nvmlDeviceGetPciInfo_v2", at, 68)
    long, short = (words(raw[a:b].partition(b"\0")[0]) for a, b in ((36, 68), (0, 16)))
    return (long or short).lower()


def _memory(nvml: Nvml, at: tuple[Any]) -> dict[str, int]:
    raw = nvml.record("nvmlDeviceGetMemoryInfo", at, 24)
    total, free, used = (_u64(raw, place) for place in (0, 8, 16))
    return {"memory_total": total, "memory_free": free, "memory_used": used}


def _u64(raw: bytes, at: int) -> int:
    import sys

    return int.from_bytes(raw[at : at + 8], sys.byteorder)


def _remapped(nvml: Nvml, at: tuple[Any]) -> dict[str, bool]:
    _, _, pending, failure = nvml.numbers("nvmlDeviceGetRemappedRows", at, 4)
    return {"remap_pending": bool(pending), "remap_failure": bool(failure)}


def _ecc_errors(nvml: Nvml, at: tuple[Any]) -> int:
    """Uncorrected errors since the driver was loaded."""
    uncorrected, volatile = nvml.c.c_int(1), nvml.c.c_int(0)
    return nvml.number("nvmlDeviceGetTotalEccErrors", at, uncorrected, volatile, kind="c_ulonglong")


def _throttle(nvml: Nvml, at: tuple[Any]) -> list[str]:
    names = "nvmlDeviceGetCurrentClocksEventReasons nvmlDeviceGetCurrentClocksThrottleReasons"
    bits = nvml.number(names, at, kind="c_ulonglong")
    return [name for bit, name in enumerate(_THROTTLE) if bits >> bit & 1]


def _links(nvml: Nvml, at: tuple[Any]) -> int:
    """Number of active NVLinks. An error on the first is raised; a later one ends the list."""
    active = 0
    for link in range(_LINKS):
        try:
            active += nvml.number("nvmlDeviceGetNvLinkState", at, nvml.c.c_uint(link)) == 1
        except Refused as no:
            if link == 0 or no.code == LOST:
                raise
            break
    return active


def _instances(nvml: Nvml, at: tuple[Any]) -> list[dict[str, Any]]:
    if not nvml.numbers("nvmlDeviceGetMigMode", at, 2)[0]:
        return []
    found = []
    for index in range(min(nvml.number("nvmlDeviceGetMaxMigDeviceCount", at), 64)):
        part = nvml.c.c_void_p()
        try:
            nvml.call("nvmlDeviceGetMigDeviceHandleByIndex", *at, nvml.c.c_uint(index), nvml.c.byref(part))
        except Refused as no:
            if no.code == LOST:
                raise
            continue  # an empty slot
        found.append(_instance(nvml, (part,)))
    return found


def _instance(nvml: Nvml, at: tuple[Any]) -> dict[str, Any]:
    return {
        "uuid": field(lambda: nvml.words_of("nvmlDeviceGetUUID", *at)),
        "name": field(lambda: nvml.words_of("nvmlDeviceGetName", *at)),
        "memory_total": field(lambda: _memory(nvml, at)["memory_total"]),
    }


def _processes(nvml: Nvml, at: tuple[Any]) -> list[dict[str, Any]]:
    """pid and used bytes of each compute process; used is None where the driver does not report it."""
    base, room = "nvmlDeviceGetComputeRunningProcesses", _PROCESSES
    while True:
        count, buffer = nvml.c.c_uint(room), nvml.c.create_string_buffer(b"\xa5" * (room * 32), room * 32)
        try:
            nvml.call(f"{base}_v3 {base}_v2 {base}", *at, nvml.c.byref(count), buffer)
            break
        except Refused as no:
            if no.code != TOO_SMALL or room > 1 << 16:
                raise
            room *= 4
    return _rows(buffer.raw, min(count.value, room))


def _rows(raw: bytes, count: int) -> list[dict[str, Any]]:
    # The same function has had rows of 16, 24 and 32 bytes in different drivers: the bytes written show which.
    written = len(raw.rstrip(b"\xa5"))
    size = next((s for s in (16, 24, 32) if s * count >= written), 32)
    rows = [raw[at : at + 16] for at in range(0, count * size, size)]
    used = [_u64(row, 8) for row in rows]
    pids = [_u64(row[:4], 0) for row in rows]
    return [{"pid": p, "used": None if u == _UNTOLD else u} for p, u in zip(pids, used, strict=True)]
