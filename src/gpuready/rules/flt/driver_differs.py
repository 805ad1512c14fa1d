"""The driver differs between nodes of one kind.

Most nodes of the fleet, or the reference, have one version of the NVIDIA driver, and some have another. Two drivers in
one job load two versions of libcuda and answer differently: kernels that one can load the other cannot, NCCL
negotiates less, figures differ, and a wheel that needs the newer one fails on a few ranks only, as if it were the
job's fault.

It is an error where a few nodes differ from a clear majority. Two parts of similar size are a rolling upgrade
or a plan, and FLT006 names them. Give the nodes the same driver, and restart them so that the kernel loads it.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep
from gpuready.rules import fleet_findings

CODE = "FLT002"
SEVERITY = "error"
READS = ("fleet.drift",)
BROKEN, HEALTHY = fleet_findings.drift_examples("driver", "driver.version", "580.95.05", "550.54.15")
FACETS = ("driver",)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return fleet_findings.drift_finding(
        facts,
        CODE,
        SEVERITY,
        FACETS,
        so="ranks on these nodes run with another driver than all others, and fail or slow down alone",
        fix=(
            FixStep("install the driver of the other nodes and restart", note="needs root"),
            FixStep("keep jobs away from them until then, with the exclude list of this report"),
        ),
    )
