"""Switches between GPUs, their manager, and the memory near each GPU."""

from __future__ import annotations

import pytest

from gpuready.model import Fact
from gpuready.probe import fabric, optional_probes
from gpuready.probe.device_detection import detect_devices
from gpuready.system import AccessError
from tests.probe.fakes import BARE, DENIED, Fake, by_key

PCI = "/sys/bus/pci/devices"
HOST = {"/proc/1/comm": "systemd\n", "/proc/2/comm": "kthreadd\n"}
PID = "/run/nvidia-fabricmanager/nv-fabricmanager.pid"
GROUP = "/sys/fs/cgroup/system.slice/nvidia-fabricmanager.service/cgroup.procs"


def card(address, kind="0x030200", vendor="0x10de"):
    return {f"{PCI}/{address}/vendor": f"{vendor}\n", f"{PCI}/{address}/class": f"{kind}\n"}


GPU = card("0000:1b:00.0")
SWITCHES = card("0000:05:00.0", "0x068000") | card("0000:06:00.0", "0x068000")
OTHER_BRIDGE = card("0000:07:00.0", "0x068000", "0x8086")


def looked(files, **requested):
    host = Fake(files, **requested)
    return by_key(fabric.probe_fabric(host, detect_devices(host)))


# -- switches


@pytest.mark.parametrize(
    ("files", "count", "source"),
    [
        (GPU, 0, PCI),
        (GPU | SWITCHES, 2, PCI),
        (GPU | SWITCHES | OTHER_BRIDGE, 2, PCI),
        (GPU | {f"/dev/nvidia-nvswitch{n}": "" for n in range(4)}, 4, "/dev/nvidia-nvswitch"),
        (GPU | {"/dev/nvidia-nvswitchctl": ""}, 0, PCI),
        (GPU | SWITCHES | {"/dev/nvidia-nvswitch0": ""}, 2, PCI),  # a container was given one of them
    ],
)
def test_switches(files, count, source):
    found = looked(files)["fabric.switches"]
    assert (found.value, found.source, found.gap) == (count, source, "")


def test_switches_where_there_is_no_bus():
    assert "there is no" in looked({"/dev/nvidia0": ""})["fabric.switches"].gap
    found = looked({"/dev/nvidia0": "", "/dev/nvidia-nvswitch0": ""})["fabric.switches"]
    assert (found.value, found.gap) == (1, "")


def test_switches_on_a_bus_that_cannot_be_read():
    files = {"/dev/nvidia0": "", f"{PCI}/": DENIED}
    assert looked(files)["fabric.switches"].gap == "permission denied"
    assert looked(files | {"/dev/nvidia-nvswitch0": ""})["fabric.switches"].value == 1


# -- the manager


@pytest.mark.parametrize("path", [PID, f"/var{PID}", GROUP, GROUP.replace("cgroup/", "cgroup/systemd/", 1)])
def test_a_manager_that_says_where_it_runs(path):
    files = GPU | {path: "4711\n4712\n", "/proc/4711/comm": "nv-fabricmanage\n"}
    found = looked(files)["fabric.manager"]
    assert (found.value, found.source) == ("running", path)


def test_a_manager_among_the_processes():
    files = GPU | SWITCHES | HOST | {"/proc/815/comm": "nv-fabricmanage\n", "/proc/meminfo": ""}
    found = looked(files)["fabric.manager"]
    assert (found.value, found.source) == ("running", "/proc/815/comm")


@pytest.mark.parametrize("comm", ["bash\n", "nv-fabricmanager\n", ""])
def test_a_process_number_that_has_passed_on_to_another(comm):
    """The kernel never shows more than 15 characters: what has 16 is no process of its making."""
    found = looked(GPU | SWITCHES | HOST | {PID: "4711", "/proc/4711/comm": comm})["fabric.manager"]
    assert found.value == "absent"


def test_a_manager_that_is_installed_and_does_not_run():
    found = looked(GPU | SWITCHES | HOST | {"/usr/bin/nv-fabricmanager": ""})["fabric.manager"]
    assert (found.value, found.source) == ("installed", "/usr/bin/nv-fabricmanager")


def test_a_container_does_not_see_the_processes_of_the_host():
    files = GPU | SWITCHES | {"/proc/1/comm": "python\n"}
    found = looked(files)["fabric.manager"]
    assert found.value is None and "cannot be seen from here" in found.gap
    assert looked(files | {"/proc/2/comm": "sleep\n"})["fabric.manager"].gap


