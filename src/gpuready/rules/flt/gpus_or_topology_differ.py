"""The GPUs, or how they are connected, differ between nodes of one kind.

## What it checks
GPU models, memory, MIG, ECC, NVLink, PCIe width, NUMA and NVSwitch service against the majority. Different
GPUs are an error, different connections a warning. Kinds of GPUs of which the fleet has many are compared
only among themselves.

## Why it matters
A job runs at the speed of its slowest node, and placement tuned for one layout is wrong for the other.

## How to fix
Set MIG and ECC as on the other nodes, and check the links with ``nvidia-smi topo -m``.

## References
- gpuready guide: fleet (docs/how-to/fleet.md)
"""

from gpuready.model import Contract, Facts, Finding, FixStep
from gpuready.rules import fleet_findings

CODE = "FLT008"
SEVERITY = "error"
READS = ("fleet.drift",)
REQUIRED_FACTS = ("fleet.drift",)
BROKEN, HEALTHY = fleet_findings.drift_examples("gpus", "gpu.ecc", "8 x on", "8 x off")
AREAS = ("gpus", "topology")


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return fleet_findings.drift_finding(
        facts,
        AREAS,
        so="a job over these nodes has the speed and memory of the different one",
        fix=(
            FixStep("set MIG and ECC as on the other nodes, and check the links with nvidia-smi topo -m"),
            FixStep("exclude them from jobs until then, with the exclude list of this report"),
        ),
        error_areas=("gpus",),
    )
