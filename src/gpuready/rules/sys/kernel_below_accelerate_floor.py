"""The Linux kernel is older than accelerate recommends.

## What it checks
The version of the kernel against 5.5, where the framework brings accelerate (transformers with its trainer, TRL,
Axolotl, LLaMA-Factory and others) or it is installed.

## Why it matters
accelerate itself warns at its start: below 5.5 a process may hang, mostly at the first collective or when workers
load data. CentOS 7 and 8, Ubuntu 18.04 and 20.04 (without its HWE kernel) have older ones.

## How to fix
Upgrade the kernel of the host. A container has the kernel of its host, so another image does not help.

## References
- accelerate src/accelerate/utils/other.py, check_os_kernel
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import contract_needs

CODE = "SYS031"
SEVERITY = "warning"
READS = ("os.system", "os.kernel", "package.accelerate")
CONTRACT = {"needs": ({"key": "package.accelerate", "want": ">=1.0", "cite": "METADATA"},)}
BROKEN = {"os.system": "linux", "os.kernel": "4.18.0", "package.accelerate": "1.13.0"}
HEALTHY = BROKEN | {"os.kernel": "5.15.0"}
FLOOR = Requirement(
    "os.kernel", ">=5.5", "", "recommended", "accelerate src/accelerate/utils/other.py, check_os_kernel: 5.5.0"
)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if not _brings_accelerate(facts, contract) or facts.value("os.system") != "linux":
        return None
    if facts.value("os.kernel") is None or not contract_needs.unmet_needs(facts, [FLOOR]):
        return None
    return make_finding(
        f"kernel {facts.value('os.kernel')} is older than accelerate recommends",
        found=(facts.fact("os.kernel"),),
        needs=(FLOOR,),
        so="processes may hang, mostly at the first collective; accelerate warns of it when it starts",
        fix=(FixStep("upgrade the kernel of the host to 5.5 or newer, and reboot", note="needs root"),),
    )


def _brings_accelerate(facts: Facts, contract: Contract) -> bool:
    return bool(contract.requirements_for("package.accelerate") or facts.value_if_known("package.accelerate"))