def test_a_workstation_is_not_searched_process_by_process():
    host = Fake(GPU | HOST | {f"/proc/{pid}/comm": "x" for pid in range(100, 200)})
    found = by_key(fabric.probe_fabric(host, detect_devices(host)))
    assert found["fabric.manager"].value == "absent"
    assert len([a for a in host.asked if a[0] == "read" and a[1].endswith("/comm")]) == 1


@pytest.mark.parametrize("path", [PID, "/proc/", "/usr/bin/nv-fabricmanager"])
def test_what_is_denied_is_a_gap(path):
    assert looked(GPU | SWITCHES | HOST | {path: DENIED})["fabric.manager"].gap == "permission denied"


def test_a_process_that_ends_meanwhile_does_no_harm():
    files = GPU | SWITCHES | HOST | {"/proc/99/comm": AccessError("no such process")}
    assert looked(files)["fabric.manager"].value == "absent"


def beside(host, *facts):
    """What is told beside some facts of the GPUs."""
    return by_key(optional_probes.extend_gpu_facts(host, list(facts), detect_devices(host)))


# -- where there is no GPU


def test_a_machine_without_nvidia_has_no_switches_and_no_manager():
    found = beside(Fake(BARE))
    assert found["fabric.switches"].value == 0
    assert found["fabric.manager"].value == "absent"
    assert "/proc" not in [a[1] for a in Fake(BARE).asked]


def test_a_machine_that_cannot_be_seen_says_so():
    found = beside(Fake({f"{PCI}/": DENIED}))
    assert "permission denied" in found["fabric.switches"].gap
    assert "permission denied" in found["fabric.manager"].gap


# -- memory


def near(*nodes, **more):
    files = {f"{PCI}/0000:{n}b:00.0/numa_node": f"{node}\n" for n, node in enumerate(nodes)}
    return Fake(files | more)


def listed(count, gap=""):
    addresses = tuple(f"0000:{n}b:00.0" for n in range(count))
    return [Fact("gpu.count", count, "NVML"), Fact("gpu.pci", None if gap else addresses, "NVML", gap=gap)]


@pytest.mark.parametrize("nodes", [(0,), (0, 0, 1, 1), (1, 0), (-1,)])
def test_the_node_of_each_gpu_in_the_order_of_the_list(nodes):
    found = by_key(fabric.probe_gpu_numa(near(*nodes), listed(len(nodes))))["gpu.numa"]
    assert (found.value, found.gap) == (nodes, "")
    assert found.source == f"{PCI}/*/numa_node"


def test_only_the_gpus_that_the_driver_lists_are_asked():
    """A container may have two of the eight cards on the bus."""
    facts = [Fact("gpu.pci", ("0000:2b:00.0",), "NVML")]
    assert by_key(fabric.probe_gpu_numa(near(0, 0, 1), facts))["gpu.numa"].value == (1,)


@pytest.mark.parametrize(
    ("host", "facts", "gap"),
    [
        (near(0), listed(2), "not there"),
        (near("x"), listed(1), "no number"),
        (near(0), listed(1, gap="GPU is lost"), "GPU is lost"),
        (near(0), [], "no list"),
        (Fake({f"{PCI}/0000:0b:00.0/numa_node": DENIED}), listed(1), "permission denied"),
    ],
)
def test_one_that_is_not_known_makes_the_list_unknown(host, facts, gap):
    found = by_key(fabric.probe_gpu_numa(host, facts))["gpu.numa"]
    assert found.value is None and gap in found.gap


def test_beside_the_facts_of_the_gpus():
    facts = listed(2)
    host = near(0, 1)
    found = optional_probes.extend_gpu_facts(host, facts, detect_devices(host))
    assert found[:2] == facts and found[2].value == (0, 1)
    assert beside(near(), Fact("gpu.count", 0, "x"))["gpu.numa"].value == ()
    assert beside(near(), Fact("gpu.count", None, "x", gap="dark"))["gpu.numa"].gap == "dark"
    assert beside(near())["gpu.numa"].gap


def test_the_keys():
    host = Fake(GPU)
    assert tuple(f.key for f in fabric.probe_fabric(host, detect_devices(host))) == fabric.KEYS
