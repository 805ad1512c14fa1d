"""The installed numpy 2 does not go with a torch this old.

torch up to 2.2 is compiled for numpy 1, and its metadata sets no upper bound, so that a plain install
brings numpy 2 beside it. torch is imported with a long warning; from then on ``torch.from_numpy`` and
``tensor.numpy()`` fail with ``Numpy is not available``, and with them most of what loads data.

Releases from 2.3 on take both. Builds of torch of your own are not judged. Install a numpy below 2, or a
newer torch where the framework takes it. Other packages that were compiled for numpy 1 print the same
warning with a newer torch; their name stands in its traceback, and they have to be upgraded.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, Requirement, versions
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
    return Finding(
        CODE,
        SEVERITY,
        f"torch {torch} is compiled for numpy 1, and numpy {numpy} is installed",
        found=(facts.fact("torch.version"), facts.fact("package.numpy")),
        needs=(Requirement("package.numpy", "<2", cite="PyTorch 2.3 release notes: numpy 2 from 2.3 on"),),
        so="tensors cannot be made from arrays nor turned into them: Numpy is not available",
        fix=(fix_steps.install_step(facts, "install numpy below 2", "numpy<2"),),
    )
