"""The program was not started by a launcher.

A program for several GPUs learns its place from variables that its launcher sets: RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and
MASTER_PORT. It was started with plain python, or through a shell, sudo or a container that dropped them, so that the group cannot be made.

Start it with torchrun, accelerate launch, deepspeed or the command of its framework, also for one GPU. A launcher that disagrees with
Slurm is RUN004.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "RUN002"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    "Error initializing torch.distributed using env:// rendezvous: environment variable {name} expected, but not set",
    "using env:// rendezvous: environment variable {name} expected, but not set",
    {"says": "KeyError: 'LOCAL_RANK'"},
    {"says": "KeyError: 'WORLD_SIZE'"},
    {"says": "KeyError: 'MASTER_ADDR'"},
    {"says": "KeyError: 'MASTER_PORT'"},
    {"says": "KeyError: 'RANK'", "in": "exception"},
    {"says": "KeyError: 'LOCAL_WORLD_SIZE'"},
    {"says": "KeyError: 'GROUP_RANK'"},
    "Using fsdp only works in distributed training",
    "--sharded_ddp only works in distributed training",
    "Using --sharded_ddp xxx or --fsdp only works in distributed training",
    "Please use `FORCE_TORCHRUN=1` to launch DeepSpeed training",
    "Please launch distributed training with `llamafactory-cli` or `torchrun`",
    "Could not find 'RANK' in the torch environment",
    "in the torch environment, visit https://www.colossalai.org",
    {"says": "No module named 'mpi4py'", "with": ("deepspeed", "mpi_discovery", "MPI environment"), "as": "clue"},
    {"says": "Not using the DeepSpeed or dist launchers, attempting to detect MPI environment", "as": "clue"},
    {"says": "DeepSpeed backend not set, please initialize it using init_process_group"},
    {"says": "Default process group has not been initialized", "in": "exception", "as": "clue"},
    {"says": "torch.distributed is not initialized", "in": "exception", "as": "clue"},
    {"says": "world size (1) is not divisible by", "as": "root"},
    {"says": "world_size (1) is not divisible by", "as": "root"},
    {
        "says": "invalid literal for int() with base 10: ''",
        "with": ("RANK", "WORLD_SIZE", "MASTER_PORT"),
        "in": "exception",
    },
    {
        "says": "int() argument must be a string{}not 'NoneType'",
        "with": ("RANK", "WORLD_SIZE", "MASTER_PORT"),
        "in": "exception",
    },
    "raise _env_error(",
    {"says": "_get_env_or_raise(", "as": "clue"},
    {"says": "environment variable RANK expected, but not set"},
    {"says": "environment variable {name} expected, but not set"},
    {"says": "KeyError: 'OMPI_COMM_WORLD_"},
    {"says": "PMI_RANK", "in": "exception"},
    {
        "says": "Default process group has not been initialized, please make sure to call init_process_group",
        "as": "clue",
    },
    {"says": "must be launched with torchrun", "in": "exception"},
    {"says": "launch with torchrun", "in": "exception"},
    {"says": "with `torchrun`", "in": "exception"},
    {"says": "using torchrun", "in": "exception"},
    {"says": "with `accelerate launch`", "in": "exception"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
