"""A debugging variable is set, which slows every job.

## What it checks
Whether CUDA_LAUNCH_BLOCKING=1, TORCH_DISTRIBUTED_DEBUG=DETAIL, NCCL_DEBUG=TRACE or
PYTORCH_NO_CUDA_MEMORY_CACHING is set. It is information. CUDA_LAUNCH_BLOCKING is not reported if the job asks
for determinism.

## Why it matters
The CPU waits for each kernel, every collective is checked on all ranks, each call is logged, or each tensor
is allocated by the driver. The results are the same, up to several times slower.

## How to fix
Unset the variables when debugging is done.

## References
- CUDA Programming Guide, 5.2 CUDA Environment Variables
- torch.distributed, debugging
- NCCL user guide, NCCL_DEBUG
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import environment_variables, job_request, visible_gpus

CODE = "SYS018"
SEVERITY = "info"
READS = ("env.*", "job.wants")
REQUIRED_FACTS = (
    "env.CUDA_LAUNCH_BLOCKING", "env.TORCH_DISTRIBUTED_DEBUG", "env.NCCL_DEBUG", "env.PYTORCH_NO_CUDA_MEMORY_CACHING",
)  # fmt: skip
BROKEN = {"env.names": ("CUDA_LAUNCH_BLOCKING",), "env.CUDA_LAUNCH_BLOCKING": "1"}
HEALTHY = BROKEN | {"env.CUDA_LAUNCH_BLOCKING": "0"}
CITES = {
    "CUDA_LAUNCH_BLOCKING": "CUDA Programming Guide, CUDA Environment Variables",
    "TORCH_DISTRIBUTED_DEBUG": "torch.distributed, debugging: DETAIL may have an impact on performance",
    "NCCL_DEBUG": "NCCL user guide, environment variables, NCCL_DEBUG",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "torch, CUDA environment variables",
}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if environment_variables.environment_unknown(facts):
        return None
    active = [name for name in CITES if _slows_job(facts, name)]
    if not active:
        return None
    return make_finding(
        f"debugging variables that slow the job: {visible_gpus.join_names([f'{n}={environment_variables.read_variable(facts, n)}' for n in active])}",
        found=tuple(facts.fact(f"env.{name}") for name in active),
        needs=tuple(Requirement(f"env.{name}", "unset", level="optional", cite=CITES[name]) for name in active),
        so="every job started from this shell is slower",
        fix=(FixStep(f"unset {' '.join(active)}"),),
    )


def _slows_job(facts: Facts, name: str) -> bool:
    text = environment_variables.read_variable(facts, name)
    if text is None:
        return False
    if name == "CUDA_LAUNCH_BLOCKING":
        return environment_variables.is_switch_on(facts, name) and not job_request.job_asks_for(facts, "determinism")
    words = {"NCCL_DEBUG": "TRACE", "TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
    return name not in words or text.upper() == words[name]
