"""Results of executed proofs as rules read them: which had an outcome, and which the contract requires."""

from collections.abc import Sequence
from typing import Any

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding

READS = ("can.*", "proof.results")
MAX_SHOWN = 4
"""The capabilities that one finding lists; the others are in the facts and the evidence."""

CITE = "executed here with the right numbers"


def proof_examples(verdict: str, why: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return facts of a machine on which a required capability has this verdict, and of one on which it passed."""
    row = {"name": "matmul-bf16", "capability": ("bf16",), "device": "cuda:0", "step": "multiply in bf16"}
    broken = {"can.bf16": False, "proof.results": (row | {"verdict": verdict, "why": why},)}
    return broken, {"can.bf16": True, "proof.results": (row | {"verdict": "passed", "why": ""},)}


def required_capabilities(contract: Contract) -> list[str]:
    return [capability.name for capability in contract.capabilities if capability.level == "required"]


def select_proofs(facts: Facts, *verdicts: str) -> list[dict[str, Any]]:
    """Return the proofs with one of these verdicts whose capability no other proof has shown."""
    proofs = [row for row in facts.value("proof.results") or () if row.get("verdict") in verdicts]
    return [row for row in proofs if not all(facts.value(f"can.{name}") for name in row["capability"])]


def read_proof_facts(facts: Facts) -> None:
    """Read the proof facts, so that a rule that holds reports what it is based on."""
    for row in facts.value("proof.results") or ():
        for name in row["capability"]:
            facts.value(f"can.{name}")


def judge_proofs(facts: Facts, contract: Contract, verdict: str, says: str, so: str) -> Finding | None:
    """Return the finding about all proofs with a verdict.

    ``so``: what follows where their output shows no cause; in it ``{}`` stands for the step that the first was in.
    """
    proofs = select_proofs(facts, verdict)
    if not proofs:
        read_proof_facts(facts)
        return None
    so = _proof_cause(proofs) or so.format(proofs[0].get("step") or "none")
    return proof_finding(facts, contract, proofs, says, so)


def proof_finding(facts: Facts, contract: Contract, proofs: Sequence[dict[str, Any]], says: str, so: str) -> Finding:
    """Return one finding for all these proofs; an error if the contract requires one of them."""
    needed = set(required_capabilities(contract))
    capabilities = dict.fromkeys(name for row in proofs for name in row["capability"])
    is_required = not needed.isdisjoint(capabilities)
    names = sorted(capabilities, key=lambda name: name not in needed)[:MAX_SHOWN]
    return make_finding(
        _shorten_message(f"{says}: {_name_proofs(proofs)}: {proofs[0].get('why')}"),
        found=tuple(facts.fact(f"can.{name}") for name in names),
        needs=tuple(Requirement(f"can.{name}", "true", cite=CITE) for name in names),
        so=so,
        fix=tuple(proof_fix_steps(proofs)),
        severity="error" if is_required else "warning",
    )


def _shorten_message(text: str) -> str:
    plain = " ".join(text.replace("!", ".").split())
    return plain if len(plain) < 150 else plain[:146].rstrip() + " ..."


def _name_proofs(proofs: Sequence[dict[str, Any]]) -> str:
    """Return ``matmul-bf16``, or ``matmul-bf16 and 3 more``."""
    first = str(proofs[0]["name"])
    return first if len(proofs) == 1 else f"{first} and {len(proofs) - 1} more"


def proof_fix_steps(proofs: Sequence[dict[str, Any]]) -> list[FixStep]:
    """Return the fixes found in the output of the proofs, and the command that shows the whole output."""
    steps_by_text: dict[str, FixStep] = {}
    for row in proofs:
        for step in row.get("fix") or ():
            steps_by_text.setdefault(step["does"], FixStep.from_json(step))
    again = ("gpuready", "prove", str(proofs[0]["name"]), "-v")
    return [*steps_by_text.values(), FixStep("read its full output", again, "safe")]


def _proof_cause(proofs: Sequence[dict[str, Any]]) -> str:
    """Return the first cause found in the output: ``SYS001: /dev/shm is too small``; empty if there is none."""
    row = next((row for row in proofs if row.get("code")), None)
    return f"{row['code']}: {row['says']}" if row else ""
