"""A capability could not be executed: what it needs is not here.

``gpuready prove`` found nothing to execute it on or with: there is no GPU, or CUDA_VISIBLE_DEVICES hides it, a package is not
installed, or this GPU or this build of torch does not have the feature. What did not run is not ready, and what ran on the CPU
does not count for a GPU.

It is an error for a capability that the contract requires or the job asks for, else a line of information. Install what
is missing (``gpuready plan FRAMEWORK --wants NAME`` chooses the version), make the GPU visible, or leave the feature out.
"""

from __future__ import annotations

from gpuready.model import Step
from gpuready.rules import executed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuready.model import Contract, Facts, Finding

CODE = "CAP016"
SEVERITY = "error"
READS = executed.READS
SIGNS = ()
CONTRACT = {"capabilities": ({"name": "bf16", "level": "required"},)}
BROKEN, HEALTHY = executed.examples("absent", "no GPU")


def judge(facts: Facts, contract: Contract) -> Finding | None:
    found = executed.rows(facts, "absent", "unsupported")
    if not found:
        executed.looked(facts)
        if facts.value("proof.results"):
            for name in executed.required(contract):  # one that was not executed leaves this undecided
                facts.value(f"can.{name}")
        return None
    grave = set(executed.required(contract))
    found.sort(key=lambda row: grave.isdisjoint(row["capability"]))
    says = f"not here, so not executed: {executed.named(found)}: {found[0].get('why')}"
    so = "what did not run is not ready, and the CPU does not count for a GPU"
    told = executed.finding(facts, contract, CODE, found, says, so)
    severity = told.severity if told.severity == "error" else "info"
    return told.but(severity=severity, fix=tuple(_ways(found, contract)))


def _ways(found: list[dict[str, Any]], contract: Contract) -> list[Step]:
    steps = []
    if any(str(row.get("why", "")).endswith("is not installed") for row in found):
        names = ",".join(dict.fromkeys(str(row["capability"][0]) for row in found))
        steps.append(
            Step(
                "see which version would fit here",
                ("gpuready", "plan", contract.framework, "--wants", names),
                "safe",
            )
        )
    if any("GPU" in str(row.get("why", "")) for row in found):
        steps.append(Step("run it on a machine with such a GPU, or make the one that is here visible"))
    return steps or [Step("leave it out of what the job asks for")]
