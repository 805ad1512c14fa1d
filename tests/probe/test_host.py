"""The machine itself, whole and in parts."""

from __future__ import annotations

import pytest

from gpuready.probe import machine
from gpuready.probe.machine import parse_meminfo_bytes, parse_os_release
from gpuready.system import AccessError
from tests.probe.fakes import LINUX, Fake, by_key

GIB = 1 << 30
UBUNTU = 'PRETTY_NAME="Ubuntu 22.04.5 LTS"\nNAME="Ubuntu"\nVERSION_ID="22.04"\n# remark=1\nID=ubuntu\n'
MEMINFO = "MemTotal:       263432132 kB\nMemFree:         1000000 kB\nMemAvailable:   200000000 kB\nBuffers: 1 kB\n"
WHOLE = {
    "/etc/os-release": UBUNTU,
    "/proc/meminfo": MEMINFO,
    "/proc/version": "Linux version 6.8.0-45-generic (buildd@lcy02) (x86_64-linux-gnu-gcc-12)",
    "/proc/1/cgroup": "0::/init.scope\n",
    "/proc/self/cgroup": "0::/user.slice\n",
    "/sys/fs/cgroup/cgroup.controllers": "cpu memory",
}


def look(files=None, **requested):
    requested.setdefault("disks", {"/dev/shm": {"total": 64 << 20, "free": 60 << 20, "free_inodes": 9}})
    return by_key(machine.probe_machine(Fake({**WHOLE, **(files or {})}, libc="2.35", **requested)))


def without(*starts):
    return {path: text for path, text in WHOLE.items() if not path.startswith(starts)}


def test_a_plain_server():
    facts = look()
    assert set(facts) == set(machine.KEYS)
    expected = {
        "os.system": "linux", "os.name": "ubuntu", "os.version": "22.04", "os.pretty": "Ubuntu 22.04.5 LTS",
        "os.kernel": "6.8.0", "os.release": "6.8.0-45-generic", "os.arch": "x86_64", "os.glibc": "2.35",
        "os.wsl": False, "os.container": None, "os.sandbox": None, "host.name": "gpu-07", "host.cpus": 96,
        "host.cores_usable": 96, "memory.total": 263432132 * 1024, "memory.available": 200000000 * 1024,
        "memory.limit": None, "system.shm": 64 << 20, "system.shm_free": 60 << 20, "limit.nofile": 1024,
        "limit.memlock": -1, "limit.stack": 8 << 20,
    }  # fmt: skip
    assert {key: facts[key].value for key in expected} == expected
    assert not [f for f in facts.values() if f.gap]


def test_affinity():
    """D46."""
    facts = look(cpus={"online": 96, "usable": 6})
    assert (facts["host.cpus"].value, facts["host.cores_usable"].value) == (96, 6)


# -- cgroups: D45 -------------------------------------------------------------------------------------


def test_version_two():
    files = {
        "/proc/self/cgroup": "0::/kubepods/pod1/c2\n",
        "/sys/fs/cgroup/kubepods/pod1/c2/cpu.max": "150000 100000\n",
        "/sys/fs/cgroup/kubepods/pod1/c2/memory.max": f"{4 * GIB}\n",
        "/sys/fs/cgroup/kubepods/pod1/c2/memory.current": f"{3 * GIB}\n",
        "/sys/fs/cgroup/kubepods/pod1/c2/memory.stat": f"anon 5\ninactive_file {GIB}\nfile 7\n",
        "/sys/fs/cgroup/kubepods/memory.max": "max\n",
        "/sys/fs/cgroup/kubepods/cpu.max": "max 100000\n",
    }
    facts = look(files)
    assert facts["memory.limit"].value == 4 * GIB
    assert facts["memory.limit"].source == "/sys/fs/cgroup/kubepods/pod1/c2/memory.max"
    assert facts["memory.available"].value == 2 * GIB
    assert facts["memory.total"].value == 263432132 * 1024
    assert (facts["host.cpus"].value, facts["host.cores_usable"].value) == (96, 2)


def test_the_tightest_of_all_groups_counts():
    files = {
        "/proc/self/cgroup": "0::/a/b\n",
        "/sys/fs/cgroup/a/b/memory.max": f"{64 * GIB}",
        "/sys/fs/cgroup/a/memory.max": f"{8 * GIB}",
        "/sys/fs/cgroup/a/b/cpu.max": "800000 100000",
        "/sys/fs/cgroup/a/cpu.max": "400000 100000",
    }
    facts = look(files)
    assert facts["memory.limit"].value == 8 * GIB
    assert facts["host.cores_usable"].value == 4


def test_inside_a_container_the_path_may_lead_nowhere():
    files = {"/proc/self/cgroup": "0::/../../docker/abc\n", "/sys/fs/cgroup/memory.max": f"{2 * GIB}"}
    assert look(files)["memory.limit"].value == 2 * GIB


