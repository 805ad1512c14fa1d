"""The libcuda that programs in WSL would load is not the Windows driver's.

## What it checks
Whether the loader in WSL finds the libcuda of the Windows driver in /usr/lib/wsl/lib. Containers in WSL get
the same libraries under another path, which is accepted.

## Why it matters
CUDA finds no device, although Windows shows it. A Linux driver installed inside WSL, often through the
packages ``cuda`` or ``cuda-drivers``, comes first and looks for a kernel module that WSL does not have. If no
libcuda is found, WSL's loader configuration was removed or ldconfig has not run.

## How to fix
Remove the Linux driver from WSL, run ldconfig, and update the Windows driver if it is old. Install toolkits
with the package cuda-toolkit, which has no driver.

## References
- NVIDIA, CUDA on WSL User Guide
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, UnknownFactError, make_finding
from gpuready.rules import gpu_health

CODE = "DRV012"
SEVERITY = "error"
READS = ("os.wsl", "driver.wsl", "libcuda.path", "driver.library", "driver.error", "gpu.count", "job.wants")
REQUIRED_FACTS = ("gpu.count",)
BROKEN = {
    "os.wsl": True,
    "driver.wsl": True,
    "libcuda.path": "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
    "driver.library": "535.183.01",
}
HEALTHY = BROKEN | {"libcuda.path": "/usr/lib/wsl/lib/libcuda.so.1", "driver.library": None}
WSL_LIBRARIES = "/usr/lib/wsl/"
NO_LIBRARY = 12
"""NVML error code if its library is missing, which DRV004 reports."""


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if gpu_health.is_not_applicable(facts, contract, "os.wsl", "libcuda.path") or not facts.value("os.wsl"):
        return None
    if facts.value_if_known("driver.wsl") is False or facts.value_if_known("gpu.count") == 0:
        return None
    path = facts.value("libcuda.path")
    if path is None and facts.value_if_known("driver.error") == NO_LIBRARY:
        return None
    if path is not None and _is_windows_libcuda(facts, str(path)):
        return None
    what = "finds no libcuda" if path is None else f"finds the libcuda of a Linux driver, {path}"
    return make_finding(
        f"in WSL the loader {what}",
        found=(facts.fact("libcuda.path"), facts.fact("os.wsl")),
        needs=(Requirement("libcuda.path", f"{WSL_LIBRARIES}lib/libcuda.so.1", cite="NVIDIA, CUDA on WSL User Guide"),),
        so="CUDA finds no device, although Windows shows it",
        fix=(
            *(
                ()
                if path is None
                else (FixStep("remove the Linux driver from WSL; the Windows driver is enough", note="needs root"),)
            ),
            FixStep("make sure that /etc/ld.so.conf.d names /usr/lib/wsl/lib, and run ldconfig", note="needs root"),
        ),
    )


def _is_windows_libcuda(facts: Facts, path: str) -> bool:
    """Return whether libcuda is the one of Windows, by its path or by its name, which has no version."""
    library = facts.fact("driver.library")
    if path.startswith(WSL_LIBRARIES) or library.source.startswith(WSL_LIBRARIES):
        return True
    if library.gap and not library.source:
        raise UnknownFactError(library)
    return bool(library.gap)
