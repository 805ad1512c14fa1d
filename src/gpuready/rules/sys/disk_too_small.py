"""The disk has less room than the job will want.

An environment with torch and its CUDA libraries takes 6 to 12 GB, the weights of a 7B model 14 GB in 16 bits,
and every checkpoint of full training several times that. A disk that fills up breaks an install in the
middle, leaves half a checkpoint, or stops a run after hours.

The contract's figure counts where it has one: an error if it is required, a warning if it is recommended.
Without one, less than 10 GB is a warning. The disk that is looked at is the one named in the evidence; caches
of models (HF_HOME) and checkpoints may lie on another, and can be put there.
"""

from __future__ import annotations

from gpuready.model import Finding, FixStep, Requirement
from gpuready.rules import contract_needs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts

CODE = "SYS002"
SEVERITY = "error"
READS = ("disk.free", "disk.path", *contract_needs.READS)
PATTERNS = (
    {
        "says": "[Errno 28] No space left on device",
        "without": ("/dev/shm", "shared memory", "shm_open", "/torch_", "nccl-"),
    },
    {
        "says": "No space left on device",
        "without": ("/dev/shm", "shared memory", "shm_open", "/torch_", "nccl-", "NCCL WARN"),
    },
    {"says": "PytorchStreamWriter failed writing file {file}: file write failed"},
    {"says": "PytorchStreamWriter failed writing"},
    {"says": "inline_container.cc:{}] . unexpected pos"},
    {"says": "unexpected pos {} vs", "in": "exception"},
    {"says": "Disk quota exceeded"},
    {"says": "(os error 28)", "without": ("/dev/shm",)},
    {"says": "code: 28, kind: StorageFull"},
    {"says": "basic_ios::clear: iostream error", "in": "exception", "as": "clue"},
    {"says": "Not enough disk space", "in": "exception"},
    {"says": "There is not enough space on the disk"},
    {"says": "not enough free disk space", "as": "clue"},
    {"says": "disk is full", "in": "exception"},
    {"says": "file_system_monitor{}is over {percent}% full", "as": "clue"},
    {"says": "Local disk is full", "in": "exception"},
    {"says": "OutOfDiskError", "in": "exception"},
    {"says": "[Errno 27] File too large"},
)
CONTRACT = {"needs": ({"key": "disk.free", "want": ">=50GB", "cite": "installation guide"},)}
BROKEN = {"disk.free": 20_000_000_000, "disk.path": "/home"}
HEALTHY = {"disk.free": 200_000_000_000, "disk.path": "/home"}
DEFAULT_NEED = Requirement(
    "disk.free", ">=10GB", level="recommended", cite="torch 2.15 and its CUDA libraries take 7 GB"
)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    failed = contract_needs.unmet_needs(facts, contract.requirements_for("disk.free") or (DEFAULT_NEED,))
    if not failed or facts.value("disk.free") is None:
        return None
    return Finding(
        CODE,
        contract_needs.worst_need_severity(failed),
        "the disk has little room",
        found=(facts.fact("disk.free"), facts.fact("disk.path")),
        needs=tuple(failed),
        so="an install, a download or a checkpoint breaks off in the middle",
        fix=(FixStep("free some room, or put HF_HOME and the checkpoints on a larger disk"),),
    )
