"""The torch wheel is a build without CUDA.

## What it checks
Whether the installed torch is built for the accelerator of this machine. CPU builds show it in the local
version (``2.8.0+cpu``). A ROCm or XPU build on NVIDIA GPUs, or a CUDA build for ROCm or XPU, is reported too.
The plain build is right for accelerators that torch reaches through a plug-in (NPU, HPU, Apple's MPS) and for
jobs that ask for ``cpu``.

## Why it matters
``torch.cuda.is_available()`` is False, whatever the driver. A CPU build gets installed from the CPU index,
when a resolver replaces the CUDA build, by default on Windows and macOS, or on aarch64 with older releases.

## How to fix
Install a CUDA build with the index or backend stated, and pin it so that the next install keeps it.

## References
- PyTorch, get started locally
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import contract_needs, fix_steps, job_request, visible_gpus

CODE = "PKG001"
SEVERITY = "error"
READS = ("torch.build", "torch.version", *fix_steps.READS)
BROKEN = {"torch.build": "cpu", "torch.version": "2.8.0+cpu", "platform.name": "cuda", "gpu.count": 1}
OWN_BUILDS = {"rocm": "ROCm", "xpu": "Intel's XPU"}
"""Platforms that have their own wheels; the others use a plug-in on the plain one."""
HEALTHY = BROKEN | {"torch.build": "cuda", "torch.version": "2.8.0+cu128"}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "cuda" not in contract.platforms or job_request.job_asks_for(facts, "cpu"):
        return None
    build = facts.value("torch.build")
    if build is None or not _is_wrong_build(facts, contract, build):
        return None
    if visible_gpus.has_other_accelerator(facts, contract):
        return _other_platform_finding(facts, contract, build)
    cite = f"{contract.name}, platforms: {', '.join(contract.platforms)}"
    return make_finding(
        "torch is a CPU-only build" if build == "cpu" else f"torch is built for {build}, not for CUDA",
        found=(facts.fact("torch.build"), facts.fact("torch.version")),
        needs=contract_needs.stated_needs(facts, contract, "torch.build")
        or (Requirement("torch.build", "cuda", cite=cite),),
        so="torch.cuda.is_available() is False; the job runs on the CPU or not at all",
        fix=(fix_steps.replace_torch_step(facts, contract) or FixStep("install a torch built for CUDA"),),
    )


def _is_wrong_build(facts: Facts, contract: Contract, build: str) -> bool:
    """Return whether the build does not suit the platform: plug-ins need the plain build, ROCm and XPU their own."""
    if not visible_gpus.has_other_accelerator(facts, contract):
        if facts.value_if_known("platform.name") in visible_gpus.OTHER_PLATFORMS:
            return False  # the framework does not support this machine, which GPU001 reports; no torch would help
        return build == "cpu" or (build != "cuda" and facts.value_if_known("platform.name") == "cuda")
    platform = facts.value_if_known("platform.name")
    return platform in OWN_BUILDS and build != platform and (platform, build) != ("xpu", "cpu")


def _other_platform_finding(facts: Facts, contract: Contract, build: str) -> Finding:
    made = "a CPU-only build" if build == "cpu" else f"built for {OWN_BUILDS.get(build, build.upper())}"
    platform = str(facts.value_if_known("platform.name"))
    name = OWN_BUILDS[platform]
    return make_finding(
        f"torch is {made}, but this machine needs one for {name}",
        found=tuple(facts.fact(key) for key in ("torch.build", "torch.version", "platform.name")),
        needs=(
            Requirement("torch.build", platform, cite=f"{contract.name}, platforms: {', '.join(contract.platforms)}"),
        ),
        so="torch finds no accelerator; the job runs on the CPU or not at all",
        fix=(FixStep(f"install a torch built for {name}"),),
    )
