"""The libcuda that programs would load is a stub for linking.

The CUDA toolkit brings a libcuda in ``lib64/stubs`` so that programs can be linked on machines without a
driver. It has every symbol and does nothing: the first call answers with error 34. When that folder stands
on LD_LIBRARY_PATH, as build recipes sometimes leave it, the stub is found before the driver's library.

Take the folder out of LD_LIBRARY_PATH; LIBRARY_PATH is the variable for linking. Nothing need be installed.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement

CODE = "DRV005"
SEVERITY = "error"
READS = ("gpu.count", "driver.stub")
BROKEN = {"gpu.count": 1, "driver.stub": "/usr/local/cuda/lib64/stubs/libcuda.so.1"}
HEALTHY = {"gpu.count": 1, "driver.stub": None}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "cuda" not in contract.platforms or not facts.value("gpu.count"):
        return None
    stub = facts.value("driver.stub")
    if stub is None:
        return None
    return Finding(
        CODE,
        SEVERITY,
        "the libcuda that programs would load is a stub",
        found=(facts.fact("driver.stub"),),
        needs=(Requirement("libcuda.path", "*", cite="CUDA runtime API, cudaErrorStubLibrary (34)"),),
        so="every CUDA program fails at its first call, whatever the driver",
        fix=(FixStep(f"take {str(stub).rpartition('/')[0]} out of LD_LIBRARY_PATH"),),
    )
