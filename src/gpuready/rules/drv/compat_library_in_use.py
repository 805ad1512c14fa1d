"""A libcuda of the cuda-compat package is loaded instead of the driver's.

## What it checks
Whether a cuda-compat libcuda comes first on the library path, and whether it works with this driver and GPU.
It works only on data-centre GPUs with a driver older than the library. On a driver of a newer branch, or on
GeForce cards with an older driver, it is an error; otherwise it is information. Jetson has a different compat
package.

## Why it matters
CUDA does not start: error 803 (unsupported driver combination), or error 804 (``forward compatibility was
attempted on non supported HW``). CUDA images contain the library in /usr/local/cuda/compat, and some enable
it for everybody.

## How to fix
Remove the folder from LD_LIBRARY_PATH, or from /etc/ld.so.conf.d and run ldconfig.

## References
- CUDA Compatibility, Forward Compatibility
"""

from gpuready.catalog import cuda as catalogue
from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding, versions
from gpuready.rules import gpu_health

CODE = "DRV011"
SEVERITY = "error"
READS = (
    *("driver.compat", "driver.library", "driver.version", "gpu.count", "gpu.visible", "gpu.name"),
    *("gpu.capability", "job.wants"),
)
REQUIRED_FACTS = ("gpu.count",)
BROKEN = {
    "gpu.count": 1,
    "driver.compat": "/usr/local/cuda/compat/libcuda.so.570.124.06",
    "driver.library": "570.124.06",
    "driver.version": "580.95.05",
}
HEALTHY = BROKEN | {"driver.compat": None, "driver.library": "580.95.05"}
CITE = "CUDA Compatibility, Forward Compatibility"


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if gpu_health.is_not_applicable(facts, contract, "driver.compat") or not facts.value("gpu.count"):
        return None
    path = facts.value("driver.compat")
    if path is None:
        return None
    message, so, want = _compat_failure(facts) or (
        "the libcuda of cuda-compat is loaded instead of the driver's",
        "it is only for newer CUDA programs on an older driver of a data-centre GPU",
        "",
    )
    folder = str(path).rpartition("/")[0]
    return make_finding(
        message,
        found=tuple(facts.fact(key) for key in ("driver.compat", "driver.library", "driver.version")),
        needs=(Requirement("driver.library", want or "*", cite=CITE),),
        so=so,
        fix=(FixStep(f"remove {folder} from LD_LIBRARY_PATH and the loader's configuration"),),
        severity=SEVERITY if want else "info",
    )


def _compat_failure(facts: Facts) -> tuple[str, str, str] | None:
    """Return the problem, its consequence and the required library; None if the library may work."""
    library, driver = facts.value_if_known("driver.library"), facts.value_if_known("driver.version")
    if library is None or driver is None or _has_integrated_gpu(facts):
        return None
    ahead = versions.major_version(library) - versions.major_version(driver)
    if ahead < 0:
        so = "CUDA does not start: error 803, unsupported display driver / cuda driver combination"
        return f"the libcuda of cuda-compat, {library}, is older than the driver {driver}", so, f">={driver}"
    if ahead > 0 and gpu_health.has_only_consumer_gpus(facts):
        so = "CUDA does not start: error 804, no forward compatibility on this hardware"
        return "the libcuda of cuda-compat does not support GeForce cards", so, f"=={driver}"
    return None


def _has_integrated_gpu(facts: Facts) -> bool:
    """Detect Jetson boards, whose driver versions are numbered differently."""
    rule = catalogue.find_cuda_rule("cubin_compat")
    chips = {*rule["integrated"], *rule["same_chip"]}
    return not chips.isdisjoint(facts.value_if_known("gpu.capability") or ())
