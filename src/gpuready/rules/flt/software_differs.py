"""The software of the job differs between nodes of one kind.

torch, the CUDA libraries, compiled kernel packages, Python or any other package has another version on some nodes
than on most of them. Ranks then compile other kernels, send tensors of another layout or fail to unpickle what the
others wrote. Environments on local disks drift apart with every hand-made install; a shared or locked environment
does not.

It is an error for torch, CUDA libraries and compiled kernels, a warning where only other packages or Python
differ. Install the environment again from one lock: ``gpuready install --locked`` on each of the nodes named here.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep
from gpuready.rules import fleet_findings

CODE = "FLT003"
SEVERITY = "error"
READS = ("fleet.drift",)
BROKEN, HEALTHY = fleet_findings.drift_examples("torch", "torch.version", "2.8.0+cu128", "2.7.1+cu126")
FACETS = ("torch", "cuda", "kernels", "packages", "python")
GRAVE = ("torch", "cuda", "kernels")


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return fleet_findings.drift_finding(
        facts,
        CODE,
        SEVERITY,
        FACETS,
        so="ranks on these nodes run other code than all others, and may fail or differ alone",
        fix=(
            FixStep("install the environment of these nodes again from the lock of the others"),
            FixStep("keep jobs away from them until then, with the exclude list of this report"),
        ),
        error_facets=GRAVE,
    )
