"""The shared memory of this machine is small.

/dev/shm is where processes on one machine share data: the workers of a PyTorch DataLoader hand over their
batches there, and NCCL its buffers between GPUs without a direct link. Docker gives a container 64 MiB of it
unless told otherwise, which the first large batch or the first collective overflows: ``Bus error``, or NCCL's
``unhandled system error``, with nothing in the message that leads back here.

It is a warning in a container with less than 1 GiB; a single process without workers does not notice. It is
an error only where the contract requires more. Start the container with ``--shm-size=16g`` or ``--ipc=host``;
in Kubernetes mount an ``emptyDir`` with ``medium: Memory`` on /dev/shm.
"""

from __future__ import annotations

from gpuready.model import Finding, FixStep, Requirement
from gpuready.rules import contract_needs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts

CODE = "SYS001"
SEVERITY = "warning"
READS = ("os.container", "system.shm", *contract_needs.READS)
PATTERNS = (
    "NCCL WARN Error: failed to extend /dev/shm/nccl-{} to {bytes} bytes",
    "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-{}(size {bytes})",
    {"says": "NCCL WARN Error while creating shared memory segment", "in": "nccl"},
    {"says": "NCCL WARN Error while attaching to shared memory segment", "in": "nccl"},
    {"says": "NCCL WARN Unable to allocate shared memory ({bytes} bytes)"},
    {"says": "NCCL WARN Call to posix_fallocate failed"},
    {"says": "NCCL WARN {}posix_fallocate failed : No space left on device"},
    {"says": "Error while creating shared memory segment /dev/shm/nccl"},
    {"says": "failed to extend /dev/shm/nccl"},
    "This might be caused by insufficient shared memory (shm)",
    "It is possible that dataloader's workers are out of shared memory",
    "is killed by signal: Bus error",
    "unable to allocate shared memory(shm) for file",
    {"says": "unable to write to file </torch_", "with": ("No space left", "(28)")},
    {"says": "unable to write to file </torch_", "as": "clue"},
    {"says": "unable to resize file </torch_"},
    {"says": "unable to mmap {bytes} bytes from file </torch_", "as": "clue"},
    {"says": "unable to open shared memory object", "without": ("Too many open files",), "as": "clue"},
    {"says": "No space left on device: '/dev/shm"},
    {
        "says": "[Errno 28] No space left on device",
        "with": (
            "shared_memory.py",
            "SemLock",
            "multiprocessing/synchronize.py",
            "/dev/shm",
            "multiprocessing/heap.py",
            "posixshmem",
        ),
    },
    {"says": "insufficient shared memory", "as": "clue"},
    {"says": "derived: a process was killed by signal 7", "in": "derived", "as": "clue"},
    {"says": "Signal 7 (SIGBUS) received by PID", "as": "clue"},
    {"says": "died with <Signals.SIGBUS: 7>", "as": "clue"},
    {"says": "Bus error (core dumped)", "as": "clue"},
    {"says": "Fatal Python error: Bus error", "as": "clue"},
    {"says": "Caught signal 7 (Bus error: nonexistent physical address)", "as": "clue"},
)
BROKEN = {"os.container": "docker", "system.shm": 64 << 20}
HEALTHY = {"os.container": "docker", "system.shm": 16 << 30}
DEFAULT_NEED = Requirement(
    "system.shm",
    ">=1GiB",
    level="recommended",
    cite="NCCL user guide, troubleshooting: shared memory; PyTorch README, Docker image",
)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    failed = _unmet_shm_needs(facts, contract.requirements_for("system.shm")) or (
        _unmet_shm_needs(facts, (DEFAULT_NEED,)) if _default_need_applies(facts) else []
    )
    if not failed:
        return None
    return Finding(
        CODE,
        contract_needs.worst_need_severity(failed),
        "the shared memory in /dev/shm is small",
        found=tuple(f for f in (facts.fact("system.shm"), facts.fact("os.container")) if not f.gap),
        needs=tuple(failed),
        so="DataLoader workers die of a bus error, and NCCL fails between GPUs without a direct link",
        fix=(_enlarge_shm_step(facts), FixStep("load data without workers (num_workers=0)")),
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
