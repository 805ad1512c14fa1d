"""There is no torch for what is to be built against it.

## What it checks
Whether torch is installed when an extension is to be built. Extensions are compiled with the headers of the
torch that they run with, and their setup.py imports it.

## Why it matters
The build stops at the import of torch. It also stops if torch is installed but pip builds in isolation, in an
empty environment with another torch or none.

## How to fix
Install torch first, in the version and CUDA build that will be used. Then build with
``--no-build-isolation``. Rebuild the extensions after every change of torch.

## References
- torch/utils/cpp_extension.py
- pip documentation, build isolation
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import compilation, fix_steps

CODE = "BLD008"
SEVERITY = "error"
READS = (*compilation.READS, *fix_steps.READS)
REQUIRED_FACTS = ("job.wants", "env.BUILD_EXT")
BROKEN = {"job.wants": ("build",), "package.torch": None, "python.path": "/venv/bin/python"}
HEALTHY = BROKEN | {"package.torch": "2.8.0+cu128"}
CITE = "torch/utils/cpp_extension.py: an extension is compiled with the headers of the torch it runs with"


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if not compilation.build_requested(facts, contract) or facts.value("package.torch") is not None:
        return None
    own = compilation.find_contract_variable(contract, "BUILD_EXT")
    return make_finding(
        "torch is not installed, and the build needs it",
        found=(facts.fact("package.torch"), facts.fact("job.wants")),
        needs=(Requirement("package.torch", "*", cite=own.cite if own and own.cite else CITE),),
        so="the build stops when its setup.py imports torch",
        fix=(
            fix_steps.replace_torch_step(facts, contract) or FixStep("install torch first"),
            FixStep("then build with pip install --no-build-isolation, which uses this torch"),
        ),
    )
