"""No GPU is here that the framework could use.

## What it checks
Whether this machine has an accelerator of a platform that the framework supports. It fires when there is no
NVIDIA controller on the PCI bus, no device node and no driver module, and no other supported accelerator;
when the PCI bus has NVIDIA cards but the driver lists none; or when CUDA would show none of the GPUs. A job
that asks for ``cpu`` is not checked. See also DRV004 (the driver does not answer) and GPU002 (a variable
hides all GPUs).

## Why it matters
``torch.cuda.is_available()`` is False. The job runs on the CPU or fails to start.

## How to fix
Run on a machine with a GPU; a login node usually has none. Start the container with its GPUs (``docker run
--gpus all``; in Kubernetes a limit on ``nvidia.com/gpu``). Request GPUs from Slurm (``--gres=gpu:1``). If the
PCI bus has cards that the driver does not list, ``dmesg | grep NVRM`` says why: the card is too old for this
driver branch, needs the open kernel modules, or failed to start.

## References
- NVIDIA driver README, Supported NVIDIA GPU Products (supportedchips.html)
- NVIDIA container toolkit, user guide
"""

from gpuready.catalog import cuda as catalogue
from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding, versions
from gpuready.rules import contract_needs, gpu_health, job_request, visible_gpus

CODE = "GPU001"
SEVERITY = "error"
READS = (
    "gpu.count",
    "gpu.visible",
    "visibility.cuda",
    "gpu.pci_count",
    "platform.name",
    "driver.version",
    "os.container",
    "job.wants",
)
BROKEN = {"gpu.count": 0, "gpu.visible": (), "gpu.pci_count": 0, "platform.name": "cpu", "os.container": None}
HEALTHY = {"gpu.count": 1, "gpu.visible": (0,), "gpu.pci_count": 1, "platform.name": "cuda", "os.container": None}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if visible_gpus.accelerator_platforms(contract) == [] or job_request.job_asks_for(facts, "cpu"):
        return None
    if "cuda" in contract.platforms and facts.value("gpu.count"):
        # GPU002 reports what the variable hides.
        if facts.value("gpu.visible") or facts.value_if_known("visibility.cuda"):
            return None
        return _no_gpu_finding(facts, contract, "CUDA shows none of the GPUs", ("gpu.count", "gpu.visible"))
    if visible_gpus.has_other_accelerator(facts, contract):
        return None
    return _no_gpu_finding(
        facts, contract, _describe_absence(facts, contract), ("gpu.count", "gpu.pci_count", "platform.name")
    )


def _describe_absence(facts: Facts, contract: Contract) -> str:
    on_bus = facts.value_if_known("gpu.pci_count")
    if "cuda" not in contract.platforms:
        return f"no device for {' or '.join(visible_gpus.accelerator_platforms(contract))}"
    return f"the driver lists no GPU, but the PCI bus has {on_bus}" if on_bus else "no NVIDIA GPU found"


def _no_gpu_finding(facts: Facts, contract: Contract, message: str, keys: tuple[str, ...]) -> Finding:
    cite = f"{contract.name}, platforms: {', '.join(contract.platforms)}"
    return make_finding(
        message,
        found=tuple(facts.fact(key) for key in keys),
        needs=contract_needs.stated_needs(facts, contract, "gpu.count")
        or (Requirement("gpu.count", ">=1", cite=cite),),
        so=_no_gpu_consequence(facts, contract),
        fix=tuple(_no_gpu_steps(facts, contract)),
    )


def _no_gpu_consequence(facts: Facts, contract: Contract) -> str:
    here = facts.value_if_known("platform.name")
    if here in visible_gpus.OTHER_PLATFORMS:  # their torch may report itself as CUDA
        return f"{contract.framework} does not support the accelerators of this machine ({here})"
    return "torch.cuda.is_available() is False; the job runs on the CPU or not at all"


def _no_gpu_steps(facts: Facts, contract: Contract) -> list[FixStep]:
    kind = "an NVIDIA GPU" if "cuda" in contract.platforms else "such a device"
    elsewhere = FixStep(f"run on a machine with {kind}", safety="elsewhere")
    if gpu_health.is_in_container(facts):  # a container sees the bus, whatever GPUs it has
        inside = FixStep("start the container with its GPUs: docker run --gpus all", note="outside the container")
        return [inside, elsewhere]
    ignored = (
        "cuda" in contract.platforms and facts.value_if_known("gpu.pci_count") and not facts.value_if_known("gpu.count")
    )
    return _ignored_gpu_steps(facts) if ignored else [elsewhere]


def _ignored_gpu_steps(facts: Facts) -> list[FixStep]:
    """Return steps for cards on the bus that the driver ignores."""
    look = FixStep("find the reason in the kernel log: dmesg | grep NVRM", note="needs root")
    driver, (last, _) = facts.value_if_known("driver.version"), catalogue.last_driver_branch("7.0")
    if not driver or not last or versions.major_version(driver) <= last:
        return [look]
    does = f"for Volta and older install driver branch {last}, the last that supports them"
    return [look, FixStep(does, note="needs root")]
