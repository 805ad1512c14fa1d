"""The job asks for a feature whose package is not installed.

## What it checks
Whether the package of each requested feature (attention kernels, quantization) is installed, if the framework
offers the feature and its requirements do not list the package. fp8 with accelerate needs one of torchao,
transformer-engine or MS-AMP. Listed packages are PKG002 and PKG003.

## Why it matters
The framework stops where it first uses the feature, possibly after the model was loaded.

## How to fix
Install the package. Its own requirements on torch and CUDA apply, so check again afterwards.

## References
- The framework's documentation of the feature
"""

from gpuready.catalog import load_catalog
from gpuready.contracts import when as conditions
from gpuready.model import Contract, Facts, Finding, Requirement, make_finding
from gpuready.rules import capability_floors, fix_steps, job_request, visible_gpus

CODE = "CAP009"
SEVERITY = "error"
READS = fix_steps.READS
REQUIRED_FACTS = ("job.wants",)
CONTRACT = {"capabilities": ({"name": "sage-attention"},)}
BROKEN = {
    "job.wants": ("sage-attention",),
    "package.sageattention": None,
    "package.torch": "2.8.0+cu128",
    "python.path": "/venv/bin/python",
}
HEALTHY = BROKEN | {"package.sageattention": "1.0.6"}

ON_ACCELERATE = ("transformers", "axolotl")
FP8_PACKAGES = ("torchao", "transformer-engine", "ms-amp")
CITE = "the package that provides what the job asks for"


def judge(facts: Facts, contract: Contract) -> Finding | None:
    requested = _packages_for_wants(facts, contract)
    if "cuda" not in contract.platforms or not requested or facts.value("package.torch") is None:
        return None  # PKG002 reports an empty environment
    missing = {word: names for word, names in requested.items() if _all_packages_absent(facts, names)}
    if not missing:
        return None
    first = list(dict.fromkeys(names[0] for names in missing.values()))
    keys = list(dict.fromkeys(f"package.{name}" for names in missing.values() for name in names))
    return make_finding(
        f"the job asks for {visible_gpus.join_names(list(missing))}, but {visible_gpus.join_names(first)} is not installed",
        found=(*(facts.fact(key) for key in keys), facts.fact("job.wants")),
        needs=tuple(Requirement(f"package.{name}", "*", cite=CITE) for name in first),
        so="the job stops where it first uses it, possibly after the model is loaded",
        fix=(fix_steps.install_packages_step(facts, contract, dict.fromkeys(first, "*")),),
    )


def _packages_for_wants(facts: Facts, contract: Contract) -> dict[str, tuple[str, ...]]:
    """Map each want that the framework offers without naming a package to the packages, any of which will do."""
    wants = job_request.list_job_wants(facts)
    known = {
        row["want"]: row["packages"] for row in load_catalog("job_needs")["need"] if {"want", "packages"} <= row.keys()
    }
    known |= {"fp8": FP8_PACKAGES} if contract.framework in ON_ACCELERATE else {}
    offered = {
        word: names
        for word, names in known.items()
        if word in wants and capability_floors.feature_offered(contract, word)
    }
    return {word: names for word, names in offered.items() if not _contract_names_package(facts, contract, names)}


def _contract_names_package(facts: Facts, contract: Contract, names: tuple[str, ...]) -> bool:
    """Return whether the contract itself asks for one of the packages here."""
    stated = [need for name in names for need in contract.requirements_for(f"package.{name}")]
    return any(conditions.certainly_applies(need.when, facts) for need in stated)


def _all_packages_absent(facts: Facts, names: tuple[str, ...]) -> bool:
    return all(facts.value(f"package.{name}") is None for name in names)
