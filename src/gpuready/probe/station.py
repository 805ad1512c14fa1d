"""Facts that only a fleet comparison uses: firmware, mounts and the clock."""

from __future__ import annotations

from gpuready.model import Fact
from gpuready.probe.sight import seen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.system import Door

KEYS = (
    "firmware.bios", "firmware.board", "firmware.nics", "gpu.vbios", "mount.table", "cpu.governor", "clock.zone",
    "clock.source", "clock.sync",
)  # fmt: skip
DMI = "/sys/class/dmi/id"
GPUS = "/proc/driver/nvidia/gpus"
NICS = "/sys/class/infiniband"
MOUNTS = "/proc/self/mounts"
GOVERNOR = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
SOURCE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
SYNCED = "/run/systemd/timesync/synchronized"
OF_THE_KERNEL = (
    "proc", "sysfs", "devtmpfs", "devpts", "cgroup", "cgroup2", "securityfs", "debugfs", "tracefs", "mqueue", "hugetlbfs",
    "pstore", "bpf", "configfs", "fusectl", "binfmt_misc", "autofs", "efivarfs", "rpc_pipefs", "nsfs", "ramfs", "overlay",
    "squashfs", "fuse.snapfuse", "fuse.lxcfs", "selinuxfs",
)  # fmt: skip
PASSING = (
    "/run/user",
    "/run/credentials",
    "/var/lib/docker",
    "/var/lib/containers",
    "/var/lib/kubelet",
    "/proc",
    "/snap",
)
NETWORK = (
    "nfs",
    "nfs4",
    "lustre",
    "gpfs",
    "beegfs",
    "ceph",
    "fuse.ceph",
    "cifs",
    "wekafs",
    "glusterfs",
    "fuse.glusterfs",
)
"""File systems with the same source on every node."""


def look(door: Door) -> list[Fact]:
    return [
        seen("firmware.bios", f"{DMI}/bios_version", _line, door, f"{DMI}/bios_version"),
        seen("firmware.board", DMI, _board, door),
        seen("firmware.nics", NICS, _nics, door),
        seen("gpu.vbios", GPUS, _vbios, door),
        seen("mount.table", MOUNTS, _mounts, door),
        seen("cpu.governor", GOVERNOR, _line, door, GOVERNOR),
        seen("clock.zone", "/etc/localtime", _zone, door),
        seen("clock.source", SOURCE, _line, door, SOURCE),
        seen("clock.sync", SYNCED, lambda: True if door.stat(SYNCED) else None),
    ]


def _line(door: Door, path: str) -> str | None:
    return (door.read(path) or "").strip() or None


def _board(door: Door) -> str | None:
    parts = (_line(door, f"{DMI}/sys_vendor"), _line(door, f"{DMI}/product_name"))
    return " ".join(part for part in parts if part) or None


def _nics(door: Door) -> dict[str, str | None]:
    return {name: _line(door, f"{NICS}/{name}/fw_ver") for name in door.list(NICS) or ()}


def _vbios(door: Door) -> tuple[str | None, ...]:
    """One per GPU, in PCI bus order."""
    return tuple(
        _video(door.read(f"{GPUS}/{name}/information") or "") for name in sorted(door.list(GPUS) or ())
    )


def _video(text: str) -> str | None:
    rows = (line.partition(":") for line in text.splitlines())
    return next((value.strip() for name, _, value in rows if name.strip() == "Video BIOS"), None)


def _mounts(door: Door) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = {}
    for line in (door.read(MOUNTS) or "").splitlines():
        source, path, kind, options = (line.split() + [""] * 4)[:4]
        if kind and kind not in OF_THE_KERNEL and not path.startswith(PASSING):
            shared = source if kind in NETWORK else None
            found[path] = {"type": kind, "source": shared, "read_only": "ro" in options.split(",")}
    return found


def _zone(door: Door) -> str | None:
    named = _line(door, "/etc/timezone")
    return named or (door.real("/etc/localtime") or "").rpartition("/zoneinfo/")[2] or None
