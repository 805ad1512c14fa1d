"""The shared memory of this machine is small.

## What it checks
The size of /dev/shm. In a container, less than 1 GiB is a warning. It is an error only if the framework
requires more.

## Why it matters
DataLoader workers pass their batches through /dev/shm, and NCCL uses it between GPUs without a direct link.
Docker's default of 64 MiB overflows at the first large batch or collective: ``Bus error``, or NCCL's
``unhandled system error``. A single process without workers is not affected.

## How to fix
Start the container with ``--shm-size=16g`` or ``--ipc=host``. In Kubernetes mount an ``emptyDir`` with
``medium: Memory`` on /dev/shm.

## References
- NCCL user guide, Troubleshooting: Runtime and MPI issues
- PyTorch README, Docker image
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import contract_needs

CODE = "SYS001"
SEVERITY = "warning"
READS = ("os.container", "system.shm", *contract_needs.READS)
BROKEN = {"os.container": "docker", "system.shm": 64 << 20}
HEALTHY = {"os.container": "docker", "system.shm": 16 << 30}
DEFAULT_NEED = Requirement(
    "system.shm",
    ">=1GiB",
    level="recommended",
    cite="NCCL user guide, Runtime and MPI issues; PyTorch README, Docker image",
)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    failed = _unmet_shm_needs(facts, contract.requirements_for("system.shm")) or (
        _unmet_shm_needs(facts, (DEFAULT_NEED,)) if _default_need_applies(facts) else []
    )
    if not failed:
        return None
    return make_finding(
        "the shared memory (/dev/shm) is small",
        found=tuple(f for f in (facts.fact("system.shm"), facts.fact("os.container")) if not f.gap),
        needs=tuple(failed),
        so="DataLoader workers fail with Bus error, and NCCL fails between GPUs without a direct link",
        fix=(_enlarge_shm_step(facts), FixStep("load data without workers (num_workers=0)")),
        severity=contract_needs.worst_need_severity(failed),
    )


def _enlarge_shm_step(facts: Facts) -> FixStep:
    """Return the step that enlarges /dev/shm, which depends on the kind of machine."""
    kind = facts.value_if_known("os.container")
    if kind == "kubernetes":
        return FixStep("mount an emptyDir with medium: Memory on /dev/shm", note="in the manifest of the pod")
    if kind in (None, "none") and facts.fact("system.shm").how != "stated":
        return FixStep("make it larger: mount -o remount,size=16g /dev/shm", note="needs root")
    return FixStep("start the container with --shm-size=16g or --ipc=host", note="outside the container")


def _default_need_applies(facts: Facts) -> bool:
    if facts.fact("system.shm").how == "stated":  # a stated size is meant to be judged
        return True
    return facts.value("os.container") not in (None, "none")


def _unmet_shm_needs(facts: Facts, stated: tuple[Requirement, ...]) -> list[Requirement]:
    """Return the unmet needs; empty if there is no /dev/shm."""
    return contract_needs.unmet_needs(facts, stated) if stated and facts.value("system.shm") is not None else []
