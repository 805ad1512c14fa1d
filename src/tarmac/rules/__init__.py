"""The ledger of codes: given out in order, never reused, each with the module that judges it."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from tarmac.model import Rule

LEDGER = {
    "GPU001": "gpu.no_gpu_visible",
    "GPU002": "gpu.visibility_hides_gpus",
    "GPU003": "gpu.visibility_truncates",
    "GPU004": "gpu.capability_not_in_wheel",
    "GPU005": "gpu.capability_below_framework_floor",
    "DRV001": "drv.driver_older_than_wheel",
    "DRV002": "drv.driver_and_library_differ",
    "DRV003": "drv.driver_below_framework_floor",
    "DRV004": "drv.driver_silent",
    "DRV005": "drv.libcuda_is_stub",
    "BLD001": "bld.toolkit_torch_major_differs",
    "BLD002": "bld.toolkit_torch_minor_differs",
    "BLD003": "bld.build_tools_fall_short",
    "PKG001": "pkg.torch_is_cpu_only",
    "PKG002": "pkg.framework_or_torch_missing",
    "PKG003": "pkg.package_outside_pins",
    "PKG004": "pkg.python_outside_range",
    "PKG005": "pkg.accelerate_missing_for_device_map",
    "PKG006": "pkg.half_installed_or_duplicate",
    "PKG007": "pkg.torch_cuda_outside_pins",
    "SYS001": "sys.shm_too_small",
    "SYS002": "sys.disk_too_small",
    "SYS003": "sys.os_unsupported",
    "SYS004": "sys.need_not_met",
    "MEM001": "mem.memory_below_job",
    "MEM002": "mem.memory_held_by_others",
    "CAP001": "cap.bf16_not_native",
    "CAP002": "cap.fp8_not_native",
}


def rule(code: str) -> Rule:
    """The rule behind one code. KeyError where the code was never given out."""
    module = f"tarmac.rules.{LEDGER[code]}"
    return __import__(module, fromlist=("CODE",))  # importlib would cost a millisecond more


def every() -> Iterator[Rule]:
    return (rule(code) for code in LEDGER)


def name(code: str) -> str:
    """``DRV001`` -> ``driver-older-than-wheel``."""
    return LEDGER[code].rpartition(".")[2].replace("_", "-")
