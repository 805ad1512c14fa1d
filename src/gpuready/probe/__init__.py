"""LOOK cheaply: files, folders, NVML, and a command only where no file tells. Probes never judge."""

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
    """Every look, for ``system.together``.

    ``frameworks`` are distributions whose own metadata is wanted, and ``variables`` names in the environment,
    besides those that are always read.

    What can hang for one reason (the driver, the disk of the environment, a command) is one look; a process
    for each of the small ones would cost more than they do. What is safe comes first, and is kept should the
    rest hang. The modules of a look are imported where it runs, and no file is touched before: the disk of
    the patient may be dead.
    """
    host = Keys(HOST, (*keys.AROUND, *keys.NETWORK))
    if not driver_loaded(door):  # then the GPUs need no process of their own: there is no driver to ask
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
    except ValueError:  # the look at the patient says so
        return
    yield toolchain.look(door, who)
    yield further.of_machine(door)  # it reads a file below HOME
    yield further.around(door, who)


HOST = ("host", "environment", "toolchain", "compilers")


class Keys:
    """The keys that a look gives, asked of its modules only when it has failed to give them."""

    def __init__(self, modules: tuple[str, ...], more: tuple[str, ...]):
        self.modules, self.more = modules, more

    def __iter__(self) -> Iterator[str]:
        for name in self.modules:
            yield from __import__(f"gpuready.probe.{name}", fromlist=("KEYS",)).KEYS
        yield from self.more


REFUSAL = "python.refusal"
"""What a look says in the place of facts, where ``python`` is no Python 3."""


def gather(door: Door, facts: Iterable[Fact], python: str | None = None) -> Facts:
    """What the looks have found, as the facts of one host. ValueError where a Python that was named is none."""
    settled = (f.but(value=_frozen(f.value)) if isinstance(f.value, (list, dict)) else f for f in facts)
    found = Facts(settled, glimpse(door.hostname) or "")
    if REFUSAL in found:
        raise ValueError(found.value(REFUSAL))
    if python is not None and found.fact("python.path").gap:
        gap = found.fact("python.path").gap
        raise ValueError(f"--python {python} cannot be looked at: {gap}; is its disk there?")
    return found


def _frozen(value: Any) -> Any:
    """Lists as tuples, all the way down: what came through a pipe has lost the difference."""
    if isinstance(value, dict):
        return {name: _frozen(item) for name, item in value.items()}
    return tuple(_frozen(item) for item in value) if isinstance(value, (list, tuple)) else value


def probe(door: Door, python: str | None = None, frameworks: Iterable[str] = ()) -> Facts:
    """Look at everything and wait for it."""
    from gpuready import system

    return gather(door, system.together(door, looks(door, python, frameworks)), python)
