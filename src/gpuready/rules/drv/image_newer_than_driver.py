"""The base image asks for a newer CUDA than the host's driver has.

## What it checks
NVIDIA_REQUIRE_CUDA of the image against the host's driver. It is an error if nothing of that CUDA can start
on the driver: below the minimum of its major release, and no branch or GPU that cuda-compat supports. With a
driver of the same major release but an older minor on GeForce and TITAN cards it is a warning: torch would
run, but the runtime may refuse. If torch is stated, DRV001 is not repeated.

## Why it matters
The container runtime refuses to start the container: ``nvidia-container-cli: requirement error: unsatisfied
condition: cuda>=12.8``. The driver is always the host's.

## How to fix
Use a base image of an older CUDA, or install a newer driver on the host. NVIDIA_DISABLE_REQUIRE=1 turns the
runtime's check off.

## References
- NVIDIA container images for CUDA, NVIDIA_REQUIRE_CUDA
- CUDA Compatibility, Forward Compatibility
"""

from gpuready.catalog import cuda as catalogue
from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding, versions
from gpuready.rules import gpu_health

CODE = "DRV014"
SEVERITY = "error"
READS = ("container.cuda", "container.image", "driver.version", "torch.cuda", "gpu.name", "gpu.visible")
REQUIRED_FACTS = ("container.cuda",)
BROKEN = {"container.cuda": "13.0", "driver.version": "470.42.01", "gpu.visible": (0,), "torch.cuda": None}
HEALTHY = BROKEN | {"driver.version": "580.95.05"}
CITE = "NVIDIA container images for CUDA, NVIDIA_REQUIRE_CUDA; CUDA Compatibility, Forward Compatibility"


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "container.cuda" not in facts or "cuda" not in contract.platforms:
        return None
    cuda, driver = facts.value("container.cuda"), facts.value("driver.version")
    if cuda is None or driver is None:
        return None
    consumer = gpu_health.has_only_consumer_gpus(facts)
    if catalogue.driver_runs_cuda(driver, cuda, compat=True, datacentre=not consumer) is False:
        return None if _torch_has_same_cuda(facts, cuda) else _old_driver_finding(facts, cuda, driver, SEVERITY)
    own = catalogue.newest_cuda_for_driver(driver)
    if consumer and own is not None and versions.major_minor(own) < versions.major_minor(cuda):
        return _old_driver_finding(facts, cuda, driver, "warning")
    return None


def _torch_has_same_cuda(facts: Facts, cuda: str) -> bool:
    """Return whether torch has the same CUDA, so that DRV001 or DRV011 reports it."""
    torch = facts.value_if_known("torch.cuda")
    return bool(torch) and versions.major_version(torch) == versions.major_version(cuda)


def _old_driver_finding(facts: Facts, cuda: str, driver: str, severity: str) -> Finding:
    full = catalogue.release_driver(cuda)[0] or catalogue.minimum_driver(cuda)[0]
    keys = ("container.image", "container.cuda", "driver.version", "gpu.name")
    runs = severity == "warning"
    return make_finding(
        f"the image needs CUDA {cuda}, but the driver is {driver}",
        found=tuple(facts.fact(key) for key in keys if key in facts),
        needs=(Requirement("driver.version", f">={full}", cite=CITE),),
        so=f"the runtime {'may refuse' if runs else 'refuses'} to start the container: unsatisfied condition: cuda>={cuda}",
        fix=(
            FixStep(
                f"use a base image of CUDA {catalogue.newest_cuda_for_driver(driver) or 'that the driver supports'} or older"
            ),
            FixStep(f"install driver {full} or newer on the host", note="needs root"),
        ),
        severity=severity,
    )
