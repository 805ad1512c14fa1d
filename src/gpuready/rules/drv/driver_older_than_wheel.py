"""The driver is older than the torch wheel needs.

## What it checks
The driver version against the minimum of the CUDA major release that torch is built for: 450.80.02 for 11.x,
525.60.13 for 12.x, 580.65.06 for 13.x (minor-version compatibility). A cuda-compat library that is in use
counts.

## Why it matters
Below the minimum CUDA does not initialise: ``torch.cuda.is_available()`` is False, and no GPU can be used.

## How to fix
Install a torch built for an older CUDA (no root needed), or a newer driver (root and a reboot). On
data-centre GPUs NVIDIA's cuda-compat package is a third way.

## References
- CUDA Toolkit release notes, CUDA toolkit and driver versions
- CUDA Compatibility, minor version compatibility
"""

from gpuready.catalog import cuda as catalogue
from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, UnknownFactError, make_finding
from gpuready.rules import fix_steps, job_request

CODE = "DRV001"
SEVERITY = "error"
READS = ("torch.cuda", "gpu.count", "gpu.name", "os.system", "job.wants", *fix_steps.READS)
REQUIRED_FACTS = ("gpu.count",)
BROKEN = {"torch.cuda": "13.0", "driver.version": "550.144.03", "driver.compat": None, "gpu.count": 1}
HEALTHY = {"torch.cuda": "13.0", "driver.version": "580.95.05", "driver.compat": None, "gpu.count": 1}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "cuda" not in contract.platforms or not facts.value("gpu.count") or job_request.job_asks_for(facts, "cpu"):
        return None
    built_for = facts.value("torch.cuda")
    if built_for is None:
        return None
    driver = facts.value("driver.version")
    if driver is None or _wheel_runs_on_driver(facts, driver, built_for):
        return None
    floor, cite = catalogue.minimum_driver(built_for, facts.value_if_known("os.system"))
    torch = fix_steps.replace_torch_step(facts, contract)
    compat = catalogue.compat_package(built_for, driver, facts.value_if_known("gpu.name") or ())
    return make_finding(
        "the driver is older than the torch wheel needs",
        found=(facts.fact("driver.version"), facts.fact("torch.cuda")),
        needs=(Requirement("driver.version", f">={floor}", cite=cite),),
        so="torch.cuda.is_available() is False; nothing runs on these GPUs",
        fix=(
            *((torch,) if torch else ()),
            FixStep(f"install driver {floor} or newer and reboot", safety="manual", note="needs root"),
            *([FixStep(f"install {compat}, which brings a newer libcuda to this driver")] if compat else []),
        ),
    )


def _wheel_runs_on_driver(facts: Facts, driver: str, built_for: str) -> bool:
    compat = bool(facts.value_if_known("driver.compat"))
    answer = catalogue.driver_runs_cuda(driver, built_for, compat=compat, system=facts.value_if_known("os.system"))
    if answer is None or (compat and not answer and catalogue.compat_branches(built_for) is None):
        gap = f"it is not known whether CUDA {built_for} runs on driver {driver}"
        raise UnknownFactError(facts.fact("torch.cuda").replace(value=None, gap=gap))
    return answer
