"""The driver asks for a recovery of a GPU.

## What it checks
The recovery action that NVML reports for each GPU (drivers from R570 on), and a GPU to which NVML refuses to
talk before it is reset. It is an error unless the action is none.

## Why it matters
The GPU has met a fault from which it does not recover by itself: new programs on it fail or hang, and with
drain-p2p or node-reboot so may programs on its peers.

## How to fix
Do what the driver asks for. gpu-reset: end all programs on the GPU, then ``nvidia-smi --gpu-reset``. drain-p2p:
end the programs that use peer-to-peer with it, then look again. drain-and-reset: no new work, end all programs,
then reset. node-reboot and system-reboot: reboot. bus-reset: reset its PCIe bus, or reboot.

## References
- NVIDIA GPU Memory Error Management, Error Recovery and Response Flags
- NVIDIA NVML API, nvmlDeviceGpuRecoveryAction_t
- NVIDIA Xid Errors, Xid Catalog: 154
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import gpu_health, visible_gpus

CODE = "GPU025"
SEVERITY = "error"
READS = (*gpu_health.READS, "gpu.recovery")
REQUIRED_FACTS = ("gpu.count",)
BROKEN = {"gpu.count": 1, "gpu.visible": (0,), "gpu.name": ("NVIDIA H100 80GB HBM3",), "gpu.recovery": ("gpu-reset",)}
HEALTHY = BROKEN | {"gpu.recovery": ("none",)}
CITE = "NVIDIA GPU Memory Error Management, Error Recovery and Response Flags"
NOTHING_DUE = ("none", "unsupported")
RESETS = ("gpu-reset", "drain-and-reset")
STEPS = {
    "gpu-reset": "end all programs on it, then reset it",
    "drain-and-reset": "give it no new work, end its programs, then reset it",
    "drain-p2p": "end the programs that use peer-to-peer with it, then look again",
    "node-reboot": "reboot the node",
    "system-reboot": "reboot the node",
    "bus-reset": "reset its PCIe bus, or reboot the node",
    "recover-imex-domain": "recover its IMEX domain",
}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if gpu_health.is_not_applicable(facts, contract, "gpu.recovery") or not visible_gpus.list_visible_gpus(facts):
        return None
    due = {i: w for i, w in gpu_health.reported_values(facts, "gpu.recovery").items() if w not in NOTHING_DUE}
    if not due:
        gpu_health.require_reported(facts, "gpu.recovery")
        return None
    return make_finding(
        f"the driver asks for a recovery of {visible_gpus.describe_gpus(facts, due, due)}",
        found=(facts.fact("gpu.recovery"),),
        needs=(Requirement("gpu.recovery", "none", cite=CITE),),
        so="new programs on it fail or hang until that is done",
        fix=(*(_action_step(due, word) for word in dict.fromkeys(due.values())), *_hide_steps(facts, due)),
    )


def _action_step(due: dict[int, str], word: str) -> FixStep:
    which = gpu_health.join_indices([index for index, action in due.items() if action == word])
    does = STEPS.get(word, f"do what NVIDIA names {word}")
    command = f": nvidia-smi --gpu-reset -i {which}" if word in RESETS else ""
    return FixStep(f"GPU {which}: {does}{command}", note="needs root")


def _hide_steps(facts: Facts, due: dict[int, str]) -> list[FixStep]:
    """Other GPUs remain usable only where the fault is that of one GPU."""
    return gpu_health.hide_gpus_steps(facts, due) if set(due.values()) <= set(RESETS) else []
