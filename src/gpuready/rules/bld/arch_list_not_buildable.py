"""The list TORCH_CUDA_ARCH_LIST names GPUs that this toolkit does not support.

## What it checks
Whether nvcc supports every entry of TORCH_CUDA_ARCH_LIST. For a name such as ``Blackwell``, one supported
capability is enough. It is checked only if something is to be built, and not for ColossalAI, which sets the
architectures itself if it sees a GPU.

## Why it matters
One unsupported entry stops the build with ``unsupported gpu architecture``, whether or not such a GPU is
present. An old toolkit lacks new GPUs; CUDA 13 dropped everything before Turing. Entries for one chip
(``9.0a``) or a family (``10.0f``) need a toolkit that has them.

## How to fix
Remove the entries, or use another toolkit.

## References
- torch/utils/cpp_extension.py, _get_cuda_arch_flags
- target list of ``ptxas --help``
"""

from typing import Any

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import compilation, visible_gpus

CODE = "BLD010"
SEVERITY = "error"
READS = ("toolkit.path", *compilation.READS)
REQUIRED_FACTS = ("env.TORCH_CUDA_ARCH_LIST",)
BROKEN = {"job.wants": ("build",), "env.TORCH_CUDA_ARCH_LIST": "8.0 9.0 12.0+PTX", "toolkit.version": "12.4"}
HEALTHY = BROKEN | {"toolkit.version": "12.8"}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if compilation.ignores_arch_list(contract) or not compilation.build_needed(facts, contract):
        return None
    text = compilation.effective_arch_list(facts)
    row = compilation.find_toolkit_row(facts) if text else None
    entries = compilation.parse_build_arch_list(text) if text and row else None
    if row is None or entries is None:
        return None
    unsupported = [word for word, parts in entries.items() if not any(_is_buildable_arch(row, part) for part in parts)]
    if not unsupported:
        return None
    remaining = ";".join(word for word in entries if word not in unsupported)
    return make_finding(
        f"the list TORCH_CUDA_ARCH_LIST has {visible_gpus.join_names(unsupported)}, which CUDA {row['version']} does not support",
        found=tuple(facts.fact(k) for k in ("env.TORCH_CUDA_ARCH_LIST", "toolkit.version", "toolkit.path")),
        needs=(Requirement("env.TORCH_CUDA_ARCH_LIST", "|".join(row["targets"]), cite=str(row["source"]["targets"])),),
        so="the build stops: unsupported gpu architecture",
        fix=(FixStep(f"set TORCH_CUDA_ARCH_LIST={remaining}" if remaining else "unset TORCH_CUDA_ARCH_LIST"),),
        severity=compilation.build_severity(facts, contract),
    )


def _is_buildable_arch(row: dict[str, Any], entry: str) -> bool:
    arch = entry.removesuffix("+PTX")
    if arch[-1] in "af":
        return "sm_" + arch.replace(".", "") in row.get("specific", ())
    return arch in row["targets"]
