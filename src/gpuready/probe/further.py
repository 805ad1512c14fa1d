"""Probes beyond the basic ones, grouped by the process they share.

Each module is imported only if there is something to probe, inside the probing process: most machines have no
switches, no second vendor and no compiled extension. A probe that fails loses only its own facts.
"""

from __future__ import annotations

from gpuready.model import Fact
from gpuready.probe import keys
from gpuready.probe.sight import DRIVERS, driver_loaded, gaps, glimpse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from gpuready.probe.patient import Patient
    from gpuready.probe.presence import Presence
    from gpuready.system import Door

PCI = "/sys/bus/pci/devices"
FOLDERS = f"{PCI}, /dev, /sys/module"


def of_gpus(door: Door, facts: list[Fact], found: Presence) -> list[Fact]:
    """Add NUMA nodes, NVSwitches and other vendors' accelerators to the GPU facts."""
    return [*_near(door, facts), *_fabric(door, found), *_accelerators(door, found)]


def _near(door: Door, facts: list[Fact]) -> list[Fact]:
    if not _value(facts, "gpu.count"):
        listed = next((fact for fact in facts if fact.key == "gpu.count"), None)
        gap = listed.gap if listed else "nobody has counted them"
        return [*facts, Fact("gpu.numa", None if gap else (), PCI, gap=gap)]
    from gpuready.probe import fabric

    return [*facts, *_taken(keys.NUMA, fabric.numa, door, facts)]


def of_machine(door: Door) -> list[Fact]:
    from gpuready.probe import network

    return _taken(keys.NETWORK, network.look, door)


def _fabric(door: Door, found: Presence) -> list[Fact]:
    if not found.signs:
        return _nothing(keys.FABRIC, (0, "absent"), found)
    from gpuready.probe import fabric

    return _taken(keys.FABRIC, fabric.look, door, found)


def _accelerators(door: Door, found: Presence) -> list[Fact]:
    darwin = glimpse(door.uname, otherwise={}).get("system") == "Darwin"
    if not found.others and not found.foreign and not darwin:
        return _nothing(keys.ACCELERATORS, (None, 0, None, None, None), found)
    from gpuready.probe import accelerators

    return _taken(keys.ACCELERATORS, accelerators.look, door, found)


def of_patient(door: Door, who: Patient, facts: list[Fact]) -> list[Fact]:
    """Add the libraries that the target environment and its extensions would load."""
    return [*facts, *_libraries(door, facts), *_linkage(door, who, facts)]


def _libraries(door: Door, facts: list[Fact]) -> list[Fact]:
    built = next((fact for fact in facts if fact.key == "torch.cuda"), None)
    if built is not None and built.value is None:  # no torch, or one that loads nothing of CUDA
        values: tuple[Any, ...] = (None, None, None if built.gap else {})
        pairs = zip(keys.LIBRARIES, values, strict=True)
        return [Fact(key, value, built.source, gap=built.gap) for key, value in pairs]
    from gpuready.probe import libraries

    return _taken(keys.LIBRARIES, libraries.look, door, facts)


def _linkage(door: Door, who: Patient, facts: list[Fact]) -> list[Fact]:
    listed = next((fact for fact in facts if fact.key == "python.packages"), None)
    source = ", ".join(who.site) or who.prefix
    if listed is None or listed.gap:
        return gaps(keys.LINKAGE, listed.gap if listed else "no list of packages", source)
    if not {fact.key for fact in facts}.intersection(f"package.{name}" for name in keys.EXTENSIONS):
        return [Fact("extension.linked", {}, source)]
    from gpuready.probe import linkage

    return _taken(keys.LINKAGE, linkage.look, door, who, facts)


def around(door: Door, who: Patient) -> list[Fact]:
    """Folders on disks that may hang, the clock, and the kernel log."""
    from gpuready.probe import caches, surroundings

    return [
        *_taken(keys.SURROUNDINGS, surroundings.look, door, who),
        *_taken(keys.CACHES, caches.look, door),
        *_kernel(door),
    ]


def _kernel(door: Door) -> list[Fact]:
    if not driver_loaded(door):
        return [Fact("kernel.xids", (), f"no driver that could write one: {', '.join(DRIVERS)}")]
    from gpuready.probe import kernel

    return _taken(keys.KERNEL, kernel.look, door)


# -- helpers ------------------------------------------------------------------------------------------


def _value(facts: Iterable[Fact], key: str) -> Any:
    return next((fact.value for fact in facts if fact.key == key and not fact.gap), None)


def _nothing(wanted: Sequence[str], values: Sequence[Any], found: Presence) -> list[Fact]:
    """Without any detected device: absent facts, or gaps if detection could not read everything."""
    if found.blind:
        return gaps(wanted, "; ".join(found.blind), FOLDERS)
    return [Fact(key, value, FOLDERS) for key, value in zip(wanted, values, strict=True)]


def _taken(wanted: Sequence[str], look: Callable[..., list[Fact]], *args: Any) -> list[Fact]:
    try:
        return look(*args)
    except Exception as error:
        return gaps(wanted, f"the look failed: {type(error).__name__}: {error}"[:200], look.__module__)
