"""The driver is older than the framework requires.

## What it checks
The driver version against the version that the framework names, in addition to what torch needs
(DRV001). A required version is an error, a recommended one a warning.

## Why it matters
The framework may refuse to start, or fail where it uses a newer driver feature. Accelerate, for example,
treats drivers before 550.40.07 as too old for peer-to-peer on some consumer cards.

## How to fix
Update the driver, which needs root and a reboot. On a cluster ask the administrator. In a container the
driver is the host's and no image changes it.

## References
- The framework's requirements, with their citations in the finding
"""

from gpuready.model import Contract, Facts, Finding, FixStep, make_finding
from gpuready.rules import contract_needs

CODE = "DRV003"
SEVERITY = "error"
READS = ("driver.version", *contract_needs.READS)
REQUIRED_FACTS = ("driver.version",)
CONTRACT = {"needs": ({"key": "driver.version", "want": ">=525", "cite": "environment page"},)}
BROKEN = {"driver.version": "470.256.02"}
HEALTHY = {"driver.version": "525.60.13"}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    stated = contract.requirements_for("driver.version")
    if not stated or "cuda" not in contract.platforms:
        return None
    # GPU001 and DRV004 report a missing driver.
    failed = [
        n for n in contract_needs.unmet_needs(facts, stated) if facts.value_if_known("driver.version") is not None
    ]
    if not failed:
        return None
    wanted = " and ".join(dict.fromkeys(need.want for need in failed))
    return make_finding(
        f"the driver is incompatible with {contract.framework}",
        found=(facts.fact("driver.version"),),
        needs=tuple(failed),
        so=f"{contract.framework} may refuse to start, or fail where it uses newer driver features",
        fix=(FixStep(f"install driver {wanted} and reboot", note="needs root"),),
        severity=contract_needs.worst_need_severity(failed),
    )
