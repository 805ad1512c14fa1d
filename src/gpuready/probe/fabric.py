"""What connects the GPUs: NVSwitches, the fabric manager, and the NUMA node of each GPU."""

from collections.abc import Iterable

from gpuready.model import Fact
from gpuready.probe.device_detection import PCI_DEVICES, DetectedDevices
from gpuready.probe.fact_helpers import FABRIC as KEYS
from gpuready.probe.fact_helpers import gap_facts, read_if_present
from gpuready.system import AccessError, HostAccess

__all__ = ["KEYS", "probe_fabric", "probe_gpu_numa"]

SWITCH_DEVICE = "/dev/nvidia-nvswitch"
NVIDIA_VENDOR, SWITCH_CLASS = "0x10de", "0x0680"
"""PCI vendor of NVIDIA, and PCI class of NVSwitches (other bridge)."""

MANAGER_PROCESS_NAME = "nv-fabricmanager"[:15]
"""The kernel truncates process names to 15 characters."""

MANAGER_BINARIES = ("/usr/bin/nv-fabricmanager", "/usr/sbin/nv-fabricmanager", "/usr/local/bin/nv-fabricmanager")
MANAGER_PID_FILES = (
    "/run/nvidia-fabricmanager/nv-fabricmanager.pid",
    "/var/run/nvidia-fabricmanager/nv-fabricmanager.pid",
)
MANAGER_UNIT = "system.slice/nvidia-fabricmanager.service/cgroup.procs"
MANAGER_CGROUPS = (f"/sys/fs/cgroup/{MANAGER_UNIT}", f"/sys/fs/cgroup/systemd/{MANAGER_UNIT}")


def probe_fabric(host: HostAccess, detected: DetectedDevices) -> list[Fact]:
    """Return the number of NVSwitches and whether the fabric manager runs."""
    switches = _nvswitch_count_fact(host, detected)
    return [switches, _fabric_manager_fact(host, bool(switches.value))]


def _nvswitch_count_fact(host: HostAccess, detected: DetectedDevices) -> Fact:
    """By device files, else by PCI: a container often has only one of the two."""
    nodes = [
        node for node in detected.nodes if node.startswith(SWITCH_DEVICE) and node[len(SWITCH_DEVICE) :].isdecimal()
    ]
    try:
        addresses = host.list_directory(PCI_DEVICES)
        switches = [a for a in addresses or () if _is_nvswitch(host, a)]
    except AccessError as error:
        return Fact("fabric.switches", len(nodes) or None, SWITCH_DEVICE, gap="" if nodes else str(error))
    if len(nodes) >= len(switches) and nodes:
        return Fact("fabric.switches", len(nodes), SWITCH_DEVICE)
    gap = f"there is no {PCI_DEVICES} here" if addresses is None else ""
    return Fact("fabric.switches", None if gap else len(switches), PCI_DEVICES, gap=gap)


def _is_nvswitch(host: HostAccess, address: str) -> bool:
    if (host.read_text(f"{PCI_DEVICES}/{address}/vendor") or "").strip() != NVIDIA_VENDOR:
        return False
    return (host.read_text(f"{PCI_DEVICES}/{address}/class") or "").startswith(SWITCH_CLASS)


# -- the manager --------------------------------------------------------------------------------------


def _fabric_manager_fact(host: HostAccess, switches: bool) -> Fact:
    """Running, installed or absent. It may run on the host, whose processes a container cannot see."""
    key = "fabric.manager"
    try:
        for path in (*MANAGER_PID_FILES, *MANAGER_CGROUPS):
            pid = (host.read_text(path) or "").strip().partition("\n")[0]
            if pid.isdecimal() and _read_process_name(host, pid) == MANAGER_PROCESS_NAME:
                return Fact(key, "running", path)
        binary = next((path for path in MANAGER_BINARIES if host.stat_path(path)), None)
        # Reading every process is expensive: only if there is something to manage.
        if (binary or switches) and (running_pid := _find_manager_pid(host, host.list_directory("/proc") or ())):
            return Fact(key, "running", f"/proc/{running_pid}/comm")
        if _read_process_name(host, "2") != "kthreadd":
            return Fact(key, None, "/proc/*/comm", gap="the processes of the host cannot be seen from here")
    except AccessError as error:
        return Fact(key, None, "/proc/*/comm", gap=str(error))
    return Fact(key, "installed" if binary else "absent", binary or ", ".join(MANAGER_BINARIES))


def _find_manager_pid(host: HostAccess, names: Iterable[str]) -> str | None:
    return next(
        (pid for pid in names if pid.isdecimal() and _read_process_name(host, pid) == MANAGER_PROCESS_NAME), None
    )


def _read_process_name(host: HostAccess, pid: str) -> str:
    return (read_if_present(host.read_text, f"/proc/{pid}/comm") or "").strip()


# -- NUMA nodes ----------------------------------------------------------------------------------------


def probe_gpu_numa(host: HostAccess, facts: Iterable[Fact]) -> list[Fact]:
    """Return the NUMA node of each GPU in driver order; -1 where the firmware gives none."""
    listed = next((fact for fact in facts if fact.key == "gpu.pci"), None)
    if listed is None or listed.gap:
        return gap_facts(("gpu.numa",), listed.gap if listed else "no list of GPUs", PCI_DEVICES)
    nodes = []
    for address in listed.value or ():
        path = f"{PCI_DEVICES}/{address}/numa_node"
        try:
            word = (host.read_text(path) or "").strip()
        except AccessError as error:
            return gap_facts(("gpu.numa",), str(error), path)
        if not word.removeprefix("-").isdecimal():
            return gap_facts(("gpu.numa",), "the file is not there" if not word else "it holds no number", path)
        nodes.append(int(word))
    return [Fact("gpu.numa", tuple(nodes), f"{PCI_DEVICES}/*/numa_node")]
