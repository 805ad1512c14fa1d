"""Cheap probes: files, folders, NVML, and a command only where no file has the answer. Probes never judge."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from gpuready import system
from gpuready.model import Fact, Facts
from gpuready.probe import (
    compilers,
    device_detection,
    environment,
    fact_helpers,
    gpu,
    hub,
    imports,
    machine,
    optional_probes,
    packages,
    toolchain,
    torch,
)
from gpuready.probe.environment_choice import choose_environment, has_chosen_environment
from gpuready.probe.fact_helpers import is_driver_loaded, read_if_present
from gpuready.probe.target_environment import TargetEnvironment
from gpuready.system import HostAccess

ProbeFunction = Callable[[HostAccess], "list[Fact] | Iterator[list[Fact]]"]
ProbeSpec = tuple[str, ProbeFunction, Iterable[str], float]


__all__ = [
    "TargetEnvironment",
    "assemble_host_facts",
    "choose_environment",
    "has_chosen_environment",
    "list_probes",
    "probe",
]


def list_probes(
    host: HostAccess, python: str | None = None, frameworks: Iterable[str] = (), variables: Iterable[str] = ()
) -> list[ProbeSpec]:
    """List every probe, for ``system.together``.

    ``frameworks`` are distributions whose own metadata is read, and ``variables`` environment variables, both
    in addition to those that are always read.

    Reads that can hang for the same reason (the driver, the disk of the environment, a command) share one probe:
    a process for each small one would cost more than the read. Safe reads come first, so their facts survive if
    the rest hangs. No file of the target environment is touched before: its disk may be dead.
    """
    machine_keys = ProbeKeys(MACHINE_MODULES, (*fact_helpers.WORKSPACE_AND_LOGS, *fact_helpers.NETWORK))
    if not is_driver_loaded(host):  # without a driver the GPU probe cannot hang, so it needs no own process
        machine_keys = ProbeKeys(
            ("gpu", *MACHINE_MODULES), (*fact_helpers.GPUS, *fact_helpers.WORKSPACE_AND_LOGS, *fact_helpers.NETWORK)
        )
        specs: list[ProbeSpec] = [
            ("host", lambda d: _run_gpu_and_machine_probes(d, python, variables), machine_keys, 9.0)
        ]
    else:
        specs = [
            ("gpu", _run_gpu_probes, ProbeKeys(("gpu",), fact_helpers.GPUS), 26.0),
            ("host", lambda d: _run_machine_probes(d, python, variables), machine_keys, 9.0),
        ]
    return [
        *specs,
        (
            "python",
            lambda d: _run_target_probes(d, python, frameworks),
            ProbeKeys(("packages", "torch", "hub"), (*fact_helpers.TARGET, *fact_helpers.IMPORTS)),
            8.0,
        ),
    ]


def _run_gpu_and_machine_probes(host: HostAccess, python: str | None, variables: Iterable[str]) -> Iterator[list[Fact]]:
    yield _run_gpu_probes(host)
    yield from _run_machine_probes(host, python, variables)


def _run_gpu_probes(host: HostAccess) -> list[Fact]:
    detected = device_detection.detect_devices(host)
    return optional_probes.extend_gpu_facts(host, gpu.probe_gpus(host, detected), detected)


def _run_target_probes(host: HostAccess, python: str | None, frameworks: Iterable[str]) -> Iterator[list[Fact]]:
    try:
        target = choose_environment(host, python)
    except ValueError as error:
        yield [Fact(PYTHON_REFUSAL_KEY, str(error), "--python")]
        return
    if not target.prefix:
        gaps = fact_helpers.gap_facts(NEEDS_ENVIRONMENT, target.gap, target.source)
        yield [*gaps, *fact_helpers.absent_facts(fact_helpers.IMPORTS, "")]
        yield hub.probe_hub(host)
        return
    yield optional_probes.extend_target_facts(
        host, target, [*packages.probe_packages(host, target, frameworks), *torch.probe_torch(host, target)]
    )
    yield hub.probe_hub(host)
    yield imports.probe_imports(host, target, tuple(frameworks))


def _run_machine_probes(host: HostAccess, python: str | None, variables: Iterable[str]) -> Iterator[list[Fact]]:
    yield [*machine.probe_machine(host), *environment.probe_environment(host, variables)]
    yield compilers.probe_compilers(host)
    try:
        target = choose_environment(host, python)
    except ValueError:  # reported by _run_target_probes
        return
    yield toolchain.probe_toolchain(host, target)
    yield optional_probes.machine_network_facts(host)  # reads a file below HOME
    yield optional_probes.workspace_and_log_facts(host, target)


NEEDS_ENVIRONMENT = (*fact_helpers.PACKAGES, *fact_helpers.TORCH, *fact_helpers.TARGET)
MACHINE_MODULES = ("machine", "environment", "toolchain", "compilers")


class ProbeKeys:
    """The fact keys of a probe; its modules are imported only if the probe failed to deliver them."""

    def __init__(self, modules: tuple[str, ...], more: tuple[str, ...]):
        self.modules, self.more = modules, more

    def __iter__(self) -> Iterator[str]:
        for name in self.modules:
            yield from import_module(f"gpuready.probe.{name}").KEYS
        yield from self.more


PYTHON_REFUSAL_KEY = "python.refusal"
"""Key of the fact that carries the error message where ``python`` is not a Python 3."""


def assemble_host_facts(host: HostAccess, facts: Iterable[Fact], python: str | None = None) -> Facts:
    """Assemble probed facts into the facts of one host. ValueError if a named Python is not usable."""
    frozen = (f.replace(value=_freeze_lists(f.value)) if isinstance(f.value, (list, dict)) else f for f in facts)
    collected = Facts(frozen, read_if_present(host.get_hostname) or "")
    if PYTHON_REFUSAL_KEY in collected:
        raise ValueError(collected.value(PYTHON_REFUSAL_KEY))
    if python is not None and collected.fact("python.path").gap:
        gap = collected.fact("python.path").gap
        raise ValueError(f"--python {python} cannot be looked at: {gap}; is its disk there?")
    return collected


def _freeze_lists(value: Any) -> Any:
    """Turn lists into tuples at every depth: a pipe does not preserve the difference."""
    if isinstance(value, dict):
        return {name: _freeze_lists(item) for name, item in value.items()}
    return tuple(_freeze_lists(item) for item in value) if isinstance(value, (list, tuple)) else value


def survey_environment(
    host: HostAccess, python: str | None, frameworks: Iterable[str], deep: bool = False
) -> list[Fact]:
    """Look at the files that imports need, and at nothing else; ``deep``: by the contents of every file."""

    def run(probed: HostAccess) -> list[Fact]:
        return imports.probe_imports(probed, choose_environment(probed, python), tuple(frameworks), deep)

    facts = system.run_probes(host, [("imports", run, fact_helpers.IMPORTS, DEEP_SECONDS)])
    return [fact.replace(value=_freeze_lists(fact.value)) for fact in facts]


def is_users_own(host: HostAccess, python: str | None) -> bool:
    """Whether the environment is the user's by his own word, so that its Python may be started."""
    return imports.is_users_own(choose_environment(host, python))


def run_imports(host: HostAccess, python: str | None, modules: Mapping[str, Sequence[str]]) -> Fact:
    """Import modules in the target environment: its code runs."""
    fact = imports.run_imports(host, choose_environment(host, python), modules)
    return fact.replace(value=_freeze_lists(fact.value))


DEEP_SECONDS = 900.0


def probe(host: HostAccess, python: str | None = None, frameworks: Iterable[str] = ()) -> Facts:
    """Run every probe and wait for the result."""
    return assemble_host_facts(host, system.run_probes(host, list_probes(host, python, frameworks)), python)
