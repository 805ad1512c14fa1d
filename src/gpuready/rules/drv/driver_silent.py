"""The driver of a GPU does not answer.

## What it checks
Whether NVML answers on a machine that has an NVIDIA card or a loaded kernel module. Four cases: no module is
loaded (not installed, not built for this kernel, blocked by Secure Boot, or nouveau has the card); the
container has no device files; the driver's libraries are missing; or NVML returns an error, such as missing
permissions, or ``Unknown Error`` in a container that lost its devices when systemd reloaded. DRV002 covers
different versions, GPU001 a machine without a GPU.

## Why it matters
nvidia-smi, NVML and CUDA fail. The GPU is present and cannot be used.

## How to fix
The finding names the case. ``dmesg`` and ``modinfo nvidia`` show why a module does not load; ``ls -l
/dev/nvidia*`` shows permissions.

## References
- NVIDIA Driver Installation Guide
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import gpu_health

CODE = "DRV004"
SEVERITY = "error"
READS = ("driver.error", "driver.says", "driver.version", "gpu.pci_count", "gpu.nodes", "libcuda.path", "os.container")
REQUIRED_FACTS = ("driver.error", "driver.version", "gpu.pci_count")
BROKEN = {
    "driver.error": 9,
    "driver.says": "Driver Not Loaded",
    "driver.version": None,
    "gpu.pci_count": 1,
    "gpu.nodes": (),
    "libcuda.path": None,
    "os.container": None,
}
HEALTHY = BROKEN | {"driver.error": None, "driver.says": None, "driver.version": "580.95.05"}
HEALTHY |= {"gpu.nodes": ({"path": "/dev/nvidia0", "mode": "0666", "uid": 0},), "libcuda.path": "/lib/libcuda.so.1"}

NO_PERMISSION, NO_LIBRARY, MISMATCH = 4, 12, 18
"""NVML errors that do not mean a missing driver."""


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "cuda" not in contract.platforms or facts.fact("driver.version").how == "stated":  # what if it were this one
        return None
    error = facts.value("driver.error")
    why = None if error == MISMATCH else _silence_reason(facts, error)
    if why is None:
        return None
    reason, step = why
    keys = ("gpu.pci_count", "driver.version", "gpu.nodes", "driver.error", "driver.says")
    return make_finding(
        f"the driver does not answer: {reason}",
        found=tuple(f for f in map(facts.fact, keys) if not f.gap),
        needs=(Requirement("driver.version", "*", cite="NVIDIA Driver Installation Guide"),),
        so="nvidia-smi, NVML and CUDA fail; the GPU cannot be used",
        fix=(step,),
    )


def _silence_reason(facts: Facts, error: int | None) -> tuple[str, FixStep] | None:
    """Return the first problem the facts show, in the order in which a driver starts."""
    container = gpu_health.is_in_container(facts)
    module, nodes = facts.fact("driver.version"), facts.value_if_known("gpu.nodes")
    if facts.value_if_known("gpu.pci_count") and module.value is None and not module.gap and not nodes:
        return "no kernel module is loaded", FixStep("install the NVIDIA driver for this kernel", note="needs root")
    if nodes == () and module.value is not None and container:
        return "the container has no GPU devices", FixStep("start the container with its GPUs: docker run --gpus all")
    if error == NO_LIBRARY:
        return _missing_library_reason(facts, container)
    if error == NO_PERMISSION:
        return "no permission", FixStep("let this user open /dev/nvidia*", note="needs root")
    if error is None:
        return None
    if container:
        return f"NVML error {error}", FixStep("restart the container; it has lost its devices")
    return f"NVML error {error}", FixStep("read the NVRM lines of dmesg, then load the module or reboot")


def _missing_library_reason(facts: Facts, container: bool) -> tuple[str, FixStep] | None:
    """Report a missing libcuda, without which nothing runs; a missing NVML alone does no harm."""
    path = facts.fact("libcuda.path")
    if path.gap or path.value is not None:
        return None
    if container:
        return "its libraries are not in the container", FixStep(
            "start the container with the NVIDIA runtime and NVIDIA_DRIVER_CAPABILITIES=compute,utility"
        )
    return "its libraries are not installed", FixStep("install the libraries of the same driver", note="needs root")
