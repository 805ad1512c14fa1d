"""The CUDA toolkit and torch's CUDA are of different major releases.

## What it checks
The major version of the CUDA toolkit (CUDA_HOME, else nvcc on the PATH) against the CUDA that torch is built
with. It is an error if the job asks for ``build`` or the framework requires a toolkit, else information. The
CUDA version that ``nvidia-smi`` prints is what the driver supports, not the toolkit.

## Why it matters
PyTorch refuses to build a CUDA extension (flash-attn, apex, kernels of ColossalAI and DeepSpeed) if the major
versions differ, because the result could not be loaded. Wheels bring their own CUDA libraries and need no
toolkit.

## How to fix
Set CUDA_HOME to a toolkit of torch's major release, install one, or use a prebuilt wheel.

## References
- torch/utils/cpp_extension.py, _check_cuda_version
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding, versions
from gpuready.rules import contract_needs, job_request

CODE = "BLD001"
SEVERITY = "error"
READS = ("torch.cuda", "toolkit.version", "toolkit.path", "toolkit.others", *contract_needs.READS)
BROKEN = {"torch.cuda": "12.8", "toolkit.version": "11.8", "toolkit.path": "/usr/local/cuda", "job.wants": ("build",)}
HEALTHY = BROKEN | {"toolkit.version": "12.8"}
CITE = "torch/utils/cpp_extension.py, _check_cuda_version"


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "cuda" not in contract.platforms:
        return None
    builds = must_build(facts, contract)
    if not builds and not both_versions_known(facts):
        return None
    pair = toolkit_and_torch_cuda(facts)
    if pair is None or versions.major_version(pair[0]) == versions.major_version(pair[1]):
        return None
    toolkit, torch = pair
    return make_finding(
        f"the toolkit is CUDA {toolkit}, but torch uses CUDA {torch}: extensions cannot be built",
        found=tuple(facts.fact(key) for key in ("toolkit.version", "torch.cuda", "toolkit.path")),
        needs=(
            Requirement(
                "toolkit.version", f">={versions.major_version(torch)},<{versions.major_version(torch) + 1}", cite=CITE
            ),
        ),
        so="every build stops: the detected CUDA version mismatches the version that was used to compile PyTorch",
        fix=tuple(matching_toolkit_steps(facts, torch)),
        severity=SEVERITY if builds else "info",
    )


def must_build(facts: Facts, contract: Contract) -> bool:
    """Return whether something is compiled: the job asks for it, or the contract requires a toolkit."""
    if job_request.job_asks_for(facts, "build"):
        return True
    required = [need for need in contract.requirements_for("toolkit.version") if need.level == "required"]
    return bool(contract_needs.needs_in_force(facts, required))


def both_versions_known(facts: Facts) -> bool:
    """Return whether both versions are known: information must not leave the verdict undecided."""
    return None not in (
        contract_needs.peek_fact(facts, "toolkit.version"),
        contract_needs.peek_fact(facts, "torch.cuda"),
    )


def toolkit_and_torch_cuda(facts: Facts) -> tuple[str, str] | None:
    """Return the CUDA of the toolkit and of torch, if both are present."""
    torch = facts.value("torch.cuda")
    toolkit = facts.value("toolkit.version") if torch is not None else None
    return (str(toolkit), str(torch)) if toolkit is not None else None


def matching_toolkit_steps(facts: Facts, torch: str) -> list[FixStep]:
    """Return a step that uses an installed toolkit, else steps to install one."""
    wanted = versions.major_minor(torch)
    others = [row for row in facts.value_if_known("toolkit.others") or () if row.get("version") and row.get("path")]
    for row in sorted(others, key=lambda row: versions.major_minor(row["version"]) != wanted):
        if versions.major_version(row["version"]) == wanted[0]:
            return [FixStep(f"set CUDA_HOME={row['path']}, which is CUDA {row['version']}")]
    return [
        FixStep(f"install the CUDA toolkit {wanted[0]}.{wanted[1]} and set CUDA_HOME to it", note="needs root"),
        FixStep("install prebuilt wheels of the extensions, which need no toolkit"),
    ]
