"""The installed numpy 2 is incompatible with this torch.

## What it checks
Whether torch 2.2 or older is installed with numpy 2. Those releases are compiled for numpy 1 and set no upper
bound. Own builds of torch are not checked.

## Why it matters
torch is imported with a long warning, and ``torch.from_numpy`` and ``tensor.numpy()`` fail with ``Numpy is
not available``.

## How to fix
Install numpy below 2, or a newer torch if the framework allows it. If a newer torch prints the same warning,
another package was compiled for numpy 1: the traceback names it, and it must be upgraded.

## References
- PyTorch 2.3 release notes
- NumPy 2.0 migration guide
"""

from gpuready.model import Contract, Facts, Finding, Requirement, make_finding, versions
from gpuready.rules import fix_steps, torch_compatibility

CODE = "PKG021"
SEVERITY = "error"
READS = torch_compatibility.READS
BROKEN = {"torch.version": "2.2.2+cu121", "package.numpy": "2.1.3", "python.path": "/venv/bin/python"}
HEALTHY = BROKEN | {"package.numpy": "1.26.4"}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    torch = torch_compatibility.installed_torch_release(facts)
    if torch is None or versions.major_minor(torch) >= (2, 3):
        return None
    numpy = facts.value("package.numpy")
    if numpy is None or versions.major_version(str(numpy)) < 2:
        return None
    return make_finding(
        f"torch {torch} is compiled for numpy 1, but numpy {numpy} is installed",
        found=(facts.fact("torch.version"), facts.fact("package.numpy")),
        needs=(Requirement("package.numpy", "<2", cite="PyTorch 2.3 release notes: numpy 2 from 2.3 on"),),
        so="tensors and arrays cannot be converted: Numpy is not available",
        fix=(fix_steps.install_step(facts, "install numpy below 2", "numpy<2"),),
    )
