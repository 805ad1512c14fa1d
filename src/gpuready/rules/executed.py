"""Results of executed proofs as rules read them: which had an outcome, and which the contract requires."""

from __future__ import annotations

from gpuready.model import Finding, Need, Step

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from gpuready.model import Contract, Facts

READS = ("can.*", "proof.results")
SHOWN = 4
"""The capabilities that one finding lists; the others are in the facts and the evidence."""

CITE = "executed here, with the right numbers"


def examples(verdict: str, why: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return facts of a machine on which a required capability has this verdict, and of one on which it passed."""
    row = {"name": "matmul-bf16", "capability": ("bf16",), "device": "cuda:0", "step": "multiply in bf16"}
    broken = {"can.bf16": False, "proof.results": (row | {"verdict": verdict, "why": why},)}
    return broken, {"can.bf16": True, "proof.results": (row | {"verdict": "passed", "why": ""},)}


def required(contract: Contract) -> list[str]:
    return [capability.name for capability in contract.capabilities if capability.level == "required"]


def rows(facts: Facts, *verdicts: str) -> list[dict[str, Any]]:
    """Return the proofs with one of these verdicts whose capability no other proof has shown."""
    found = [row for row in facts.value("proof.results") or () if row.get("verdict") in verdicts]
    return [row for row in found if not all(facts.value(f"can.{name}") for name in row["capability"])]


def looked(facts: Facts) -> None:
    """Read the proof facts, so that a rule that holds reports what it is based on."""
    for row in facts.value("proof.results") or ():
        for name in row["capability"]:
            facts.value(f"can.{name}")


def finding(
    facts: Facts, contract: Contract, code: str, found: Sequence[dict[str, Any]], says: str, so: str
) -> Finding:
    """Return one finding for all these proofs; an error if the contract requires one of them."""
    needed = set(required(contract))
    every = dict.fromkeys(name for row in found for name in row["capability"])
    grave = not needed.isdisjoint(every)
    names = sorted(every, key=lambda name: name not in needed)[:SHOWN]
    return Finding(
        code,
        "error" if grave else "warning",
        _short(says),
        found=tuple(facts.fact(f"can.{name}") for name in names),
        needs=tuple(Need(f"can.{name}", "true", cite=CITE) for name in names),
        so=so,
        fix=tuple(steps(found)),
    )


def _short(text: str) -> str:
    plain = " ".join(text.replace("!", ".").split())
    return plain if len(plain) < 150 else plain[:146].rstrip() + " ..."


def named(found: Sequence[dict[str, Any]]) -> str:
    """Return ``matmul-bf16``, or ``matmul-bf16 and 3 more``."""
    first = str(found[0]["name"])
    return first if len(found) == 1 else f"{first} and {len(found) - 1} more"


def steps(found: Sequence[dict[str, Any]]) -> list[Step]:
    """Return the fixes found in the output of the proofs, and the command that shows the whole output."""
    told: dict[str, Step] = {}
    for row in found:
        for step in row.get("fix") or ():
            told.setdefault(step["does"], Step.from_json(step))
    again = ("gpuready", "prove", str(found[0]["name"]), "-v")
    return [*told.values(), Step("read its whole output", again, "safe")]


def cause(found: Sequence[dict[str, Any]]) -> str:
    """Return the first cause found in the output: ``SYS001: /dev/shm is too small``; empty if there is none."""
    row = next((row for row in found if row.get("code")), None)
    return f"{row['code']}: {row['says']}" if row else ""
