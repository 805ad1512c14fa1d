"""The installed bitsandbytes has no library for torch's CUDA.

## What it checks
Whether bitsandbytes has a library for torch.version.cuda. Up to 0.49 it needs exactly that version; from 0.50
on the nearest of the same major release works, with a warning. BNB_CUDA_VERSION (``124``) selects another
library and is respected. It is an error if the job asks for 4 or 8 bits or a file for the package itself, else a warning.

## Why it matters
The package can be imported, but loading a model in 4 or 8 bits, or using an 8-bit optimizer, fails.

## How to fix
Upgrade bitsandbytes, or use a torch built for a CUDA that it supports.

## References
- bitsandbytes/cextension.py, get_cuda_bnb_library_path
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding, versions
from gpuready.rules import fix_steps, job_request, visible_gpus

CODE = "PKG014"
SEVERITY = "error"
READS = ("torch.cuda", "extension.linked", "env.BNB_CUDA_VERSION", *fix_steps.READS)
REQUIRED_FACTS = ("package.bitsandbytes", "job.wants")
BROKEN = {
    "job.wants": ("bnb-4bit",),
    "package.bitsandbytes": "0.49.2",
    "torch.cuda": "13.2",
    "extension.linked": {"bitsandbytes": {"file": None, "carries": ("11.8", "12.6", "12.8", "13.0")}},
    "python.path": "/venv/bin/python",
}
HEALTHY = BROKEN | {"torch.cuda": "13.0"}
NEAREST_SINCE = "0.50.0"
QUANTISATION_WANTS = ("bitsandbytes", "bnb-4bit", "bnb-8bit", "4bit", "8bit", "nf4", "int8", "qlora")
CITE = "bitsandbytes/cextension.py, get_cuda_bnb_library_path"


def judge(facts: Facts, contract: Contract) -> Finding | None:
    installed = facts.value("package.bitsandbytes") if "cuda" in contract.platforms else None
    cuda = facts.value("torch.cuda") if installed is not None else None
    if cuda is None:
        return None
    requested = job_request.job_asks_for(facts, *QUANTISATION_WANTS)
    linked = facts.value("extension.linked") if requested else facts.value_if_known("extension.linked")
    carries = ((linked or {}).get("bitsandbytes") or {}).get("carries")
    if carries is None or _finds_cuda_library(facts, str(installed), str(cuda), [str(one) for one in carries]):
        return None
    listed = visible_gpus.join_names([str(one) for one in carries]) or "no CUDA at all"
    return make_finding(
        f"bitsandbytes {installed} has no library for CUDA {cuda}; it has {listed}",
        found=tuple(facts.fact(k) for k in ("package.bitsandbytes", "torch.cuda", "extension.linked")),
        needs=(Requirement("package.bitsandbytes", f"a library for CUDA {cuda}", cite=CITE),),
        so="loading in 4 or 8 bits and 8-bit optimizers fail",
        fix=(
            fix_steps.install_step(
                facts, "install the newest bitsandbytes", "--upgrade-package", "bitsandbytes", "bitsandbytes"
            ),
            FixStep("install a torch built for a CUDA that it supports"),
        ),
        severity=SEVERITY if requested else "warning",
    )


def _finds_cuda_library(facts: Facts, installed: str, cuda: str, carries: list[str]) -> bool:
    """Return whether it finds a library: the one BNB_CUDA_VERSION names, torch's, or from 0.50 on a near one."""
    forced = str(facts.value_if_known("env.BNB_CUDA_VERSION") or "")
    if forced.isdecimal() and len(forced) > 2:
        return f"{forced[:-1]}.{forced[-1]}" in carries
    if any(versions.major_minor(one) == versions.major_minor(cuda) for one in carries):
        return True
    near = any(versions.major_version(one) == versions.major_version(cuda) for one in carries)
    return near and versions.compare_versions(installed, NEAREST_SINCE) >= 0
