"""The libcuda that programs would load is a stub for linking.

## What it checks
Whether the first libcuda on the library path is the one from the CUDA toolkit's ``lib64/stubs`` folder. It
exists so that programs can be linked on machines without a driver, and it does nothing.

## Why it matters
Every CUDA program fails at its first call with error 34. Build recipes sometimes leave that folder on
LD_LIBRARY_PATH, before the driver's own library.

## How to fix
Remove the folder from LD_LIBRARY_PATH. For linking, use LIBRARY_PATH. Nothing needs to be installed.

## References
- CUDA runtime API, cudaErrorStubLibrary (34)
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding

CODE = "DRV005"
SEVERITY = "error"
READS = ("gpu.count", "driver.stub")
REQUIRED_FACTS = ("gpu.count",)
BROKEN = {"gpu.count": 1, "driver.stub": "/usr/local/cuda/lib64/stubs/libcuda.so.1"}
HEALTHY = {"gpu.count": 1, "driver.stub": None}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "cuda" not in contract.platforms or not facts.value("gpu.count"):
        return None
    stub = facts.value("driver.stub")
    if stub is None:
        return None
    return make_finding(
        "the libcuda that programs would load is a stub",
        found=(facts.fact("driver.stub"),),
        needs=(Requirement("libcuda.path", "*", cite="CUDA runtime API, cudaErrorStubLibrary (34)"),),
        so="every CUDA program fails at its first call",
        fix=(FixStep(f"remove {str(stub).rpartition('/')[0]} from LD_LIBRARY_PATH"),),
    )
