"""Select the proofs that a contract needs on this machine and for this job: pure, from facts and the catalogue."""

from collections.abc import Iterable, Sequence

from gpuready.catalog import gpus, proofs
from gpuready.catalog.proofs import ProofSpec
from gpuready.contracts import when as conditions
from gpuready.model import Capability, Contract, Facts, UnknownFactError

GPU_OR_CPU = ("cuda", "cpu")
ENTRY_POINT = "entry-point"
"""Nothing is ready before this was executed; of a framework without such a proof, no problems are found at best."""

JOB_CONDITIONS = ("wants", "gpus", "build")
"""Conditions that depend on the job: a capability they activate is required, not optional."""


def select_capabilities(contract: Contract, facts: Facts) -> Contract:
    """Return the contract with its capabilities marked as this job on this machine needs them.

    Required is what the job asks for by name, and what the framework cannot run without. A capability whose
    condition does not hold is left out.
    """
    applicable = (_weigh_capability(capability, contract, facts) for capability in contract.capabilities)
    capabilities = {capability.name: capability for capability in applicable if capability is not None}
    for word in _wanted_words(facts):
        if word != "cpu" and proofs.is_capability(word):
            capabilities[word] = capabilities.get(word, Capability(word, cite="--wants")).replace(level="required")
    on_cpu = is_cpu_requested(facts)
    if contract.framework:
        capabilities[ENTRY_POINT] = Capability(ENTRY_POINT, level="required", cite="the framework's own command")
    for row in proofs.proofs_for_framework(contract.framework):
        if on_cpu and row.device == "cuda":
            continue
        for name in row.capability:
            known = capabilities.get(name, Capability(name, cite=row.source))
            capabilities[name] = known.replace(level="required")
    if on_cpu:
        capabilities["cpu"] = Capability("cpu", level="required", cite="--wants cpu")
    return contract.replace(capabilities=tuple(capabilities.values()))


def _weigh_capability(capability: Capability, contract: Contract, facts: Facts) -> Capability | None:
    on_gpu = capability.when.replace(" ", "") == "platform=cuda" and "cuda" in contract.platforms
    if is_cpu_requested(facts) and (capability.name == "cuda" or on_gpu):
        return None
    try:
        # A GPU contract on a machine without GPUs still needs the GPU, so the capability stays.
        applies = on_gpu or conditions.condition_applies(capability.when, facts)
    except UnknownFactError:
        applies = capability.level == "required"
    if not applies:
        return None
    atoms = [atom.strip() for atom in capability.when.split(",")]
    from_job = any(atom.startswith(JOB_CONDITIONS) for atom in atoms)
    return capability.replace(level="required") if from_job else capability


def _wanted_words(facts: Facts) -> list[str]:
    words = facts.value_if_known("job.wants") or ()
    return [str(word).casefold().replace("_", "-") for word in words]


def is_cpu_requested(facts: Facts) -> bool:
    return "cpu" in _wanted_words(facts)


def list_needed_proofs(contract: Contract) -> tuple[ProofSpec, ...]:
    """Return the proofs of all active capabilities, in catalogue order."""
    of = contract.framework
    names = {
        row.name for capability in contract.capabilities for row in proofs.proofs_for_capability(capability.name, of)
    }
    selected = tuple(row for row in proofs.list_proofs() if row.name in names)
    imported = any(c.name == ENTRY_POINT for c in contract.capabilities) and not any(
        ENTRY_POINT in row.capability for row in selected
    )
    return (*selected, _make_import_proof(contract)) if imported else selected


def _make_import_proof(contract: Contract) -> proofs.ProofSpec:
    """Return the proof of a package that has none of its own: that it can be imported. Which modules it has, its files say."""
    return proofs.ProofSpec(
        name=f"entry-{contract.framework}",
        script="entry_point",
        device="any",
        capability=(ENTRY_POINT,),
        says=f"import {contract.framework}",
        arguments=(f"@{contract.distribution or contract.framework}",),
        deadline=300.0,
        memory=1 << 30,
        source="the files of its distribution",
    )


def unproved_capabilities(contract: Contract) -> tuple[str, ...]:
    """Return the active capabilities without a proof in gpuready."""
    return tuple(c.name for c in contract.capabilities if not proofs.proofs_for_capability(c.name, contract.framework))


# -- without a framework ----------------------------------------------------------------------------------


def is_capability_or_proof(word: str) -> bool:
    """Whether a word names a capability or a proof."""
    return bool(proofs.proofs_for_capability(word) or proofs.find_proof(word))


def select_named_proofs(words: Sequence[str], version: str) -> tuple[Contract, tuple[ProofSpec, ...]]:
    """Select the proofs of capabilities, or single proofs, that are named without a framework."""
    selected = [
        row
        for row in proofs.list_proofs()
        if row.name in words or not (row.contract or set(words).isdisjoint(row.capability))
    ]
    capability_names = dict.fromkeys(
        name for row in selected for name in row.capability if name in words or row.name in words
    )
    platforms = ("cpu",) if all(row.device == "cpu" for row in selected) else GPU_OR_CPU
    return _make_torch_contract(capability_names, (), version, platforms), tuple(selected)


def select_default_proofs(facts: Facts, version: str) -> tuple[Contract, tuple[ProofSpec, ...]]:
    """Select all proofs of torch; what the catalogue says this hardware lacks is shown but not required."""
    on_cpu = is_cpu_requested(facts)
    selected = tuple(row for row in proofs.list_proofs() if row.default and not (on_cpu and row.device == "cuda"))
    needed = [row for row in selected if not why_hardware_lacks(row, facts)]
    required = dict.fromkeys(name for row in needed for name in row.capability)
    platforms = ("cpu",) if on_cpu else GPU_OR_CPU
    return _make_torch_contract(required, (n for row in selected for n in row.capability), version, platforms), selected


def _make_torch_contract(
    required: Iterable[str], others: Iterable[str], version: str, platforms: tuple[str, ...] = GPU_OR_CPU
) -> Contract:
    needed = dict.fromkeys(required)
    rest = [name for name in dict.fromkeys(others) if name not in needed]
    listed = [Capability(name, level="required", cite="gpuready prove") for name in needed]
    listed += [Capability(name, cite="gpuready prove") for name in rest]
    return Contract(
        "torch", version or "not installed", distribution="torch", platforms=platforms, capabilities=tuple(listed)
    )


def why_hardware_lacks(row: ProofSpec, facts: Facts) -> str:
    """Return why this hardware cannot run a proof: a missing feature, too few GPUs; empty if it can."""
    visible = facts.value_if_known("gpu.visible")
    count = None if visible is None else len(visible)
    if row.gpus > 1 and count is not None and 0 < count < row.gpus:
        return f"it needs {row.gpus} GPUs, and {count} can be seen"
    return why_feature_missing(row, facts)


def why_feature_missing(row: ProofSpec, facts: Facts) -> str:
    """Return the feature gate that excludes the first visible GPU; empty if none does."""
    visible, capabilities = facts.value_if_known("gpu.visible"), facts.value_if_known("gpu.capability")
    if not row.gate or not visible or not capabilities or visible[0] >= len(capabilities):
        return ""
    here = str(capabilities[visible[0]])
    holds, source = gpus.check_feature_support(row.gate, here)
    return "" if holds else f"compute capability {here} has no {row.gate} ({source})"
