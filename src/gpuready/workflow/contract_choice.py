"""Choose the contract that a framework is judged by."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from gpuready import contracts
from gpuready.catalog.packages import canonical_package_name, split_requirement
from gpuready.contracts import pins
from gpuready.contracts.pins import marker_environment, merge_metadata_pins, pin_exact_version
from gpuready.contracts.when import certainly_applies
from gpuready.model import Contract, Fact, Facts, Requirement
from gpuready.workflow.refusal import Refused, call_or_refuse, suggest_nearest

FrameworkSpec = tuple[str, str | None, str | None]  # framework, version, variant


DEFAULT_FRAMEWORK = "transformers"


def parse_framework_spec(spec: str, sees_packages: bool = False) -> FrameworkSpec:
    """Parse a spec. Where packages are visible, it may name an installed package without a contract."""
    framework, version, variant = call_or_refuse(contracts.parse_contract_spec, spec)
    if framework != "torch" and (variant or not sees_packages or contracts.has_contract(framework)):
        call_or_refuse(contracts.check_contract_exists, framework, version, variant)
    return framework, version, variant


def add_extras(facts: Facts, extras: Iterable[str]) -> Facts:
    """Return the facts with the extras of the named frameworks (``trl[peft]``) among what the job asks for."""
    wants = dict.fromkeys([*(facts.value_if_known("job.wants") or ()), *extras])
    return facts.with_facts(Fact("job.wants", tuple(wants), "the named extras", "stated")) if [*extras] else facts


def read_named_contract(path: str, allowed: Collection[str] = ()) -> Contract:
    """Read a contract file, which may be a stranger's; ``allowed``: variables that it may set by the user's word."""
    from gpuready.contracts.foreign import read_foreign_contract

    return call_or_refuse(read_foreign_contract, path, allowed)


def installed_frameworks(facts: Facts) -> list[FrameworkSpec]:
    """Return the installed frameworks with a contract, without those that another one requires; else the default."""
    names = {contracts.distribution_name(name): name for name in contracts.list_frameworks()}
    installed = [name for name in names if facts.value_if_known(f"package.{name}")]
    requires = facts.value_if_known("python.requires") or {}
    lines = [line for own_names in installed for line in requires.get(own_names, {}).get("requires_dist", ())]
    brought = {canonical_package_name(split_requirement(line)[0]) for line in lines if "extra ==" not in line}
    own_names = [names[name] for name in installed if name not in brought] or [names[name] for name in installed]
    return [(name, None, None) for name in own_names or [DEFAULT_FRAMEWORK]]


def choose_contract(
    facts: Facts, framework: str, version: str | None, variant: str | None, allowed: Collection[str] = ()
) -> Contract:
    """Return the contract of a framework's version, with pins from its metadata where the version has no known requirements.

    ``allowed``: variables that what a package ships may set by the user's word.
    """
    name = contracts.distribution_name(framework)
    installed = facts.value_if_known(f"package.{name}")
    requires = (facts.value_if_known("python.requires") or {}).get(name)
    if not contracts.has_contract(framework):
        chosen = _contract_from_package(facts, framework, requires, allowed)
    else:
        chosen = call_or_refuse(contracts.load_contract, framework, version, variant, installed)
        is_meant = installed is not None and (version is None or contracts.covers_version(version, installed))
        if contracts.is_borrowed(chosen):
            chosen = _judge_by_metadata(facts, chosen, installed, requires if is_meant else None)
        elif is_meant and requires and installed:
            chosen = _with_own_pins(facts, chosen, installed, requires)
    if version is None:
        return chosen
    return pin_exact_version(chosen, version, installed)


def _judge_by_metadata(
    facts: Facts, borrowed: Contract, installed: str | None, requires: Mapping[str, Any] | None
) -> Contract:
    """Return a borrowed contract with the pins of the version's own metadata; what is borrowed only advises."""
    from gpuready.contracts.catalogued_release import add_catalogued_needs, judge_by_catalogue

    if requires is not None and installed is not None:
        own = merge_metadata_pins(borrowed, installed, *_pin_metadata(facts, requires))
        return add_catalogued_needs(own, is_installed=True)
    return judge_by_catalogue(borrowed)


