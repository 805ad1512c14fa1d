"""The cuDNN that torch would load is older than the framework requires.

## What it checks
The version of the cuDNN that torch loads against the framework's requirements. Torch wheels bring their own
(``nvidia-cudnn-cu12``); torch from a distribution, conda or an image uses the installed one.
``/usr/include/cudnn_version.h`` does not matter. A torch without CUDA has no cuDNN and is reported by PKG001.

## Why it matters
cuDNN has the kernels for convolutions and for one of torch's attention backends. With an older one they are
missing or fail.

## How to fix
Upgrade the package that contains cuDNN within what torch allows, or torch itself, which pins it.

## References
- The framework's requirements, with their citations in the finding
"""

from gpuready.model import Contract, Facts, Finding, FixStep, make_finding
from gpuready.rules import contract_needs, fix_steps

CODE = "PKG015"
SEVERITY = "error"
READS = ("cudnn.version", "libcudnn.path", "torch.cuda", "torch.version", *fix_steps.READS)
CONTRACT = {"needs": ({"key": "cudnn.version", "want": ">=9.1.0", "cite": "installation.md:14"},)}
BROKEN = {"cudnn.version": "8.9.2.26", "torch.cuda": "12.1"}
HEALTHY = {"cudnn.version": "9.1.0.70", "torch.cuda": "12.4"}
LIBRARY = {"cudnn.version": ("cuDNN", "libcudnn.path"), "nccl.version": ("NCCL", "libnccl.path")}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return library_below_need(facts, contract, "cudnn.version", "kernels that it needs are missing or fail")


def library_below_need(facts: Facts, contract: Contract, key: str, so: str) -> Finding | None:
    """Return a finding if a library of torch is missing or older than required; shared with the NCCL rule."""
    failed = contract_needs.unmet_needs(facts, contract.requirements_for(key))
    # Without a CUDA build of torch there is none; other rules report that.
    if not failed or (facts.value(key) is None and facts.value("torch.cuda") is None):
        return None
    name, path = LIBRARY[key]
    wanted = " and ".join(dict.fromkeys(need.want for need in failed if need.want != "*")) or "present"
    version = facts.value(key)
    return make_finding(
        f"torch loads {name} {version}, which is not the required version" if version else f"there is no {name}",
        found=(facts.fact(key), facts.fact("torch.version"), facts.fact(path)),
        needs=tuple(failed),
        so=so,
        fix=(
            fix_steps.replace_torch_step(facts, contract) or FixStep("install a newer torch, which includes it"),
            FixStep(f"install {name} {wanted} if torch uses the system's"),
        ),
        severity=contract_needs.worst_need_severity(failed),
    )
