"""The list TORCH_CUDA_ARCH_LIST excludes a GPU of this machine.

## What it checks
Whether TORCH_CUDA_ARCH_LIST (``8.0;9.0+PTX`` or names such as ``Ampere``) contains an entry that runs on each
visible GPU. Code for X.y runs on GPUs of the same major version from that minor version on; ``+PTX`` also on
newer ones. It is checked only if something is to be built. ColossalAI sets the architectures itself if it
sees a GPU. Entries that torch does not understand are left to torch.

## Why it matters
The build succeeds, and the first kernel fails with ``no kernel image is available``. Images often set the
variable for other machines.

## How to fix
Set the variable to the capability of the GPUs, or unset it so that torch detects them. If you build for other
machines, ignore this finding.

## References
- torch/utils/cpp_extension.py, _get_cuda_arch_flags
"""

from gpuready.catalog import cuda as toolkits
from gpuready.catalog import torch as catalogue
from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import compilation, visible_gpus

CODE = "BLD009"
SEVERITY = "error"
READS = (*visible_gpus.READS, "gpu.capability", *compilation.READS)
REQUIRED_FACTS = ("env.TORCH_CUDA_ARCH_LIST",)
BROKEN = {
    "job.wants": ("build",),
    "env.TORCH_CUDA_ARCH_LIST": "7.0;7.5;8.0",
    "gpu.count": 1,
    "gpu.visible": (0,),
    "gpu.capability": ("9.0",),
}
HEALTHY = BROKEN | {"env.TORCH_CUDA_ARCH_LIST": "7.0;7.5;8.0+PTX"}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if compilation.ignores_arch_list(contract) or not compilation.build_needed(facts, contract):
        return None
    text = compilation.effective_arch_list(facts)
    entries = compilation.parse_build_arch_list(text) if text else None
    if entries is None:
        return None
    parts = [part for one in entries.values() for part in one]
    toolkit = facts.value_if_known("toolkit.version")
    capabilities = visible_gpus.fact_per_gpu(facts, "gpu.capability")
    uncovered = {i: c for i, c in capabilities.items() if not catalogue.covers_capability(parts, c, toolkit)[0]}
    if not uncovered:
        return None
    wanted = ";".join(sorted(set(map(str, capabilities.values()))))
    return make_finding(
        f"the list TORCH_CUDA_ARCH_LIST={text} excludes {visible_gpus.describe_gpus(facts, uncovered, uncovered)}",
        found=(facts.fact("env.TORCH_CUDA_ARCH_LIST"), facts.fact("gpu.capability")),
        needs=(
            Requirement(
                "env.TORCH_CUDA_ARCH_LIST", wanted, cite=str(toolkits.find_cuda_rule("cubin_compat")["source"])
            ),
        ),
        so="extensions built here have no code for it: no kernel image is available",
        fix=(FixStep(f"set TORCH_CUDA_ARCH_LIST={wanted}, or unset it"),),
        severity=compilation.build_severity(facts, contract),
    )
