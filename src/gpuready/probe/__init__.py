"""Cheap probes: files, folders, NVML, and a command only where no file has the answer. Probes never judge."""

from __future__ import annotations

from gpuready.model import Fact, Facts
from gpuready.probe import keys
from gpuready.probe.patient import Patient, patient
from gpuready.probe.sight import driver_loaded, glimpse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from gpuready.system import Door

    See = Callable[[Door], "list[Fact] | Iterator[list[Fact]]"]
    Look = tuple[str, See, Iterable[str], float]

__all__ = ["Patient", "gather", "looks", "patient", "probe"]


def looks(
    door: Door, python: str | None = None, frameworks: Iterable[str] = (), variables: Iterable[str] = ()
) -> list[Look]:
    """List every probe, for ``system.together``.

    ``frameworks`` are distributions whose own metadata is read, and ``variables`` environment variables, both
    in addition to those that are always read.

    Reads that can hang for the same reason (the driver, the disk of the environment, a command) share one probe:
    a process for each small one would cost more than the read. Safe reads come first, so their facts survive if
    the rest hangs. The modules of a probe are imported inside it, and no file of the target environment is
    touched before: its disk may be dead.
    """
    host = Keys(HOST, (*keys.AROUND, *keys.NETWORK))
    if not driver_loaded(door):  # without a driver the GPU probe cannot hang, so it needs no own process
        host = Keys(("gpu", *HOST), (*keys.GPUS, *keys.AROUND, *keys.NETWORK))
        gpus: list[Look] = [("host", lambda d: _both(d, python, variables), host, 9.0)]
    else:
        gpus = [
            ("gpu", _gpu, Keys(("gpu",), keys.GPUS), 26.0),
            ("host", lambda d: _host(d, python, variables), host, 9.0),
        ]
    return [
        *gpus,
        (
            "python",
            lambda d: _python(d, python, frameworks),
            Keys(("packages", "torch", "hub"), keys.PATIENT),
            8.0,
        ),
    ]


def _both(door: Door, python: str | None, variables: Iterable[str]) -> Iterator[list[Fact]]:
    yield _gpu(door)
    yield from _host(door, python, variables)


def _gpu(door: Door) -> list[Fact]:
    from gpuready.probe import further, gpu, presence

    found = presence.presence(door)
    return further.of_gpus(door, gpu.look(door, found), found)


def _python(door: Door, python: str | None, frameworks: Iterable[str]) -> Iterator[list[Fact]]:
    from gpuready.probe import further, hub, packages, torch

    try:
        who = patient(door, python)
    except ValueError as error:
        yield [Fact(REFUSAL, str(error), "--python")]
        return
    yield further.of_patient(door, who, [*packages.look(door, who, frameworks), *torch.look(door, who)])
    yield hub.look(door)


def _host(door: Door, python: str | None, variables: Iterable[str]) -> Iterator[list[Fact]]:
    from gpuready.probe import compilers, environment, further, host, toolchain

    yield [*host.look(door), *environment.look(door, variables)]
    yield compilers.look(door)
    try:
        who = patient(door, python)
    except ValueError:  # reported by _run_target_probes
        return
    yield toolchain.look(door, who)
    yield further.of_machine(door)  # reads a file below HOME
    yield further.around(door, who)


HOST = ("host", "environment", "toolchain", "compilers")


class Keys:
    """The fact keys of a probe; its modules are imported only if the probe failed to deliver them."""

    def __init__(self, modules: tuple[str, ...], more: tuple[str, ...]):
        self.modules, self.more = modules, more

    def __iter__(self) -> Iterator[str]:
        for name in self.modules:
            yield from __import__(f"gpuready.probe.{name}", fromlist=("KEYS",)).KEYS
        yield from self.more


REFUSAL = "python.refusal"
"""Key of the fact that carries the error message where ``python`` is not a Python 3."""


def gather(door: Door, facts: Iterable[Fact], python: str | None = None) -> Facts:
    """Assemble probed facts into the facts of one host. ValueError if a named Python is not usable."""
    settled = (f.but(value=_frozen(f.value)) if isinstance(f.value, (list, dict)) else f for f in facts)
    found = Facts(settled, glimpse(door.hostname) or "")
    if REFUSAL in found:
        raise ValueError(found.value(REFUSAL))
    if python is not None and found.fact("python.path").gap:
        gap = found.fact("python.path").gap
        raise ValueError(f"--python {python} cannot be looked at: {gap}; is its disk there?")
    return found


def _frozen(value: Any) -> Any:
    """Turn lists into tuples at every depth: a pipe does not preserve the difference."""
    if isinstance(value, dict):
        return {name: _frozen(item) for name, item in value.items()}
    return tuple(_frozen(item) for item in value) if isinstance(value, (list, tuple)) else value


def probe(door: Door, python: str | None = None, frameworks: Iterable[str] = ()) -> Facts:
    """Run every probe and wait for the result."""
    from gpuready import system

    return gather(door, system.together(door, looks(door, python, frameworks)), python)
