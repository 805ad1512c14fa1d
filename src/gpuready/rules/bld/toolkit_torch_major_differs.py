"""The CUDA toolkit and torch's CUDA are of different major releases.

An extension with CUDA code (flash-attn, apex, the kernels of ColossalAI and DeepSpeed) is compiled by the
toolkit's nvcc and linked against the CUDA libraries of torch. PyTorch refuses to build where their major
releases differ: the result could not be loaded. The toolkit counts that CUDA_HOME names, else the nvcc on
the path, whatever ``nvidia-smi`` prints: that is what the driver supports, not what is installed.

It matters only when something is built. Wheels bring their own CUDA libraries, and with nothing to build
the toolkit may have any version or be absent; then this is one line of information. It is an error when
the job says ``build`` or the contract requires a toolkit.

Point CUDA_HOME to a toolkit of torch's major release, install one, or take a prebuilt wheel.
"""

from __future__ import annotations

from gpuready import versions
from gpuready.model import Finding, Need, Step
from gpuready.rules import job, needs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts

CODE = "BLD001"
SEVERITY = "error"
READS = ("torch.cuda", "toolkit.version", "toolkit.path", "toolkit.others", *needs.READS)
SIGNS = (
    "mismatches the version that was used to compile",
    {
        "says": "Installed CUDA version {found} does not match the version torch was compiled with {want}",
        "without": ("accepting this combination",),
    },
    "Cuda extensions are being compiled with a version of Cuda that does not match",
    "does not match the version used to compile Pytorch binaries",
    "The detected CUDA version ({found}) mismatches",
    "the detected CUDA version ({found}) mismatches",
    "System CUDA version does not match PyTorch CUDA version",
)
BROKEN = {
    "torch.cuda": "12.8",
    "toolkit.version": "11.8",
    "toolkit.path": "/usr/local/cuda",
    "job.wants": ("build",),
}
HEALTHY = BROKEN | {"toolkit.version": "12.8"}
CITE = "torch/utils/cpp_extension.py, _check_cuda_version"


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "cuda" not in contract.platforms:
        return None
    builds = must_build(facts, contract)
    if not builds and not seen(facts):
        return None
    pair = versions_of(facts)
    if pair is None or versions.major(pair[0]) == versions.major(pair[1]):
        return None
    toolkit, torch = pair
    return Finding(
        CODE,
        SEVERITY if builds else "info",
        f"the toolkit is CUDA {toolkit} and torch is built with {torch}: CUDA extensions cannot be built",
        found=tuple(facts.fact(key) for key in ("toolkit.version", "torch.cuda", "toolkit.path")),
        needs=(
            Need("toolkit.version", f">={versions.major(torch)},<{versions.major(torch) + 1}", cite=CITE),
        ),
        so="every build stops at once: the detected CUDA version mismatches that of torch",
        fix=tuple(ways_out(facts, torch)),
    )


def must_build(facts: Facts, contract: Contract) -> bool:
    """Return whether something is compiled: the job asks for it, or the contract requires a toolkit."""
    if job.asks(facts, "build"):
        return True
    required = [need for need in contract.wants("toolkit.version") if need.level == "required"]
    return bool(needs.in_force(facts, required))


def seen(facts: Facts) -> bool:
    """Return whether both versions are known: information must not leave the verdict undecided."""
    return None not in (needs.glimpse(facts, "toolkit.version"), needs.glimpse(facts, "torch.cuda"))


def versions_of(facts: Facts) -> tuple[str, str] | None:
    """Return the CUDA of the toolkit and of torch, if both are present."""
    torch = facts.value("torch.cuda")
    toolkit = facts.value("toolkit.version") if torch is not None else None
    return (str(toolkit), str(torch)) if toolkit is not None else None


def ways_out(facts: Facts, torch: str) -> list[Step]:
    """Return a step that uses an installed toolkit, else steps to install one."""
    wanted = versions.minor(torch)
    others = [row for row in facts.known("toolkit.others") or () if row.get("version") and row.get("path")]
    for row in sorted(others, key=lambda row: versions.minor(row["version"]) != wanted):
        if versions.major(row["version"]) == wanted[0]:
            return [Step(f"set CUDA_HOME={row['path']}, which is CUDA {row['version']}")]
    return [
        Step(f"install the CUDA toolkit {wanted[0]}.{wanted[1]} and set CUDA_HOME to it", note="needs root"),
        Step("take prebuilt wheels of the extensions, which need no toolkit"),
    ]
