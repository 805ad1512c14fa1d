"""The CUDA toolkit and torch's CUDA are of different minor releases.

## What it checks
The minor version of the CUDA toolkit against the CUDA that torch is built with. It is reported only if
something is to be built: the job asks for ``build``, or the framework requires a toolkit.

## Why it matters
PyTorch builds the extension with a warning, and it usually works. Code built with a newer minor release may
call functions that torch's libraries lack, and an older nvcc does not support the newest GPUs.

## How to fix
If a build fails or its result does not load, use a toolkit of exactly torch's CUDA version first.

## References
- torch/utils/cpp_extension.py, _check_cuda_version
"""

from gpuready.model import Contract, Facts, Finding, Requirement, make_finding, versions
from gpuready.rules.bld import toolkit_torch_major_differs as major

CODE = "BLD002"
SEVERITY = "warning"
READS = major.READS
BROKEN = {"torch.cuda": "12.8", "toolkit.version": "12.4", "toolkit.path": "/usr/local/cuda", "job.wants": ("build",)}
HEALTHY = BROKEN | {"toolkit.version": "12.8.93"}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "cuda" not in contract.platforms or not major.must_build(facts, contract):
        return None
    pair = major.toolkit_and_torch_cuda(facts)
    if pair is None:
        return None
    toolkit, torch = map(versions.major_minor, pair)
    if toolkit[0] != torch[0] or toolkit == torch:
        return None
    return make_finding(
        f"the toolkit is CUDA {pair[0]}, torch is built with CUDA {pair[1]}",
        found=tuple(facts.fact(key) for key in ("toolkit.version", "torch.cuda", "toolkit.path")),
        needs=(Requirement("toolkit.version", f"=={torch[0]}.{torch[1]}.*", level="recommended", cite=major.CITE),),
        so="extensions are built with a warning; most work, some may not load",
        fix=tuple(major.matching_toolkit_steps(facts, pair[1])),
    )
