"""The framework has requirements for one package that no version satisfies.

## What it checks
Whether two of its requirements, whose conditions hold here, exclude each other: one package
requires a third from some version on, another requires an older one.

## Why it matters
An installer refuses the requirements on every machine. In an image that has both, the package that needs the
other version may fail; where the project itself installs the framework as an image, it is a warning.

## How to fix
Choose another variant of the framework, or leave out one of the two packages.

## References
- The framework's requirements, with both citations in the finding
"""

from collections.abc import Iterator

from gpuready.contracts import when as conditions
from gpuready.contracts.pin_conflicts import contradicting_needs, is_installed_by_image_alone
from gpuready.model import Contract, Fact, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import visible_gpus

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
    has_image = is_installed_by_image_alone(contract, facts.value_if_known("os.arch"))
    descriptions = [f"{a.key.removeprefix('package.')} {a.want} and {b.want}" for a, b in pairs]
    return make_finding(
        f"no version satisfies the requirements of {contract.name}: {visible_gpus.join_names(descriptions, 3)}",
        found=tuple(_installed_fact(facts, a) for a, _ in pairs),
        needs=tuple(need for pair in pairs for need in pair),
        so="an installer refuses its requirements on every machine",
        fix=(
            *((FixStep("use the image of its project, which has both"),) if has_image else ()),
            FixStep(
                "choose another variant of the framework, or leave out one of the packages that ask", safety="elsewhere"
            ),
        ),
        severity="warning" if has_image else SEVERITY,
    )


def find_contradictions(facts: Facts, contract: Contract) -> Iterator[tuple[Requirement, Requirement]]:
    """Yield for each package the first two needs in force that no version satisfies together."""
    for pairs in contradicting_needs(contract):
        yield from [pair for pair in pairs if all(conditions.condition_applies(n.when, facts) for n in pair)][:1]


def _installed_fact(facts: Facts, need: Requirement) -> Fact:
    if facts.value_if_known(need.key) is not None:
        return facts.fact(need.key)
    return Fact(need.key, "no version is both", "its own requirements", "stated")
