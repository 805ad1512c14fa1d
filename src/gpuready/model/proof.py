"""Records of a proof: what was executed, on what, with which numbers, and the file that keeps it.

Separate from ``model.py`` so that a check, which executes nothing, does not pay for importing them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from gpuready.model import Fact, Record
from gpuready.model.record import field

NO_PROOF = "gpuready has no proof of it"
"""The gap of a capability that the catalogue of proofs does not have."""
PASSED, SKIPPED = "passed", "skipped"
PROOF_VERDICTS = (PASSED, "failed", "crashed", "hung", "absent", "unsupported", SKIPPED)
"""passed: it ran and its numbers are right. failed: a wrong number or an exception. crashed: ended by a signal.
hung: stopped at its deadline. absent: no GPU, or a package is not installed. unsupported: this hardware cannot.
skipped: not executed for a reason unrelated to the hardware.
"""


class ProofResult(Record):
    """Result of one proof, or the reason why it could not run."""

    name: str
    verdict: str
    why: str = ""
    device: str = ""  # cuda:0, cpu
    numbers: dict[str, dict[str, Any]] = field(
        default_factory=dict
    )  # name -> value, bound (most, least, equal), limit, unit
    versions: dict[str, str] = field(default_factory=dict)
    hardware: dict[str, Any] = field(default_factory=dict)
    steps: tuple[str, ...] = ()  # the last one is where it ended
    seconds: float = 0.0
    output: str = ""  # redacted; head and tail only
    exit: int | None = None  # negative: the signal
    source: str = ""
    capability: tuple[str, ...] = ()
    executed: str = ""  # machine on which this proof was executed before; empty: none
    lacks: str = ""  # gpu, or the distribution that is not installed
    cause: dict[str, Any] = field(default_factory=dict)  # what diagnose finds in the output: code, says, fix

    @property
    def last_step(self) -> str:
        """The step in which it ended."""
        return self.steps[-1] if self.steps else ""


class ProofRecord(Record):
    """What was executed on one machine at one time, with a hash of its own content."""

    host: str
    python: str
    proofs: tuple[ProofResult, ...] = ()
    made: str = ""  # UTC
    machine: dict[str, Any] = field(default_factory=dict)
    gpuready: str = ""
    digest: str = ""

    def with_digest(self) -> ProofRecord:
        """Return a copy with its digest set."""
        return self.replace(digest=compute_digest(self))

    @property
    def is_intact(self) -> bool:
        """Whether the content still matches the digest."""
        return bool(self.digest) and self.digest == compute_digest(self)


def compute_digest(evidence: ProofRecord) -> str:
    """Return the sha256 of the canonical JSON of every field except the digest, and except an empty ``lacks``, which older records do not have."""
    content = evidence.to_json()
    content.pop("digest")
    content["proofs"] = [{k: v for k, v in proof.items() if v or k != "lacks"} for proof in content["proofs"]]
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def capability_facts(proofs: Iterable[ProofResult]) -> list[Fact]:
    """Return ``can.NAME`` for every capability covered by a proof: True only if all of its proofs passed."""
    by_name: dict[str, list[ProofResult]] = {}
    for proof in proofs:
        for name in proof.capability:
            by_name.setdefault(name, []).append(proof)
    return [capability_fact(name, several) for name, several in by_name.items()]


def capability_fact(name: str, proofs: list[ProofResult]) -> Fact:
    """Combine the proofs of one capability; the worst verdict decides."""
    failed = [p for p in proofs if p.verdict not in (PASSED, SKIPPED)]
    if failed:
        first = min(failed, key=lambda p: PROOF_VERDICTS.index(p.verdict))
        return Fact(f"can.{name}", False, f"{first.name}: {first.verdict}, {first.why}", "run")
    skipped = [p for p in proofs if p.verdict == SKIPPED]
    if skipped:
        return Fact(f"can.{name}", None, skipped[0].name, "run", gap=skipped[0].why)
    return Fact(f"can.{name}", True, ", ".join(f"{p.name} on {p.device}" for p in proofs), "run")
