"""What connects the GPUs: NVSwitches, the fabric manager, and the NUMA node of each GPU."""

from __future__ import annotations

from gpuready.model import Fact
from gpuready.probe.keys import FABRIC as KEYS
from gpuready.probe.presence import PCI
from gpuready.probe.sight import gaps, glimpse
from gpuready.system import Blind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuready.probe.presence import Presence
    from gpuready.system import Door

__all__ = ["KEYS", "look", "numa"]

NODE = "/dev/nvidia-nvswitch"
NVIDIA, SWITCH = "0x10de", "0x0680"
"""PCI vendor of NVIDIA, and PCI class of NVSwitches (other bridge)."""

COMM = "nv-fabricmanager"[:15]
"""The kernel truncates process names to 15 characters."""

BINARIES = ("/usr/bin/nv-fabricmanager", "/usr/sbin/nv-fabricmanager", "/usr/local/bin/nv-fabricmanager")
PIDS = (
    "/run/nvidia-fabricmanager/nv-fabricmanager.pid",
    "/var/run/nvidia-fabricmanager/nv-fabricmanager.pid",
)
UNIT = "system.slice/nvidia-fabricmanager.service/cgroup.procs"
GROUPS = (f"/sys/fs/cgroup/{UNIT}", f"/sys/fs/cgroup/systemd/{UNIT}")


def look(door: Door, found: Presence) -> list[Fact]:
    """Return the number of NVSwitches and whether the fabric manager runs."""
    switches = _switches(door, found)
    return [switches, _manager(door, bool(switches.value))]


def _switches(door: Door, found: Presence) -> Fact:
    """By device files, else by PCI: a container often has only one of the two."""
    nodes = [node for node in found.nodes if node.startswith(NODE) and node[len(NODE) :].isdecimal()]
    try:
        addresses = door.list(PCI)
        seen = [a for a in addresses or () if _is(door, a)]
    except Blind as blind:
        return Fact("fabric.switches", len(nodes) or None, NODE, gap="" if nodes else str(blind))
    if len(nodes) >= len(seen) and nodes:
        return Fact("fabric.switches", len(nodes), NODE)
    gap = f"there is no {PCI} here" if addresses is None else ""
    return Fact("fabric.switches", None if gap else len(seen), PCI, gap=gap)


def _is(door: Door, address: str) -> bool:
    if (door.read(f"{PCI}/{address}/vendor") or "").strip() != NVIDIA:
        return False
    return (door.read(f"{PCI}/{address}/class") or "").startswith(SWITCH)


# -- the manager --------------------------------------------------------------------------------------


def _manager(door: Door, switches: bool) -> Fact:
    """Running, installed or absent. It may run on the host, whose processes a container cannot see."""
    key = "fabric.manager"
    try:
        for path in (*PIDS, *GROUPS):
            pid = (door.read(path) or "").strip().partition("\n")[0]
            if pid.isdecimal() and _comm(door, pid) == COMM:
                return Fact(key, "running", path)
        binary = next((path for path in BINARIES if door.stat(path)), None)
        # Reading every process is expensive: only if there is something to manage.
        if (binary or switches) and (its := _process(door, door.list("/proc") or ())):
            return Fact(key, "running", f"/proc/{its}/comm")
        if _comm(door, "2") != "kthreadd":
            return Fact(key, None, "/proc/*/comm", gap="the processes of the host cannot be seen from here")
    except Blind as blind:
        return Fact(key, None, "/proc/*/comm", gap=str(blind))
    return Fact(key, "installed" if binary else "absent", binary or ", ".join(BINARIES))


def _process(door: Door, names: Iterable[str]) -> str | None:
    return next((pid for pid in names if pid.isdecimal() and _comm(door, pid) == COMM), None)


def _comm(door: Door, pid: str) -> str:
    return (glimpse(door.read, f"/proc/{pid}/comm") or "").strip()


# -- NUMA nodes ----------------------------------------------------------------------------------------


def numa(door: Door, facts: Iterable[Fact]) -> list[Fact]:
    """Return the NUMA node of each GPU in driver order; -1 where the firmware gives none."""
    listed = next((fact for fact in facts if fact.key == "gpu.pci"), None)
    if listed is None or listed.gap:
        return gaps(("gpu.numa",), listed.gap if listed else "no list of GPUs", PCI)
    nodes = []
    for address in listed.value or ():
        path = f"{PCI}/{address}/numa_node"
        try:
            word = (door.read(path) or "").strip()
        except Blind as blind:
            return gaps(("gpu.numa",), str(blind), path)
        if not word.removeprefix("-").isdecimal():
            return gaps(("gpu.numa",), "the file is not there" if not word else "it holds no number", path)
        nodes.append(int(word))
    return [Fact("gpu.numa", tuple(nodes), f"{PCI}/*/numa_node")]
