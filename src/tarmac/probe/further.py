"""The looks beyond the first ones, in the groups that share a process.

Their modules are loaded where they look, each group in a process of its own: the start of tarmac does not
pay for them. One that stumbles loses its own facts and no others.
"""

from __future__ import annotations

from tarmac.probe import keys
from tarmac.probe.sight import gaps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from tarmac.model import Fact
    from tarmac.probe.patient import Patient
    from tarmac.system import Door

DEADLINE = 5.0


def of_gpus(door: Door, facts: list[Fact]) -> list[Fact]:
    """What is added to the facts of the GPUs."""
    from tarmac.probe import fabric

    return [*facts, *_taken(keys.NUMA, fabric.numa, door, facts)]


def of_machine(door: Door) -> list[Fact]:
    """The network, the switches between GPUs, and the accelerators of other vendors."""
    from tarmac.probe import accelerators, fabric, network
    from tarmac.probe.presence import presence

    found = presence(door)
    return [
        *_taken(keys.NETWORK, network.look, door),
        *_taken(keys.FABRIC, fabric.look, door, found),
        *_taken(keys.ACCELERATORS, accelerators.look, door, found),
    ]


def of_patient(door: Door, who: Patient, facts: list[Fact]) -> list[Fact]:
    """What is added to the facts of the patient: the libraries that it and its extensions would load."""
    from tarmac.probe import libraries, linkage

    return [
        *facts,
        *_taken(keys.LIBRARIES, libraries.look, door, facts),
        *_taken(keys.LINKAGE, linkage.look, door, who, facts),
    ]


def around(door: Door, who: Patient) -> list[Fact]:
    """Folders on disks that may hang, and the kernel's log: a process of its own for them."""
    from tarmac.probe import caches, kernel, surroundings

    return [
        *_taken(keys.SURROUNDINGS, surroundings.look, door, who),
        *_taken(keys.CACHES, caches.look, door),
        *_taken(keys.KERNEL, kernel.look, door),
    ]


def _taken(wanted: Sequence[str], look: Callable[..., list[Fact]], *args: Any) -> list[Fact]:
    try:
        return look(*args)
    except Exception as error:
        return gaps(wanted, f"the look failed: {type(error).__name__}: {error}"[:200], look.__module__)
