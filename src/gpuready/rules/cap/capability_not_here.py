"""A capability could not be executed, because something it needs is missing.

## What it checks
Whether ``gpuready prove`` could execute each capability: there is a visible GPU, the package is installed,
and the GPU and torch have the feature. It is an error if the framework requires the capability or the job asks
for it, else information.

## Why it matters
What did not run is not proven. A run on the CPU does not count for a GPU.

## How to fix
Install what is missing (``gpuready plan FRAMEWORK`` chooses the versions, with ``--wants NAME`` those of a feature),
make the GPU visible, or leave the feature out.

## References
- gpuready guide: prove (docs/how-to/prove.md)
"""

from typing import Any

from gpuready.contracts import when as conditions
from gpuready.model import Contract, Facts, Finding, FixStep
from gpuready.rules import fix_steps, proof_results

CODE = "CAP016"
SEVERITY = "error"
READS = (*proof_results.READS, *fix_steps.READS)
REQUIRED_FACTS = ("proof.results",)
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
    so = "what did not run is not proven, and a run on the CPU does not count for a GPU"
    finding = proof_results.proof_finding(facts, contract, proofs, "could not be executed", so)
    lowered = finding.severity if finding.severity == "error" else "info"
    return finding.replace(severity=lowered, fix=tuple(_missing_capability_steps(facts, contract, proofs)))


def _missing_capability_steps(facts: Facts, contract: Contract, proofs: list[dict[str, Any]]) -> list[FixStep]:
    lacking = [(str(row.get("lacks") or ""), str(row["capability"][0])) for row in proofs]
    missing = {package: name for package, name in lacking if package not in ("", "gpu")}
    steps = _install_steps(facts, contract, missing)
    if any(package == "gpu" for package, _ in lacking):
        steps.append(FixStep("run it on a machine with such a GPU, or make the GPU visible"))
    return steps or [FixStep("do not ask for it")]


def _install_steps(facts: Facts, contract: Contract, missing: dict[str, str]) -> list[FixStep]:
    """Plan what the plan of the framework knows: itself, torch, and its features by name; install the other packages."""
    when = [*(need.when for need in contract.needs), *(one.when for one in contract.capabilities)]
    known = {word for condition in when for word in conditions.wanted_words(condition)}
    framework = "" if contract.framework == "torch" else contract.framework  # no framework asked for: nothing to plan
    is_own = bool(framework) and not {contract.distribution, "torch"}.isdisjoint(missing)
    words = ",".join(dict.fromkeys(word for word in missing.values() if framework and word in known))
    steps = []
    if is_own or words:
        wants = ("--wants", words) if words else ()
        steps.append(FixStep("show which versions to install", ("gpuready", "plan", framework, *wants), "safe"))
    planned = {contract.distribution, "torch"} if is_own else set()
    others = [name for name, word in missing.items() if name not in planned and word not in words.split(",")]
    if others:
        steps.append(fix_steps.install_packages_step(facts, contract, dict.fromkeys(others, "*")))
    return steps
