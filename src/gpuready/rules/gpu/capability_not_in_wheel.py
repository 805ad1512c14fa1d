"""The torch wheel has no code for a GPU of this machine.

## What it checks
Whether the installed torch contains machine code that runs on each visible GPU. Code for ``sm_Xy`` runs on
GPUs of the same major version X and minor version y or higher: ``sm_86`` covers an RTX 4090 (8.9). Code of
another major version never runs. PTX (``compute_90``) can be compiled for newer GPUs, but almost no published
torch build contains it. Of a build whose list is not known, the CUDA that it was built with tells which GPUs it
cannot have code for: CUDA 13 has none for those before 7.5. Integrated (Tegra) GPUs are not covered by this rule in builds for CUDA before 13.2.

## Why it matters
``torch.cuda.is_available()`` can be True and memory can be allocated, but the first kernel fails with ``no
kernel image is available``. New GPUs hit this with an old torch; old GPUs (Volta, Pascal) with a new torch
that dropped them.

## How to fix
Install another torch build within the framework's pins; the fix names one. On a machine with different GPUs,
show only those that are covered with CUDA_VISIBLE_DEVICES.

## References
- torch/cuda/__init__.py, DEVICE_REQUIREMENT
- CUDA Programming Guide, 1.3 The CUDA platform: binary compatibility
"""

from typing import Any

from gpuready.catalog import cuda as toolkits
from gpuready.catalog import torch as catalogue
from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding, versions
from gpuready.rules import fix_steps, job_request, visible_gpus

CODE = "GPU004"
SEVERITY = "error"
READS = (*visible_gpus.READS, "gpu.capability", "torch.cuda", "torch.arch", "job.wants", *fix_steps.READS)
REQUIRED_FACTS = ("gpu.count",)
BROKEN = {
    "gpu.count": 1,
    "gpu.visible": (0,),
    "gpu.name": ("NVIDIA GeForce RTX 5090",),
    "gpu.capability": ("12.0",),
    "torch.cuda": "12.4",
    "torch.arch": ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"),
}
HEALTHY = BROKEN | {"gpu.name": ("NVIDIA GeForce RTX 4090",), "gpu.capability": ("8.9",)}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "cuda" not in contract.platforms or not visible_gpus.list_visible_gpus(facts):
        return None
    if job_request.job_asks_for(facts, "cpu"):
        return None
    built_for = facts.value("torch.cuda")
    if built_for is None:
        return None
    capabilities = visible_gpus.fact_per_gpu(facts, "gpu.capability")
    oldest = (toolkits.list_nvcc_targets(built_for) or ("0.0",))[0]
    dropped = {i: c for i, c in capabilities.items() if versions.major_minor(c) < versions.major_minor(oldest)}
    if (
        dropped and facts.value_if_known("torch.arch") is None
    ):  # what the CUDA of a build cannot compile for, no list need tell
        return _missing_arch_finding(facts, contract, dropped, capabilities)
    listed = facts.value("torch.arch")
    if not listed:
        return None
    uncovered = {i: c for i, c in capabilities.items() if not catalogue.covers_capability(listed, c, built_for)[0]}
    return _missing_arch_finding(facts, contract, uncovered, capabilities) if uncovered else None


def _missing_arch_finding(
    facts: Facts, contract: Contract, uncovered: dict[int, Any], all_gpus: dict[int, Any]
) -> Finding:
    cite = str(toolkits.find_cuda_rule("cubin_compat")["source"])
    wanted = dict.fromkeys("sm_" + str(c).replace(".", "") for c in uncovered.values())
    return make_finding(
        f"torch has no code ({', '.join(wanted)}) for {visible_gpus.describe_gpus(facts, uncovered, uncovered)}",
        found=tuple(
            facts.fact(key) for key in ("gpu.capability", "torch.arch", "torch.cuda") if not facts.fact(key).gap
        ),
        needs=tuple(Requirement("torch.arch", arch, cite=cite) for arch in wanted),
        so="the first kernel fails with no kernel image is available, even if is_available() is True",
        fix=tuple(_missing_arch_steps(facts, contract, uncovered, all_gpus)),
    )


def _missing_arch_steps(
    facts: Facts, contract: Contract, uncovered: dict[int, Any], all_gpus: dict[int, Any]
) -> list[FixStep]:
    build = fix_steps.replace_torch_step(facts, contract)
    steps = [build] if build else [FixStep(_no_torch_message(facts, contract, uncovered))]
    covered = [index for index in all_gpus if index not in uncovered]
    if covered:
        steps.append(
            FixStep(
                f"show only the other GPUs: CUDA_VISIBLE_DEVICES={visible_gpus.visible_devices_value(facts, covered)}"
            )
        )
    return steps


def _no_torch_message(facts: Facts, contract: Contract, uncovered: dict[int, Any]) -> str:
    """Say which torch has the code, and that the contract does not take it."""
    pins = " and ".join(fix_steps.required_pins(facts, contract, "package.torch"))
    capabilities = visible_gpus.join_names(sorted(set(map(str, uncovered.values()))))
    any_torch = fix_steps.choose_torch_build(facts, Contract(contract.framework, contract.version))
    if not any_torch:
        return f"no torch that runs here has code for {capabilities}: `gpuready plan {contract.framework}` lists what helps"
    newest = f"torch {any_torch.version}+{any_torch.variant}, the newest with code for {capabilities}"
    what = f"take {newest}" if contract.framework == "torch" else f"take a version of {contract.framework} for {newest}"
    return f"{what}: here torch has to be {pins}" if pins else what
