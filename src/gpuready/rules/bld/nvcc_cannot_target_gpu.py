"""The CUDA toolkit cannot compile for a GPU of this machine.

## What it checks
Whether nvcc supports the compute capability of each visible GPU. Without TORCH_CUDA_ARCH_LIST, torch compiles
for the GPUs it sees, up to the newest that torch itself has code for. If the variable is set, BLD009 and
BLD010 apply instead. It is an error if something is to be built, a warning if the framework requires a
toolkit.

## Why it matters
The build stops with ``unsupported gpu architecture``. Each nvcc release supports a fixed list of
architectures: new GPUs are added and old ones removed.

## How to fix
Use a toolkit that supports the GPU, of the CUDA major release that torch is built with. If the toolkit
supports an older GPU of the same major version, its code also runs: set TORCH_CUDA_ARCH_LIST to it.

## References
- nvcc documentation, GPU feature list
- target list of ``ptxas --help``
"""

from collections.abc import Iterable
from typing import Any

from gpuready.catalog import cuda as toolkits
from gpuready.catalog import torch as catalogue
from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding, versions
from gpuready.rules import compilation, visible_gpus

CODE = "BLD004"
SEVERITY = "error"
READS = (*visible_gpus.READS, "gpu.capability", "torch.arch", "toolkit.path", *compilation.READS)
REQUIRED_FACTS = ("gpu.count",)
BROKEN = {
    "job.wants": ("build",),
    "toolkit.version": "12.4",
    "gpu.count": 1,
    "gpu.visible": (0,),
    "gpu.capability": ("12.0",),
    "torch.arch": ("sm_80", "sm_90", "sm_100", "sm_120"),
    "env.TORCH_CUDA_ARCH_LIST": None,
}
HEALTHY = BROKEN | {"toolkit.version": "12.8"}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if not compilation.build_needed(facts, contract) or not visible_gpus.list_visible_gpus(facts):
        return None
    row = compilation.find_toolkit_row(facts)
    if row is None or compilation.effective_arch_list(facts):
        return None
    built = facts.value("torch.arch")
    wanted = {i: _arch_torch_requests(built, c) for i, c in visible_gpus.fact_per_gpu(facts, "gpu.capability").items()}
    unsupported = {i: c for i, c in wanted.items() if c not in row["targets"]}
    return _unsupported_target_finding(facts, contract, row, unsupported) if unsupported else None


def _arch_torch_requests(built: Iterable[str] | None, capability: str) -> str:
    """Return the target torch passes to nvcc: the GPU's capability, limited to the newest in torch's own list."""
    own = versions.major_minor(capability)
    known = [digits for arch in built or () if (digits := arch.removeprefix("sm_").rstrip("af")).isdigit()]
    newest = max(((int(d[:-1]), int(d[-1])) for d in known if len(d) > 1), default=own)
    return "{}.{}".format(*min(own, newest))


def _unsupported_target_finding(
    facts: Facts, contract: Contract, row: dict[str, Any], unsupported: dict[int, str]
) -> Finding:
    wanted = list(dict.fromkeys(unsupported.values()))
    cite = str(row["source"]["targets"])
    return make_finding(
        f"nvcc {facts.value('toolkit.version')} cannot compile for {visible_gpus.describe_gpus(facts, unsupported, unsupported)}",
        found=tuple(facts.fact(key) for key in ("toolkit.version", "gpu.capability", "toolkit.path")),
        needs=tuple(Requirement("toolkit.version", _toolkit_range(capability), cite=cite) for capability in wanted),
        so="the build stops: unsupported gpu architecture",
        fix=tuple(_nvcc_target_steps(row, wanted)),
        severity=compilation.build_severity(facts, contract),
    )


def _toolkit_range(capability: str) -> str:
    """Return the range of toolkits that can target a capability; any newer one if none can yet."""
    knowing = [v for v in toolkits.list_cuda_releases() if capability in (toolkits.list_nvcc_targets(v) or ())]
    if not knowing:
        return f">{toolkits.list_cuda_releases()[-1]}"
    last = "" if knowing[-1] == toolkits.list_cuda_releases()[-1] else f",<={knowing[-1]}"
    return f">={knowing[0]}{last}"


def _nvcc_target_steps(row: dict[str, Any], wanted: list[str]) -> list[FixStep]:
    steps = [FixStep(f"install a CUDA toolkit {_toolkit_range(c)} and set CUDA_HOME to it") for c in wanted]
    near = [_nearest_target(row["targets"], capability) for capability in wanted]
    if all(near):
        value = ";".join(dict.fromkeys(str(one) for one in near))
        steps.insert(0, FixStep(f"set TORCH_CUDA_ARCH_LIST={value}: its code also runs on these GPUs"))
    return steps


def _nearest_target(targets: list[str], capability: str) -> str | None:
    """Return the newest target of the toolkit whose code runs on this GPU."""
    fitting = [target for target in targets if catalogue.covers_capability([target], capability)[0]]
    return max(fitting, key=versions.major_minor, default=None)
