"""The PCI bus has more NVIDIA GPUs than the driver lists.

## What it checks
The number of NVIDIA GPUs on the PCI bus against the number that the driver lists. It is a warning, because
the listed GPUs work. It is not checked in a container, a sandbox, a scheduler job or WSL, or with more than
sixteen devices (vGPU virtual functions). GPU001 covers no GPU at all, GPU013 a lost GPU.

## Why it matters
The job runs on fewer GPUs than the machine has. The driver may have failed to start the card (``RmInitAdapter
failed``), may be too old or too new for it, or another driver holds the card: nouveau, or vfio-pci for a
virtual machine.

## How to fix
Read the NVRM lines of ``dmesg``, and check which driver holds the card with ``lspci -k -d 10de:``.

## References
- NVIDIA driver README, Supported NVIDIA GPU Products (supportedchips.html)
- lspci(8)
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import gpu_health

CODE = "GPU014"
SEVERITY = "warning"
SCHEDULERS = (
    *("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "COBALT_JOBID", "SGE_TASK_ID", "OAR_JOB_ID"),
    *("_CONDOR_SLOT", "KUBERNETES_SERVICE_HOST"),
)
"""Environment variables of jobs that may have only some of the GPUs."""

ACCESS_LIMITS = ("os.container", "os.sandbox", "driver.wsl", *(f"env.{name}" for name in SCHEDULERS))
READS = ("gpu.count", "gpu.pci_count", "env.names", "gpu.mig", "job.wants", *ACCESS_LIMITS)
REQUIRED_FACTS = ("gpu.count",)
BROKEN = {
    "gpu.count": 7,
    "gpu.pci_count": 8,
    "os.container": None,
    "os.sandbox": None,
    "driver.wsl": False,
    "env.names": (),
}
HEALTHY = BROKEN | {"gpu.count": 8}
MAX_GPUS = 16


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if gpu_health.is_not_applicable(facts, contract, "gpu.count", "gpu.pci_count", "env.names"):
        return None
    if facts.value_if_known("driver.wsl"):  # the PCI bus belongs to Windows
        return None
    listed, there = facts.value("gpu.count"), facts.value("gpu.pci_count")
    if not listed or there is None or not listed < there <= MAX_GPUS or _access_may_be_limited(facts):
        return None
    return make_finding(
        f"the PCI bus has {there} NVIDIA GPUs and the driver lists {listed}",
        found=(facts.fact("gpu.pci_count"), facts.fact("gpu.count")),
        needs=(Requirement("gpu.count", f"=={there}", level="recommended", cite="what the PCI bus shows"),),
        so=f"CUDA sees {listed} of {there} GPUs",
        fix=(
            FixStep("read the NVRM lines of dmesg: they name the card and the reason", note="needs root"),
            FixStep("check which driver uses the card: lspci -k -d 10de:"),
        ),
    )


def _access_may_be_limited(facts: Facts) -> bool:
    """Return whether this process may have access to only some of the GPUs."""
    if "on" in (facts.value_if_known("gpu.mig") or ()):
        return True
    return any(facts.value(key) not in (None, False, "none") for key in ACCESS_LIMITS)