def _with_own_pins(facts: Facts, contract: Contract, installed: str, requires: Mapping[str, Any]) -> Contract:
    """Return a contract that was read from another patch with the pins of the installed one."""
    replace = pins.add_metadata_pins if contracts.is_made_from_release(contract) else pins.replace_patch_pins
    return replace(contract, installed, requires["requires_dist"], pins.marker_environment(facts))


def add_job_needs(contract: Contract, facts: Facts) -> Contract:
    """Return a contract that also requires the packages that the settings of the job's file need."""
    rows = facts.value_if_known("job.packages") if "job.packages" in facts else ()
    known = {n.key for n in contract.needs if n.level == "required" and certainly_applies(n.when, facts)}
    found = []
    for row in rows or ():
        keys = [f"package.{name}" for name in row["packages"]]
        key = next((key for key in keys if facts.value_if_known(key)), keys[0])
        if known.isdisjoint(keys) and contract.distribution not in row["packages"]:
            cite = f"{facts.fact('job.packages').source}, {row['because']}; {row['source']}"
            found.append(Requirement(key, "*", cite=cite))
            known.add(key)
    return contract.replace(needs=(*contract.needs, *found))


def note_version_mismatch(facts: Facts, contract: Contract) -> Contract:
    """Add a note to a user's contract where another version is installed than it is for."""
    name = contract.distribution or contract.framework
    installed = facts.value_if_known(f"package.{name}")
    if installed is None or contracts.covers_version(contract.version, installed):
        return contract
    other = f"{name} {installed} is installed, and these requirements are for {contract.version}"
    whose, mark, refused = contract.says.partition(";")
    says = f"{whose} ({other}){mark}{refused}" if whose else other
    return contract.replace(says=says, version=installed, read_from=contract.version)


def _contract_from_package(
    facts: Facts, framework: str, requires: Mapping[str, Any] | None, allowed: Collection[str]
) -> Contract:
    """Derive the contract of an installed package that has none; Refused where there is no such package."""
    installed = facts.value_if_known(f"package.{framework}")
    if requires is None and installed:
        raise Refused(
            f"there are no requirements of {framework!r}, and its metadata was not recorded: check it on the machine"
        )
    if requires is None:
        near = suggest_nearest(framework, contracts.list_frameworks())
        raise Refused(
            f"{framework!r} has no known requirements{near} and is not installed here, so that only the index tells what it requires: "
            f"`gpuready plan {framework}` and `gpuready check {framework}` ask it"
        )
    if text := requires.get("contract"):
        return _read_packaged_contract(facts, framework, text, requires, allowed)
    from gpuready.contracts.catalogued_release import METADATA_ONLY_NOTE, contract_from_metadata

    version = installed or requires["version"] or "0"
    contract = contract_from_metadata(framework, version, *_pin_metadata(facts, requires))
    if not (announced := requires.get("contract_file")):
        return contract
    lost = f"requirements of its own are announced, and {announced} is empty, not there or names none"
    return contract.replace(says=METADATA_ONLY_NOTE.replace("no requirements of its own", lost))


def _read_packaged_contract(
    facts: Facts, distribution: str, text: str, requires: Mapping[str, Any], allowed: Collection[str]
) -> Contract:
    """Return the requirements that an installed package ships, with the pins of its metadata."""
    from gpuready.contracts.foreign import read_packaged_contract

    contract = call_or_refuse(read_packaged_contract, distribution, text, str(requires["contract_file"]), allowed)
    pinned = pins.add_metadata_pins(contract, str(requires["version"]), *_pin_metadata(facts, requires)[::2])
    return note_version_mismatch(facts, pinned)


def _pin_metadata(facts: Facts, requires: Mapping[str, Any]) -> tuple[list[str], str | None, dict[str, str]]:
    """Return a distribution's pins, its Python, and the environment for their markers."""
    return list(requires["requires_dist"]), requires["requires_python"], marker_environment(facts)
