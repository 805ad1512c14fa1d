"""The installed numpy 2 does not go with a torch this old.

torch up to 2.2 is compiled for numpy 1, and its metadata sets no upper bound, so that a plain install
brings numpy 2 beside it. torch is imported with a long warning; from then on ``torch.from_numpy`` and
``tensor.numpy()`` fail with ``Numpy is not available``, and with them most of what loads data.

Releases from 2.3 on take both. Builds of torch of your own are not judged. Install a numpy below 2, or a
newer torch where the framework takes it. Other packages that were compiled for numpy 1 print the same
warning with a newer torch; their name stands in its traceback, and they have to be upgraded.
"""

from __future__ import annotations

from gpuready.model import Finding, Requirement, versions
from gpuready.rules import fix_steps, torch_compatibility

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts

CODE = "PKG021"
SEVERITY = "error"
READS = torch_compatibility.READS
PATTERNS = (
    {"says": "A module that was compiled using NumPy 1.x cannot be run in", "as": "clue"},
    "RuntimeError: Numpy is not available",
    {"says": "Numpy is not available", "in": "exception"},
    {"says": "numpy.dtype size changed, may indicate binary incompatibility", "in": "exception"},
    {"says": "numpy.ufunc size changed, may indicate binary incompatibility", "in": "exception"},
    {"says": "numpy.ndarray size changed, may indicate binary incompatibility", "in": "exception"},
    "numpy.core.multiarray failed to import",
    "numpy.core.umath failed to import",
    "numpy._core.multiarray failed to import",
    "was removed in the NumPy 2.0 release",
    {"says": "cannot import name '{name}' from 'numpy", "in": "exception"},
    {"says": "No module named 'numpy._core", "in": "exception"},
    {"says": "No module named 'numpy.core", "in": "exception"},
    {"says": "numpy{}is required for a normal functioning of this module, but found numpy==", "in": "exception"},
    {"says": "module compiled against ABI version {} but this version of numpy is", "as": "clue"},
    {"says": "module compiled against API version {} but this version of numpy is", "as": "clue"},
    {"says": "module was compiled against NumPy C-API version {} but the running NumPy has"},
    {"says": "AttributeError: _ARRAY_API not found", "as": "clue"},
    {"says": "Failed to initialize NumPy: _ARRAY_API not found", "as": "trace"},
    {"says": "module 'numpy' has no attribute", "in": "exception", "as": "clue"},
    {"says": "module 'numpy.core' has no attribute", "in": "exception"},
    {"says": "Unable to avoid copy while creating an array as requested", "in": "exception"},
    {"says": "Numba needs NumPy {} or less", "in": "exception"},
    {"says": "size changed, may indicate binary incompatibility", "as": "clue"},
)
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
