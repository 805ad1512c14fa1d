"""The contract asks for two things of one package that no version is.

A requirement file may pin two packages whose own pins have nothing in common: one asks for a third package
from some version on, the other for one below it. An installer then refuses the file as a whole, on every
machine; an image in which both lie was made without one, and whichever needs the other version may fail.

Only needs that are required, and whose condition holds here, are compared. Choose another variant
of the framework, or leave one of the two packages out.
"""

from __future__ import annotations

from gpuready.contracts import when as conditions
from gpuready.contracts.pin_conflicts import contradicting_needs
from gpuready.model import Contract, Fact, Facts, Finding, FixStep, Requirement
from gpuready.rules import visible_gpus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


CODE = "PKG024"
SEVERITY = "error"
READS = ("package.*", "python.version", "job.*", "gpu.*", "platform.*", "torch.*", "os.*")
CONTRACT = {
    "needs": (
        {"key": "package.opentelemetry-sdk", "want": ">=1.30", "cite": "ray 2.48.0"},
        {"key": "package.opentelemetry-sdk", "want": "<1.27", "when": "wants=vllm", "cite": "vllm 0.8.4"},
    )
}
BROKEN = {"job.wants": ("vllm",), "package.opentelemetry-sdk": "1.26.0"}
HEALTHY = BROKEN | {"job.wants": ()}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    pairs = list(find_contradictions(facts, contract))
    if not pairs:
        return None
    descriptions = [f"{a.key.removeprefix('package.')} {a.want} and {b.want}" for a, b in pairs]
    return Finding(
        CODE,
        SEVERITY,
        f"{contract.name} asks for what no version is: {visible_gpus.join_names(descriptions, 3)}",
        found=tuple(_installed_fact(facts, a) for a, _ in pairs),
        needs=tuple(need for pair in pairs for need in pair),
        so="an installer refuses its requirements on every machine",
        fix=(FixStep("choose another variant of the framework, or leave out one of the packages that ask"),),
    )


def find_contradictions(facts: Facts, contract: Contract) -> Iterator[tuple[Requirement, Requirement]]:
    """Yield for each package the first two needs in force that no version satisfies together."""
    for pairs in contradicting_needs(contract):
        yield from [pair for pair in pairs if all(conditions.condition_applies(n.when, facts) for n in pair)][:1]


def _installed_fact(facts: Facts, need: Requirement) -> Fact:
    if facts.value_if_known(need.key) is not None:
        return facts.fact(need.key)
    return Fact(need.key, "no version is both", "the contract's own needs", "stated")
