"""Files in the place of a framework: what kind each is, and what the packages of one are judged by."""

from __future__ import annotations

from collections.abc import Sequence

from gpuready import contracts
from gpuready.catalog.releases import list_releases
from gpuready.catalog.torch import list_torch_releases
from gpuready.containers.environment_files import EnvironmentFile, read_environment_file
from gpuready.contracts.catalogued_release import make_torch_contract
from gpuready.contracts.pins import marker_environment
from gpuready.jobs.job_files import decode_mapping
from gpuready.model import NOT_STATED, Contract, Facts
from gpuready.model.versions import satisfies_specifier
from gpuready.plan.platform import machine_facts_only
from gpuready.workflow import contract_choice
from gpuready.workflow.container_file import read_referenced_file
from gpuready.workflow.refusal import Refused, call_or_refuse, read_named_file

CONTAINER_NAMES = ("dockerfile", "containerfile")
PACKAGE_SUFFIXES = (".txt", ".in", ".toml", ".lock")
JOB_SUFFIXES = (".json", ".py", ".sh")
YAML_SUFFIXES = (".yml", ".yaml")


def sort_asked_files(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the frameworks among the words of a check, and its files by the option that takes each."""
    frameworks: list[str] = []
    files: dict[str, str] = {}
    for word in words:
        option = _option_of_file(word)
        if option in files:
            raise Refused(f"{files[option]} and {word} are files of the same kind: check them one at a time")
        files |= {option: word} if option else {}
        frameworks += [] if option else [word]
    return frameworks, files


def _option_of_file(word: str) -> str:
    """Return the option that takes a file; empty for a framework."""
    path = word.partition("#")[0]
    name = path.rpartition("/")[2].lower()
    if name.startswith(CONTAINER_NAMES) or name.endswith(".dockerfile"):
        return "dockerfile"
    if name.endswith(PACKAGE_SUFFIXES):
        return "packages"
    if name.endswith(YAML_SUFFIXES):
        keys = call_or_refuse(decode_mapping, read_named_file(path), path)
        return "dockerfile" if "services" in keys else "packages" if "dependencies" in keys else "config"
    if name.endswith(".json") and '"facts"' in read_named_file(path):
        raise Refused(f"{path} is a recording of a machine: give it with --on")
    return "config" if name.endswith(JOB_SUFFIXES) else ""


def read_package_file(path: str, facts: Facts) -> EnvironmentFile:
    environment = {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64"}
    try:
        text, markers = read_named_file(path), environment | marker_environment(machine_facts_only(facts))
        return read_environment_file(read_referenced_file, path, text, markers)
    except ValueError as error:
        raise Refused(f"{path}: {error}") from None


def add_packages(facts: Facts, file: EnvironmentFile) -> Facts:
    """Return the machine with what a file states in the place of any environment of its own."""
    machine = machine_facts_only(facts)
    stated = file.to_facts(str(machine.value_if_known("os.arch") or "x86_64"))
    return Facts(machine, facts.host, NOT_STATED).with_facts(*stated)


def choose_file_contracts(facts: Facts, file: EnvironmentFile) -> list[Contract]:
    """Return the contracts of the frameworks that a file names, else that of torch."""
    named = [(contracts.framework_by_name(pin.name), pin) for pin in file.pins]
    chosen = [
        contract_choice.choose_contract(facts, name, None if pin.version else _newest_inside(pin.name, pin.spec), None)
        for name, pin in named
        if contracts.has_contract(name)
    ]
    torch = next((pin for pin in file.pins if pin.name == "torch"), None)
    version = (torch and torch.version) or _newest_inside("torch", torch.spec if torch else "")
    return chosen or [make_torch_contract(version or "", file.path)]


def add_ranges(contract: Contract, file: EnvironmentFile) -> Contract:
    """Return a contract with the ranges that a file asks for."""
    says = f"with what {file.path} asks for"
    return contract.replace(
        needs=(*contract.needs, *file.to_needs()), says=f"{contract.says}; {says}" if contract.says else says
    )


def _newest_inside(name: str, specifier: str) -> str | None:
    known = list_torch_releases() if name == "torch" else list_releases(name)
    fitting = (v for v in reversed(known) if not specifier or satisfies_specifier(v, specifier))
    return next(fitting, None)
