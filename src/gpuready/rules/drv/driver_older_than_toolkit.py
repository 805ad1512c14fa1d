"""The driver is older than the CUDA toolkit needs.

## What it checks
The driver version against the minimum of the toolkit's major release (11.x: 450.80.02, 12.x: 525.60.13, 13.x:
580.65.06). It is a warning if something is to be built, else information. If torch is installed, DRV001 and
BLD001 are more exact and this rule is silent.

## Why it matters
A program that nvcc builds compiles without a message and does not start on this driver. The CUDA version that
``nvidia-smi`` prints is what the driver supports; ``nvcc --version`` is the toolkit. Within one major
release, PTX from a newer toolkit does not run on an older driver either (``compiled with an unsupported
toolchain``).

## How to fix
Set CUDA_HOME to an older toolkit, or install a newer driver.

## References
- CUDA Toolkit release notes, CUDA toolkit and driver versions
"""

from gpuready.catalog import cuda as catalogue
from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, UnknownFactError, make_finding
from gpuready.rules import contract_needs
from gpuready.rules.bld import toolkit_torch_major_differs as bld

CODE = "DRV006"
SEVERITY = "warning"
KEYS = ("toolkit.version", "driver.version", "toolkit.path")
READS = (*KEYS, "toolkit.others", "driver.compat", "torch.cuda", *contract_needs.READS)
REQUIRED_FACTS = ("driver.version",)
BROKEN = {
    "job.wants": ("build",),
    "toolkit.version": "13.0",
    "toolkit.path": "/usr/local/cuda-13.0",
    "driver.version": "550.144.03",
    "torch.cuda": None,
}
HEALTHY = BROKEN | {"toolkit.version": "12.8.93", "toolkit.path": "/usr/local/cuda-12.8"}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "cuda" not in contract.platforms:
        return None
    builds = bld.must_build(facts, contract)
    if not builds and None in [contract_needs.peek_fact(facts, key) for key in KEYS[:2]]:
        return None
    toolkit, driver = facts.value("toolkit.version"), facts.value("driver.version")
    if toolkit is None or driver is None or facts.value_if_known("torch.cuda"):
        return None
    if _toolkit_runs_on_driver(facts, driver, toolkit, builds):
        return None
    floor, cite = catalogue.minimum_driver(toolkit)
    return make_finding(
        f"driver {driver} is too old for programs built with CUDA {toolkit}",
        found=tuple(facts.fact(key) for key in KEYS if key in facts),
        needs=(Requirement("driver.version", f">={floor}", level="recommended", cite=cite),),
        so="programs built with nvcc do not start here: the driver is insufficient",
        fix=(
            _older_toolkit_step(facts, driver),
            FixStep(f"install driver {floor} or newer and reboot", note="needs root"),
        ),
        severity=SEVERITY if builds else "info",
    )


def _toolkit_runs_on_driver(facts: Facts, driver: str, toolkit: str, matters: bool) -> bool:
    """Return whether what the toolkit builds runs here; raise Unknown if that is unknown and matters."""
    answer = catalogue.driver_runs_cuda(driver, toolkit, compat=bool(facts.value_if_known("driver.compat")))
    if answer is None and matters:
        gap = f"it is not known whether CUDA {toolkit} runs on driver {driver}"
        raise UnknownFactError(facts.fact("toolkit.version").replace(value=None, gap=gap))
    return answer is not False


def _older_toolkit_step(facts: Facts, driver: str) -> FixStep:
    """Return a step that uses an installed toolkit matching the driver, else one to install."""
    for row in facts.value_if_known("toolkit.others") or ():
        if row.get("path") and row.get("version") and catalogue.driver_runs_cuda(driver, row["version"]):
            return FixStep(f"set CUDA_HOME={row['path']}, which is CUDA {row['version']}")
    newest = catalogue.newest_cuda_for_driver(driver)
    return FixStep(f"install the CUDA toolkit {newest or 'that the driver supports'} and set CUDA_HOME to it")
