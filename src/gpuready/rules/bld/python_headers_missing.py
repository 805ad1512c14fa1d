"""The headers of this Python are missing.

## What it checks
Whether Python.h exists for this Python. It is an error if the job asks for a build, for torch.compile or for
Triton kernels, which compile a small piece of C at run time.

## Why it matters
The compilation stops with ``Python.h: No such file or directory``. Debian and Ubuntu have the headers in a
separate package (``python3.12-dev``), Fedora in ``python3-devel``; images often leave it out. Pythons of
conda, uv and pyenv contain the headers. A virtual environment uses those of its base Python.

## How to fix
Install the package for exactly this minor version, or recreate the environment from a Python that has the
headers.

## References
- triton/runtime/build.py
- torch/utils/cpp_extension.py
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding, versions
from gpuready.rules import compilation

CODE = "BLD012"
SEVERITY = "error"
READS = ("python.headers", "python.path", *compilation.READS)
REQUIRED_FACTS = ("job.wants", "env.BUILD_EXT")
BROKEN = {"job.wants": ("torch-compile",), "python.headers": False}
HEALTHY = {"job.wants": ("torch-compile",), "python.headers": True}
CITE = "triton/runtime/build.py and torch/utils/cpp_extension.py: both include Python.h"


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if not compilation.compiles_at_runtime(facts) and not compilation.build_requested(facts, contract):
        return None
    if facts.value("python.headers") is not False:
        return None
    return make_finding(
        "the headers of this Python (Python.h) are missing",
        found=(facts.fact("python.headers"), facts.fact("python.path"), facts.fact("python.version")),
        needs=(Requirement("python.headers", "true", cite=CITE),),
        so="compilation stops: Python.h: No such file or directory",
        fix=(
            _headers_package_step(facts),
            FixStep("create the environment with a Python of uv or conda, which has them"),
        ),
    )


def _headers_package_step(facts: Facts) -> FixStep:
    version = facts.value_if_known("python.version")
    name = "python{}.{}-dev".format(*versions.major_minor(version)) if version else "python3-dev"
    return FixStep(f"install {name} (python3-devel on Fedora)", note="needs root")
