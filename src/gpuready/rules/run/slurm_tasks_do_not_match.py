"""The tasks of Slurm do not match the launcher.

Slurm starts as many tasks as --ntasks says, and the launcher or trainer counts on its own number of processes. Where both count,
they must agree: Lightning reads SLURM_NTASKS even when the script was started by hand inside an allocation, srun starts a launcher
once for every task, and a step asks for more than the job was given.

Give --ntasks-per-node the number of processes that the trainer starts (or 1 where torchrun starts them), start with srun, or hide the
SLURM_ variables from an interactive run. A job that reached its time limit is RUN005.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "RUN004"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    "in your SLURM bash script, but this variable is not supported",
    "in Lightning, but the number of tasks per node configured in SLURM",
    "in Lightning, but the number of nodes configured in SLURM",
    "the number of tasks per node configured in SLURM",
    {"says": "You set {} in SLURM{}does not match"},
    "More processors requested than permitted",
    "Unable to create step for job {job}: Requested node configuration is not available",
    "srun: fatal: SLURM_MEM_PER_CPU, SLURM_MEM_PER_GPU, and SLURM_MEM_PER_NODE are mutually exclusive",
    "srun: error: CPU binding outside of job step allocation",
    {"says": "Unable to satisfy cpu bind request"},
    {"says": "srun: Warning: can't run {tasks} processes on {nodes} nodes", "as": "clue"},
    {"says": "srun: warning: can't run {tasks} processes on {nodes} nodes", "as": "clue"},
    {"says": "KeyError: 'SLURM_", "in": "exception"},
    "in the SLURM environment, visit https://www.colossalai.org",
    "Could not find 'SLURM_",
    {"says": "There are not enough slots available in the system to satisfy the", "as": "root"},
    {"says": 'The application appears to have been direct launched using "srun"', "as": "root"},
    {"says": "SLURM job {} but the number of processes", "as": "clue"},
    {"says": "The `srun` command is available on your system but is not used", "as": "clue"},
    {"says": "SLURM_NTASKS_PER_NODE", "in": "exception"},
    {"says": "list index out of range", "in": "exception", "with": ("parallel_devices[self.local_rank]",)},
    {"says": "world_size {} does not match SLURM_NTASKS", "as": "root"},
    "should not be specified with SLURM",
    {"says": "NCCL error in: {}, invalid argument, NCCL version", "as": "clue", "also": ("srun: error",)},
    {"says": "SLURM_NTASKS{}does not match"},
    {"says": "srun: error: Unable to create step for job"},
    {"says": "srun: error: Unable to confirm allocation"},
    {"says": "Invalid rank{}SLURM", "in": "exception"},
    {"says": "SLURM_PROCID", "in": "exception"},
    {"says": "SLURM_LOCALID", "in": "exception"},
    {"says": "SLURM_JOB_NODELIST", "in": "exception"},
    {"says": "SLURM_NODELIST", "in": "exception"},
    {"says": "OMPI was not built with SLURM's PMI"},
    {"says": "srun: error: Invalid generic resource (gres) specification"},
    {
        "says": "You requested gpu: {...}But your machine only has: {have}",
        "also": ("SLURM_", "srun", "slurmstepd", "SLURMEnvironment", "slurm_environment.py"),
    },
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
