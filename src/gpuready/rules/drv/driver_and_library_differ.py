"""The loaded driver module and the driver's libraries have different versions.

## What it checks
The version of the loaded NVIDIA kernel module against the driver's libraries (libcuda, libnvidia-ml). They
must be identical. A cuda-compat library and the WSL driver differ on purpose and are not reported.

## Why it matters
nvidia-smi says ``Driver/library version mismatch``, NVML returns error 18, CUDA error 803 or 804. No GPU can
be used. It happens when a package update, often an unattended one, replaces the libraries while the old
module stays loaded, or when a container image brings its own driver libraries.

## How to fix
Reboot, or stop every program on the GPUs and reload the nvidia modules. Hold the driver packages at one
version to prevent it. In a container, remove the driver libraries from the image.

## References
- NVML API, NVML_ERROR_LIB_RM_VERSION_MISMATCH
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, UnknownFactError, make_finding, versions
from gpuready.rules import gpu_health

CODE = "DRV002"
SEVERITY = "error"
READS = ("driver.version", "driver.library", "driver.error", "driver.compat", "driver.wsl", "gpu.count", "os.container")
REQUIRED_FACTS = ("driver.version", "driver.error")
BROKEN = {"driver.version": "535.161.08", "driver.library": "535.183.01", "driver.error": None}
HEALTHY = {"driver.version": "535.183.01", "driver.library": "535.183.01", "driver.error": None, "gpu.count": 1}

MISMATCH = 18
"""NVML error code if kernel module and library differ."""


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "cuda" not in contract.platforms:
        return None
    if facts.value_if_known("driver.error") != MISMATCH and _versions_agree(facts):
        return None
    module = facts.value_if_known("driver.version")
    want = f"=={module}" if module else "*"
    return make_finding(
        "the loaded driver module and the driver's libraries have different versions",
        found=tuple(facts.fact(key) for key in ("driver.version", "driver.library", "driver.error")),
        needs=(Requirement("driver.library", want, cite="NVML API, NVML_ERROR_LIB_RM_VERSION_MISMATCH"),),
        so="NVML and CUDA do not start; no GPU can be used until the versions agree",
        fix=_version_mismatch_steps(facts),
    )


def _versions_agree(facts: Facts) -> bool:
    module = facts.value("driver.version")
    if module is None or facts.value_if_known("driver.wsl") or facts.value_if_known("driver.compat"):
        return True
    library = facts.fact("driver.library")
    if library.gap:
        # NVML starts only if both agree, so a working NVML decides if the file name has no version.
        if facts.value_if_known("gpu.count") and not facts.fact("driver.error").gap:
            return True
        raise UnknownFactError(library)
    if library.value is None:
        return True
    return versions.compare_versions(module, library.value) == 0


def _version_mismatch_steps(facts: Facts) -> tuple[FixStep, ...]:
    if gpu_health.is_in_container(facts):
        return (FixStep("remove the driver's libraries from the image; the container runtime adds the host's"),)
    return (
        FixStep("reboot, which loads the module of the libraries' version", note="needs root"),
        FixStep("stop every program on the GPUs and reload the nvidia modules", note="needs root"),
    )
