"""The list TORCH_CUDA_ARCH_LIST leaves out a GPU of this machine.

The variable says for which GPUs extensions are compiled: capabilities (``8.0;9.0+PTX``) or names
(``Ampere``), separated by semicolons or spaces. Code for X.y runs on GPUs of the same major from that minor
on, and ``+PTX`` on every newer one too. Images set the variable for the machines that their makers had.
Where nothing in it serves a GPU, the build ends well, and the first kernel fails: no kernel image is
available.

It is judged only where something is to be built. Who builds for other machines can ignore it here;
ColossalAI sets the architectures itself as soon as it sees a GPU. An entry that nobody understands is left
to torch, which refuses it. Set the variable to the capability of the GPUs, or unset it: torch then asks
them.
"""

from __future__ import annotations

from gpuready.catalog import cuda as toolkits
from gpuready.catalog import torch as catalogue
from gpuready.model import Contract, Facts, Finding, FixStep, Requirement
from gpuready.rules import compilation, visible_gpus

CODE = "BLD009"
SEVERITY = "error"
READS = (*visible_gpus.READS, "gpu.capability", *compilation.READS)
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
    return Finding(
        CODE,
        compilation.build_severity(facts, contract),
        f"the list TORCH_CUDA_ARCH_LIST={text} leaves out {visible_gpus.describe_gpus(facts, uncovered, uncovered)}",
        found=(facts.fact("env.TORCH_CUDA_ARCH_LIST"), facts.fact("gpu.capability")),
        needs=(
            Requirement(
                "env.TORCH_CUDA_ARCH_LIST", wanted, cite=str(toolkits.find_cuda_rule("cubin_compat")["source"])
            ),
        ),
        so="what is built here has no code for it: no kernel image is available",
        fix=(FixStep(f"set TORCH_CUDA_ARCH_LIST={wanted}, or unset it"),),
    )
