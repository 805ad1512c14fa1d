"""Select the proofs that a contract needs on this machine and for this job: pure, from facts and the catalogue."""

from __future__ import annotations

from gpuready.catalog import features, proofs
from gpuready.contracts import when as conditions
from gpuready.model import Capability, Contract, Unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpuready.catalog.proofs import Row
    from gpuready.model import Facts

GPU_OR_CPU = ("cuda", "cpu")
OF_THE_JOB = ("wants", "gpus", "build")
"""Conditions that depend on the job: a capability they activate is required, not optional."""


def in_force(contract: Contract, facts: Facts) -> Contract:
    """Return the contract with its capabilities marked as this job on this machine needs them.

    Required is what the job asks for by name, and what the framework cannot run without. A capability whose
    condition does not hold is left out.
    """
    weighed = (_weighed(capability, contract, facts) for capability in contract.capabilities)
    found = {capability.name: capability for capability in weighed if capability is not None}
    for word in _wants(facts):
        if word != "cpu" and proofs.of(word, contract.framework):
            found[word] = found.get(word, Capability(word, cite="--wants")).but(level="required")
    on_cpu = asks_for_cpu(facts)
    for row in proofs.for_framework(contract.framework):
        if on_cpu and row.device == "cuda":
            continue
        for name in row.capability:
            known = found.get(name, Capability(name, cite=row.source))
            found[name] = known.but(level="required")
    if on_cpu:
        found["cpu"] = Capability("cpu", level="required", cite="--wants cpu")
    return contract.but(capabilities=tuple(found.values()))


def _weighed(capability: Capability, contract: Contract, facts: Facts) -> Capability | None:
    on_gpu = capability.when.replace(" ", "") == "platform=cuda" and "cuda" in contract.platforms
    if asks_for_cpu(facts) and (capability.name == "cuda" or on_gpu):
        return None
    try:
        # A GPU contract on a machine without GPUs still needs the GPU, so the capability stays.
        applies = on_gpu or conditions.applies(capability.when, facts)
    except Unknown:
        applies = capability.level == "required"
    if not applies:
        return None
    atoms = [atom.strip() for atom in capability.when.split(",")]
    asked = any(atom.startswith(OF_THE_JOB) for atom in atoms)
    return capability.but(level="required") if asked else capability


def _wants(facts: Facts) -> list[str]:
    words = facts.known("job.wants") or ()
    return [str(word).casefold().replace("_", "-") for word in words]


def asks_for_cpu(facts: Facts) -> bool:
    return "cpu" in _wants(facts)


def rows(contract: Contract) -> tuple[Row, ...]:
    """Return the proofs of all active capabilities, in catalogue order."""
    of = contract.framework
    names = {row.name for capability in contract.capabilities for row in proofs.of(capability.name, of)}
    return tuple(row for row in proofs.every() if row.name in names)


def unproved(contract: Contract) -> tuple[str, ...]:
    """Return the active capabilities without a proof in gpuready."""
    return tuple(c.name for c in contract.capabilities if not proofs.of(c.name, contract.framework))


# -- without a framework ----------------------------------------------------------------------------------


def known(word: str) -> bool:
    """Whether a word names a capability or a proof."""
    return bool(proofs.of(word) or proofs.named(word))


def named(words: Sequence[str], version: str) -> tuple[Contract, tuple[Row, ...]]:
    """Select the proofs of capabilities, or single proofs, that are named without a framework."""
    found = [
        row
        for row in proofs.every()
        if row.name in words or not (row.contract or set(words).isdisjoint(row.capability))
    ]
    asked = dict.fromkeys(
        name for row in found for name in row.capability if name in words or row.name in words
    )
    platforms = ("cpu",) if all(row.device == "cpu" for row in found) else GPU_OR_CPU
    return _torch(asked, (), version, platforms), tuple(found)


def everything(facts: Facts, version: str) -> tuple[Contract, tuple[Row, ...]]:
    """Select all proofs of torch; what the catalogue says this hardware lacks is shown but not required."""
    found = tuple(row for row in proofs.every() if row.default)
    needed = [row for row in found if not beyond(row, facts)]
    required = dict.fromkeys(name for row in needed for name in row.capability)
    return _torch(required, (n for row in found for n in row.capability), version), found


def _torch(
    required: Iterable[str], others: Iterable[str], version: str, platforms: tuple[str, ...] = GPU_OR_CPU
) -> Contract:
    needed = dict.fromkeys(required)
    rest = [name for name in dict.fromkeys(others) if name not in needed]
    listed = [Capability(name, level="required", cite="gpuready prove") for name in needed]
    listed += [Capability(name, cite="gpuready prove") for name in rest]
    return Contract(
        "torch",
        version or "not installed",
        distribution="torch",
        platforms=platforms,
        capabilities=tuple(listed),
    )


def beyond(row: Row, facts: Facts) -> str:
    """Return why this hardware cannot run a proof: a missing feature, too few GPUs; empty if it can."""
    shown = facts.known("gpu.visible")
    count = None if shown is None else len(shown)
    if row.gpus > 1 and count is not None and 0 < count < row.gpus:
        return f"it needs {row.gpus} GPUs, and {count} can be seen"
    return lacking(row, facts)


def lacking(row: Row, facts: Facts) -> str:
    """Return the feature gate that excludes the first visible GPU; empty if none does."""
    shown, capabilities = facts.known("gpu.visible"), facts.known("gpu.capability")
    if not row.gate or not shown or not capabilities or shown[0] >= len(capabilities):
        return ""
    here = str(capabilities[shown[0]])
    holds, source = features.gate(row.gate, here)
    return "" if holds else f"compute capability {here} has no {row.gate} ({source})"
