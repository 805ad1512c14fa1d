"""The folder for temporary files cannot be used for a build.

## What it checks
Whether TMPDIR (else /tmp) exists, is not mounted ``noexec``, and has at least 1 GB free. A missing folder is
an error if something is to be built; the others are warnings, for builds and torch.compile.

## Why it matters
nvcc stops at its first file if TMPDIR does not exist, though Python and gcc use /tmp instead. Code on a
``noexec`` mount cannot be loaded, and torch.compile stores its compiled code there. A full folder stops the
build halfway.

## How to fix
Set TMPDIR to an existing folder on a disk with free space. TORCHINDUCTOR_CACHE_DIR and TRITON_CACHE_DIR move
only the code of torch.compile.

## References
- pytorch issues 91005 and 123054
- nvcc documentation, TMPDIR
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import compilation

CODE = "BLD013"
SEVERITY = "error"
READS = ("tmp.path", "tmp.exists", "tmp.noexec", "tmp.free", *compilation.READS)
REQUIRED_FACTS = ("job.wants", "env.BUILD_EXT")
BROKEN = {"job.wants": ("build",), "tmp.path": "/scratch/job-7", "tmp.exists": False}
HEALTHY = {"job.wants": ("build",), "tmp.path": "/tmp", "tmp.exists": True, "tmp.noexec": False, "tmp.free": 50 * 10**9}
MINIMUM_FREE = 10**9
NEEDS = {
    "tmp.exists": Requirement("tmp.exists", "true", cite="nvcc writes to TMPDIR and does not make the folder"),
    "tmp.noexec": Requirement("tmp.noexec", "false", level="recommended", cite="pytorch issues 91005 and 123054"),
    "tmp.free": Requirement("tmp.free", ">=1GB", level="recommended", cite="a build of one CUDA extension"),
}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    builds = compilation.build_requested(facts, contract)
    if not builds and not compilation.compiles_at_runtime(facts):
        return None
    wrong = _describe_tmp_problem(facts, builds)
    if wrong is None:
        return None
    key, what = wrong
    return make_finding(
        f"the folder for temporary files, {facts.value('tmp.path')}, {what}",
        found=(facts.fact("tmp.path"), facts.fact(key)),
        needs=(NEEDS[key],),
        so="a build or a compiled kernel fails with a message about a file",
        fix=(FixStep("set TMPDIR to an existing folder with free space that is not mounted noexec"),),
        severity=SEVERITY if key == "tmp.exists" else "warning",
    )


def _describe_tmp_problem(facts: Facts, builds: bool) -> tuple[str, str] | None:
    """Return the fact of the first problem with the folder, and its description."""
    if facts.value("tmp.exists") is False:
        return ("tmp.exists", "does not exist") if builds else None
    moved = not builds and facts.value_if_known("env.TORCHINDUCTOR_CACHE_DIR")
    if facts.value("tmp.noexec") and not moved:
        return "tmp.noexec", "is mounted noexec"
    free = facts.value("tmp.free") if builds else None
    return ("tmp.free", "has less than 1 GB left") if free is not None and free < MINIMUM_FREE else None
