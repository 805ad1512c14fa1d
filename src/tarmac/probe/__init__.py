"""LOOK cheaply: files, folders, NVML, and a command only where no file tells. Probes never judge."""

from __future__ import annotations

from tarmac.model import Facts
from tarmac.probe import compilers, environment, further, gpu, host, hub, keys, packages, toolchain, torch
from tarmac.probe.patient import Patient, patient
from tarmac.probe.sight import glimpse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from tarmac.model import Fact
    from tarmac.system import Door

    Look = tuple[str, Callable[[Door], list[Fact]], tuple[str, ...], float]

__all__ = ["Patient", "gather", "looks", "patient", "probe"]


def looks(door: Door, python: str | None = None) -> list[Look]:
    """Every look, for ``system.together``. ValueError, in a sentence, where ``python`` is no Python 3.

    What can hang for one reason (the driver, the disk of the environment, a command) is one look; a process
    for each of the small ones would cost more than they do.
    """
    who = patient(door, python)
    return [
        ("gpu", lambda d: further.of_gpus(d, gpu.look(d)), GPU, gpu.DEADLINE),
        (
            "build",
            lambda d: [*toolchain.look(d, who), *compilers.look(d), *further.around(d, who)],
            BUILD,
            toolchain.DEADLINE,
        ),
        (
            "python",
            lambda d: further.of_patient(d, who, [*packages.look(d, who), *torch.look(d, who), *hub.look(d)]),
            PYTHON,
            packages.DEADLINE,
        ),
        (
            "host",
            lambda d: [*host.look(d), *environment.look(d), *further.of_machine(d)],
            HOST,
            host.DEADLINE,
        ),
    ]


GPU = (*gpu.KEYS, *keys.NUMA)
BUILD = (*toolchain.KEYS, *compilers.KEYS, *keys.AROUND)
PYTHON = (*packages.KEYS, *torch.KEYS, *hub.KEYS, *keys.PATIENT)
HOST = (*host.KEYS, *environment.KEYS, *keys.MACHINE)


def gather(door: Door, facts: Iterable[Fact]) -> Facts:
    """What the looks have found, as the facts of one host."""
    settled = (f.but(value=_frozen(f.value)) if isinstance(f.value, (list, dict)) else f for f in facts)
    return Facts(settled, glimpse(door.hostname) or "")


def _frozen(value: Any) -> Any:
    """Lists as tuples, all the way down: what came through a pipe has lost the difference."""
    if isinstance(value, dict):
        return {name: _frozen(item) for name, item in value.items()}
    return tuple(_frozen(item) for item in value) if isinstance(value, (list, tuple)) else value


def probe(door: Door, python: str | None = None) -> Facts:
    """Look at everything and wait for it."""
    from tarmac import system

    return gather(door, system.together(door, looks(door, python)))
