"""A capability could not be executed, because something it needs is missing.

## What it checks
Whether ``gpuready prove`` could execute each capability: there is a visible GPU, the package is installed,
and the GPU and torch have the feature. It is an error if the contract requires the capability or the job asks
for it, else information.

## Why it matters
What did not run is not proven. A run on the CPU does not count for a GPU.

## How to fix
Install what is missing (``gpuready plan FRAMEWORK --wants NAME`` chooses the version), make the GPU visible,
or leave the feature out.

## References
- gpuready guide: prove (docs/how-to/prove.md)
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep
from gpuready.rules import proof_results

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


CODE = "CAP016"
SEVERITY = "error"
READS = proof_results.READS
CONTRACT = {"capabilities": ({"name": "bf16", "level": "required"},)}
BROKEN, HEALTHY = proof_results.proof_examples("absent", "no GPU")


def judge(facts: Facts, contract: Contract) -> Finding | None:
    proofs = proof_results.select_proofs(facts, "absent", "unsupported")
    if not proofs:
        proof_results.read_proof_facts(facts)
        if facts.value("proof.results"):
            for name in proof_results.required_capabilities(
                contract
            ):  # one that was not executed leaves this undecided
                facts.value(f"can.{name}")
        return None
    required = set(proof_results.required_capabilities(contract))
    proofs.sort(key=lambda row: required.isdisjoint(row["capability"]))
    message = f"could not be executed: {proof_results.name_proofs(proofs)}: {proofs[0].get('why')}"
    so = "what did not run is not proven, and a run on the CPU does not count for a GPU"
    finding = proof_results.proof_finding(facts, contract, CODE, proofs, message, so)
    lowered = finding.severity if finding.severity == "error" else "info"
    return finding.replace(severity=lowered, fix=tuple(_missing_capability_steps(proofs, contract)))


def _missing_capability_steps(proofs: list[dict[str, Any]], contract: Contract) -> list[FixStep]:
    steps = []
    if any(str(row.get("why", "")).endswith("is not installed") for row in proofs):
        names = ",".join(dict.fromkeys(str(row["capability"][0]) for row in proofs))
        steps.append(
            FixStep(
                "show which version is compatible", ("gpuready", "plan", contract.framework, "--wants", names), "safe"
            )
        )
    if any("GPU" in str(row.get("why", "")) for row in proofs):
        steps.append(FixStep("run it on a machine with such a GPU, or make the GPU visible"))
    return steps or [FixStep("do not ask for it")]
