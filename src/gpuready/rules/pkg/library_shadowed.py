"""A CUDA library from elsewhere takes the place of the one that torch brings.

The wheels of torch come with the CUDA libraries that they were tested with. LD_LIBRARY_PATH, set by a
module file, an image or an old advice, and LD_PRELOAD go before some of them: cuSPARSE from the wheel then
meets nvJitLink from a toolkit, or torch an older NCCL or cuDNN. The import ends with an undefined symbol,
the first convolution with ``cuDNN version incompatibility``, or nothing happens at all and the wrong
library is merely used.

It is a warning, with both paths and what led there. It is an error where nvJitLink comes from a toolkit
that is older than torch's CUDA: each release has functions that the older ones lack, and torch cannot be
imported. Take the folder out of LD_LIBRARY_PATH; torch finds its own without help.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, versions
from gpuready.rules import visible_gpus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


CODE = "PKG017"
SEVERITY = "warning"
READS = ("library.shadowed", "torch.cuda")
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
    return Finding(
        CODE,
        "error" if any(_is_older_nvjitlink(name, row, cuda) for name, row in rows.items()) else SEVERITY,
        f"not the libraries that torch brings: {visible_gpus.join_names(list(rows), 4)}",
        found=(facts.fact("library.shadowed"), facts.fact("torch.cuda")),
        needs=tuple(Requirement("library.shadowed", path, cite="what came with torch") for path in own),
        so="imports end with an undefined symbol, or another version is used than torch was tested with",
        fix=(FixStep(f"take {visible_gpus.join_names(folders)} out of {visible_gpus.join_names(reasons)}"),),
    )


def _is_older_nvjitlink(name: str, row: dict[str, Any], cuda: str) -> bool:
    """Return whether it is nvJitLink of an older toolkit, by the name of the toolkit's folder."""
    import re

    toolkit = re.search(r"/cuda-(\d+\.\d+)/", str(row["taken"]))
    if toolkit is None or not name.startswith("libnvJitLink"):
        return False
    older = versions.major_minor(toolkit[1]) < versions.major_minor(cuda)
    return older and versions.major_version(toolkit[1]) == versions.major_version(cuda)
