"""A CUDA library from elsewhere is loaded instead of the one that torch brings.

## What it checks
Whether LD_LIBRARY_PATH or LD_PRELOAD leads to another copy of a CUDA library than the one in torch's wheels.
It is a warning with both paths. It is an error if nvJitLink comes from a toolkit older than torch's CUDA:
torch then cannot be imported.

## Why it matters
Libraries of different releases are mixed. The import fails with an undefined symbol, the first convolution
with ``cuDNN version incompatibility``, or an untested version is used without a message.

## How to fix
Remove the folder from LD_LIBRARY_PATH. torch finds its own libraries without it.

## References
- ld.so(8)
- PyTorch issues on libnvJitLink
"""

import re
from typing import Any

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding, versions
from gpuready.rules import visible_gpus

CODE = "PKG017"
SEVERITY = "warning"
READS = ("library.shadowed", "torch.cuda")
REQUIRED_FACTS = ("library.shadowed",)
BROKEN = {
    "torch.cuda": "12.8",
    "library.shadowed": {
        "libcudnn.so.9": {
            "taken": "/usr/lib/x86_64-linux-gnu/libcudnn.so.9",
            "instead_of": "/venv/lib/python3.12/site-packages/nvidia/cudnn/lib/libcudnn.so.9",
            "because": "LD_LIBRARY_PATH, for libtorch_cuda.so",
        }
    },
}
HEALTHY = {"torch.cuda": "12.8", "library.shadowed": {}}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    cuda = facts.value("torch.cuda") if "cuda" in contract.platforms else None
    if cuda is None:
        return None
    rows: dict[str, dict[str, Any]] = facts.value("library.shadowed") or {}
    if not rows:
        return None
    folders = list(dict.fromkeys(str(row["taken"]).rpartition("/")[0] for row in rows.values()))
    reasons = list(dict.fromkeys(str(row["because"]).partition(",")[0] for row in rows.values()))
    own = [str(row["instead_of"]) for row in rows.values()]
    return make_finding(
        f"loaded instead of torch's own libraries: {visible_gpus.join_names(list(rows), 4)}",
        found=(facts.fact("library.shadowed"), facts.fact("torch.cuda")),
        needs=tuple(Requirement("library.shadowed", path, cite="what came with torch") for path in own),
        so="imports fail with an undefined symbol, or an untested version is used",
        fix=(FixStep(f"remove {visible_gpus.join_names(folders)} from {visible_gpus.join_names(reasons)}"),),
        severity="error" if any(_is_older_nvjitlink(name, row, cuda) for name, row in rows.items()) else SEVERITY,
    )


def _is_older_nvjitlink(name: str, row: dict[str, Any], cuda: str) -> bool:
    """Return whether it is nvJitLink of an older toolkit, by the name of the toolkit's folder."""
    toolkit = re.search(r"/cuda-(\d+\.\d+)/", str(row["taken"]))
    if toolkit is None or not name.startswith("libnvJitLink"):
        return False
    older = versions.major_minor(toolkit[1]) < versions.major_minor(cuda)
    return older and versions.major_version(toolkit[1]) == versions.major_version(cuda)
