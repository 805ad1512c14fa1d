"""Facts that only a fleet comparison uses: firmware, mounts and the clock."""

from gpuready.model import Fact
from gpuready.probe.fact_helpers import read_fact
from gpuready.system import HostAccess

KEYS = (
    "firmware.bios", "firmware.board", "firmware.nics", "gpu.vbios", "mount.table", "cpu.governor", "clock.zone",
    "clock.source", "clock.sync",
)  # fmt: skip
DMI_FOLDER = "/sys/class/dmi/id"
PROC_GPUS = "/proc/driver/nvidia/gpus"
INFINIBAND_CLASS = "/sys/class/infiniband"
MOUNTS_FILE = "/proc/self/mounts"
GOVERNOR_FILE = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
CLOCK_SOURCE_FILE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
CLOCK_SYNC_FILE = "/run/systemd/timesync/synchronized"
KERNEL_FILE_SYSTEMS = (
    "proc", "sysfs", "devtmpfs", "devpts", "cgroup", "cgroup2", "securityfs", "debugfs", "tracefs", "mqueue", "hugetlbfs",
    "pstore", "bpf", "configfs", "fusectl", "binfmt_misc", "autofs", "efivarfs", "rpc_pipefs", "nsfs", "ramfs", "overlay",
    "squashfs", "fuse.snapfuse", "fuse.lxcfs", "selinuxfs",
)  # fmt: skip
TRANSIENT_MOUNTS = (
    "/run/user",
    "/run/credentials",
    "/var/lib/docker",
    "/var/lib/containers",
    "/var/lib/kubelet",
    "/proc",
    "/snap",
)
NETWORK_FILE_SYSTEMS = (
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


def probe_fleet_facts(host: HostAccess) -> list[Fact]:
    return [
        read_fact("firmware.bios", f"{DMI_FOLDER}/bios_version", _read_stripped, host, f"{DMI_FOLDER}/bios_version"),
        read_fact("firmware.board", DMI_FOLDER, _read_board_name, host),
        read_fact("firmware.nics", INFINIBAND_CLASS, _read_nic_firmware, host),
        read_fact("gpu.vbios", PROC_GPUS, _read_gpu_vbios, host),
        read_fact("mount.table", MOUNTS_FILE, _read_mount_table, host),
        read_fact("cpu.governor", GOVERNOR_FILE, _read_stripped, host, GOVERNOR_FILE),
        read_fact("clock.zone", "/etc/localtime", _read_time_zone, host),
        read_fact("clock.source", CLOCK_SOURCE_FILE, _read_stripped, host, CLOCK_SOURCE_FILE),
        read_fact("clock.sync", CLOCK_SYNC_FILE, lambda: True if host.stat_path(CLOCK_SYNC_FILE) else None),
    ]


def _read_stripped(host: HostAccess, path: str) -> str | None:
    return (host.read_text(path) or "").strip() or None


def _read_board_name(host: HostAccess) -> str | None:
    parts = (_read_stripped(host, f"{DMI_FOLDER}/sys_vendor"), _read_stripped(host, f"{DMI_FOLDER}/product_name"))
    return " ".join(part for part in parts if part) or None


def _read_nic_firmware(host: HostAccess) -> dict[str, str | None]:
    return {
        name: _read_stripped(host, f"{INFINIBAND_CLASS}/{name}/fw_ver")
        for name in host.list_directory(INFINIBAND_CLASS) or ()
    }


def _read_gpu_vbios(host: HostAccess) -> tuple[str | None, ...]:
    """One per GPU, in PCI bus order."""
    return tuple(
        _parse_video_bios(host.read_text(f"{PROC_GPUS}/{name}/information") or "")
        for name in sorted(host.list_directory(PROC_GPUS) or ())
    )


def _parse_video_bios(text: str) -> str | None:
    rows = (line.partition(":") for line in text.splitlines())
    return next((value.strip() for name, _, value in rows if name.strip() == "Video BIOS"), None)


def _read_mount_table(host: HostAccess) -> dict[str, dict[str, object]]:
    mounts: dict[str, dict[str, object]] = {}
    for line in (host.read_text(MOUNTS_FILE) or "").splitlines():
        source, path, kind, options = (line.split() + [""] * 4)[:4]
        if kind and kind not in KERNEL_FILE_SYSTEMS and not path.startswith(TRANSIENT_MOUNTS):
            shared = source if kind in NETWORK_FILE_SYSTEMS else None
            mounts[path] = {"type": kind, "source": shared, "read_only": "ro" in options.split(",")}
    return mounts


def _read_time_zone(host: HostAccess) -> str | None:
    zone_name = _read_stripped(host, "/etc/timezone")
    return zone_name or (host.resolve_path("/etc/localtime") or "").rpartition("/zoneinfo/")[2] or None