def test_version_one():
    files = without("/sys/fs/cgroup", "/proc/self") | {
        "/proc/self/cgroup": "5:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n1:name=systemd:/\n",
        "/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes": f"{4 * GIB}",
        "/sys/fs/cgroup/memory/docker/x/memory.usage_in_bytes": f"{GIB}",
        "/sys/fs/cgroup/memory/docker/x/memory.stat": "total_inactive_file 0\n",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
        "/sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us": "200000",
        "/sys/fs/cgroup/cpu/docker/x/cpu.cfs_period_us": "100000",
    }
    facts = by_key(machine.probe_machine(Fake(files, libc="2.35")))
    assert (facts["memory.limit"].value, facts["memory.available"].value) == (4 * GIB, 3 * GIB)
    assert facts["host.cores_usable"].value == 2


def test_version_one_without_limits():
    files = without("/sys/fs/cgroup") | {
        "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
        "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
        "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
    }
    facts = by_key(machine.probe_machine(Fake(files)))
    assert facts["memory.limit"].value is None and not facts["memory.limit"].gap
    assert facts["host.cores_usable"].value == 96


@pytest.mark.parametrize("text", ["", "max", "rubbish", "-5", "9" * 40, "0 0", "100000 0"])
def test_unusual_limits_are_none(text):
    facts = look({"/sys/fs/cgroup/memory.max": text, "/sys/fs/cgroup/cpu.max": text})
    assert facts["host.cores_usable"].value == 96
    assert facts["memory.limit"].value is None


def test_a_quota_below_one_is_still_one():
    assert look({"/sys/fs/cgroup/cpu.max": "10000 100000"})["host.cores_usable"].value == 1


def test_no_cgroups():
    facts = by_key(machine.probe_machine(Fake(without("/sys"))))
    assert facts["memory.limit"].gap == "there is no /sys/fs/cgroup"
    assert facts["host.cores_usable"].value == 96


# -- what it runs inside ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "env", "kind"),
    [
        ({"/.dockerenv": ""}, {}, "docker"),
        ({"/run/.containerenv": ""}, {}, "podman"),
        ({"/.dockerenv": ""}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ({}, {"APPTAINER_CONTAINER": "/x.sif"}, "singularity"),
        ({"/.singularity.d/runscript": ""}, {}, "singularity"),
        ({"/proc/1/cgroup": "12:memory:/docker/0123\n"}, {}, "docker"),
        ({"/proc/1/cgroup": "0::/kubepods.slice/besteffort\n"}, {}, "kubernetes"),
        ({"/proc/1/cgroup": "1:name=systemd:/lxc/web\n"}, {}, "lxc"),
        ({}, {}, None),
    ],
)
def test_containers(files, env, kind):
    assert look(files, env=env)["os.container"].value == kind


@pytest.mark.parametrize(
    "files", [{"/proc/version": "Linux version 5.15.167.4-microsoft-standard-WSL2"}, {"/dev/dxg": ""}]
)
def test_wsl(files):
    assert look(files)["os.wsl"].value is True


@pytest.mark.parametrize(
    "name",
    [
        {"system": "Linux", "release": "4.4.0", "version": "#1 SMP Sun Jan 10 15:06:54 PST 2016", "machine": "x86_64"},
        {"system": "Linux", "release": "4.19.0-gvisor", "version": "#1 SMP", "machine": "x86_64"},
    ],
)
def test_gvisor_is_named(name):
    """D48."""
    assert look(uname=name)["os.sandbox"].value == "gvisor"


def test_other_names_for_an_architecture():
    assert look(uname={**LINUX, "machine": "arm64"})["os.arch"].value == "aarch64"


# -- a machine with holes -----------------------------------------------------------------------------


def test_no_proc():
    """D43."""
    facts = by_key(machine.probe_machine(Fake(without("/proc"))))
    assert facts["memory.total"].gap == "there is no /proc/meminfo"
    assert facts["os.name"].value == "ubuntu"
    assert facts["os.wsl"].value is False


def test_no_release_file():
    facts = by_key(machine.probe_machine(Fake(without("/etc"))))
    assert facts["os.name"].value is None and not facts["os.name"].gap


def test_the_second_place_of_the_release_file():
    facts = by_key(machine.probe_machine(Fake(without("/etc") | {"/usr/lib/os-release": "ID=fedora\n"})))
    assert facts["os.name"].value == "fedora"
    assert facts["os.version"].value is None


def test_no_shared_memory():
    assert look(disks={})["system.shm"].value is None


def test_everything_is_dark():
    class Dark(Fake):
        def answer_query(self, verb, *args):
            raise AccessError("not recorded")

    for fact in machine.probe_machine(Dark()):
        assert fact.gap == "not recorded" or fact.key in ("os.wsl", "os.sandbox", "os.container"), fact


def test_kernels_before_available_memory():
    assert look({"/proc/meminfo": "MemTotal: 100 kB\nMemFree: 40 kB\n"})["memory.available"].value == 40 * 1024


def test_a_meminfo_without_numbers():
    facts = look({"/proc/meminfo": "MemTotal: many kB\n"})
    assert facts["memory.total"].gap == facts["memory.available"].gap == "not in the file"


def test_reading_release_files():
    assert parse_os_release("A='b c'\nB=\"d\"\nC=e=f\nnothing\n#D=1\n") == {"A": "b c", "B": "d", "C": "e=f"}


def test_reading_meminfo():
    assert parse_meminfo_bytes(MEMINFO, "MemFree") == 1000000 * 1024
    assert parse_meminfo_bytes(MEMINFO, "Swap") is None
