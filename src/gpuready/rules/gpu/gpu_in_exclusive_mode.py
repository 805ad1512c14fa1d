"""The compute mode of a GPU prevents the job from using it.

## What it checks
The compute mode of each GPU. In ``prohibited`` no process may use it. In ``exclusive-process`` one process at
a time may use it. Prohibited is an error if the job needs that GPU, else a warning. Exclusive mode is a
warning while another process uses the GPU. Exclusive mode with CUDA's MPS server is correct and is not
reported.

## Why it matters
CUDA lists the GPU, but using it fails with ``all CUDA-capable devices are busy or unavailable``. Several
processes on one GPU (data workers that use CUDA, a notebook beside the job, ranks that all open GPU 0) fail
in exclusive mode. If the MPS daemon has stopped and its pipe in /tmp/nvidia-mps remains, every start fails
with CUDA errors 805 to 807.

## How to fix
Set the mode back as root: ``nvidia-smi -c DEFAULT``. For MPS, start the daemon again with
``nvidia-cuda-mps-control -d``, or remove the pipe.

## References
- NVML API, nvmlComputeMode_t
- NVIDIA GPU Deployment and Management, Multi-Process Service
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import gpu_health, visible_gpus

CODE = "GPU006"
SEVERITY = "error"
READS = (*gpu_health.READS, "gpu.mode", "gpu.processes", "env.CUDA_MPS_PIPE_DIRECTORY")
REQUIRED_FACTS = ("gpu.count",)
BROKEN = {"gpu.count": 1, "gpu.visible": (0,), "gpu.name": ("NVIDIA A100-SXM4-80GB",), "gpu.mode": ("prohibited",)}
HEALTHY = BROKEN | {"gpu.mode": ("exclusive-process",), "gpu.processes": ()}
CITE = "NVML API, nvmlComputeMode_t"


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if gpu_health.is_not_applicable(facts, contract, "gpu.mode") or not visible_gpus.list_visible_gpus(facts):
        return None
    modes = gpu_health.reported_values(facts, "gpu.mode")
    prohibited = [index for index, mode in modes.items() if mode == "prohibited"]
    if prohibited:
        severity = SEVERITY if gpu_health.leaves_too_few_gpus(facts, prohibited) else "warning"
        return _compute_mode_finding(
            facts, severity, f"compute mode prohibited on {visible_gpus.describe_gpus(facts, prohibited)}", prohibited
        )
    exclusive = [index for index, mode in modes.items() if str(mode).startswith("exclusive")]
    occupied = _occupied_gpus(facts, exclusive) if exclusive else []
    if occupied:
        message = f"another process uses {visible_gpus.describe_gpus(facts, occupied)} in exclusive compute mode"
        return _compute_mode_finding(facts, "warning", message, occupied)
    gpu_health.require_reported(facts, "gpu.mode")
    return None


def _occupied_gpus(facts: Facts, exclusive: list[int]) -> list[int]:
    """Return the exclusive GPUs in use by a process that does not share them."""
    rows = facts.value("gpu.processes") or ()
    if facts.value_if_known("env.CUDA_MPS_PIPE_DIRECTORY") or any("cuda-mps" in str(r.get("command")) for r in rows):
        return []
    return [index for index in exclusive if any(row.get("gpu") == index for row in rows)]


def _compute_mode_finding(facts: Facts, severity: str, message: str, bad: list[int]) -> Finding:
    return make_finding(
        message,
        found=tuple(facts.fact(key) for key in ("gpu.mode", "gpu.processes") if key in facts),
        needs=(Requirement("gpu.mode", "default", cite=CITE),),
        so="CUDA lists the GPU, and using it fails: device busy or unavailable",
        fix=(
            *gpu_health.hide_gpus_steps(facts, bad),
            FixStep(
                f"set the default mode: nvidia-smi -i {gpu_health.join_indices(bad)} -c DEFAULT", note="needs root"
            ),
        ),
        severity=severity,
    )
