"""No GPU is here that the framework could use.

The contract is for machines with an accelerator, and this machine was seen to have none: no NVIDIA display
or 3D controller on the PCI bus, no device node, no driver module, and no accelerator of another platform
that the contract takes. Or there are GPUs, and CUDA would show none of them.

Where to look: is this the right machine, or a login node without GPUs? Was the container started with its
GPUs (``docker run --gpus all``; in Kubernetes a limit on ``nvidia.com/gpu``)? Has the virtual machine been
given a card, and the Slurm job a ``--gres=gpu:…``?

A GPU that is there while its driver does not answer is another matter (DRV004), and so is an environment
variable that hides every GPU (GPU002). A job that asks for ``cpu`` needs no GPU, and this rule then rests.
"""

from __future__ import annotations

from tarmac.model import Finding, Need, Step
from tarmac.rules import cards, job, needs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tarmac.model import Contract, Facts

CODE = "GPU001"
SEVERITY = "error"
READS = (
    "gpu.count",
    "gpu.visible",
    "visibility.cuda",
    "gpu.pci_count",
    "platform.name",
    "os.container",
    "job.wants",
)
SIGNS = ("No CUDA GPUs are available", "no CUDA-capable device is detected", "No CUDA/mps/npu device found")
BROKEN = {"gpu.count": 0, "gpu.visible": (), "gpu.pci_count": 0, "platform.name": "cpu", "os.container": None}
HEALTHY = {
    "gpu.count": 1,
    "gpu.visible": (0,),
    "gpu.pci_count": 1,
    "platform.name": "cuda",
    "os.container": None,
}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if cards.platforms(contract) == [] or job.asks(facts, "cpu"):
        return None
    if "cuda" in contract.platforms and facts.value("gpu.count"):
        # What the variable hides is GPU002's to tell.
        if facts.value("gpu.visible") or facts.known("visibility.cuda"):
            return None
        return _finding(facts, contract, "none of the GPUs is shown by CUDA", ("gpu.count", "gpu.visible"))
    if cards.elsewhere(facts, contract):
        return None
    return _finding(facts, contract, _says(facts, contract), ("gpu.count", "gpu.pci_count", "platform.name"))


def _says(facts: Facts, contract: Contract) -> str:
    on_bus = facts.known("gpu.pci_count")
    if "cuda" not in contract.platforms:
        return f"there is no device here for {' or '.join(cards.platforms(contract))}"
    return (
        f"the driver lists no GPU, though the PCI bus has {on_bus}"
        if on_bus
        else "there is no NVIDIA GPU here"
    )


def _finding(facts: Facts, contract: Contract, says: str, keys: tuple[str, ...]) -> Finding:
    cite = f"{contract.name}, platforms: {', '.join(contract.platforms)}"
    return Finding(
        CODE,
        SEVERITY,
        says,
        found=tuple(facts.fact(key) for key in keys),
        needs=needs.stated(facts, contract, "gpu.count") or (Need("gpu.count", ">=1", cite=cite),),
        so="torch.cuda.is_available() is False; the job runs on the CPU or not at all",
        fix=tuple(_ways_out(facts, contract)),
    )


def _ways_out(facts: Facts, contract: Contract) -> list[Step]:
    kind = "an NVIDIA GPU" if "cuda" in contract.platforms else "such a device"
    elsewhere = Step(f"run on a machine with {kind}")
    if facts.known("os.container") in (None, "none"):
        return [elsewhere]
    inside = Step("start the container with its GPUs: docker run --gpus all", note="outside the container")
    return [inside, elsewhere]
