"""D39-D64: everything around the GPUs and the packages that can be missing, hidden, full, wrong or in the way."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.bench import ELF, patience
from tests.probe.samples import smi_gpu, smi_xml, uuid

HERE = Path(__file__).parent
LARGE = "os.cpu_count = lambda: 96\nos.sched_getaffinity = lambda pid: range(96)\n"
"""Makes the real processors 96."""

XID = "Nov 15 03:06:11 gpu-07 kernel: [   12.3] NVRM: Xid (PCI:0000:04:00): {}, pid=1, name=python\n"


def building(machine):
    """The machine with all that a build needs."""
    machine.file("/usr/include/python3.12/Python.h")
    machine.file("/usr/local/cuda/version.json", json.dumps({"cuda": {"version": "12.6.1"}}))
    machine.program("nvcc", "exit 1", folder="/usr/local/cuda/bin")
    return machine


# -- folders and disks ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "env",
    [
        {"HOME": None},
        {"HOME": ""},
        {"HOME": "relative"},
        {"HOME": "/proc/nonexistent"},
        {"HOME": "/root", "XDG_CACHE_HOME": "\n", "XDG_CONFIG_HOME": "///"},
        {"HOME": "~", "HF_HOME": "~/\udcff"},
    ],
)
def test_d39_homes_that_are_none(machine, env):
    found = machine.check(env=env)
    assert found.value("gpu.count") == 1 and found.code in (0, 3)
    assert bool(found.gap("hub.cache")) == (not env["HOME"])


def test_d40_folders_that_may_not_be_written(open_machine):
    """Nothing is written anywhere, so nothing is missed; the read-only root is in test_root.py."""
    machine = open_machine
    for folder in (machine.home, machine.tmp):
        folder.chmod(0o555)
    found = machine.check(before=machine.as_nobody())
    before = sorted(str(p) for p in machine.folder.rglob("*"))
    assert machine.check(before=machine.as_nobody()).found["verdict"] == found.found["verdict"]
    assert found.value("gpu.count") == 1
    assert sorted(str(p) for p in machine.folder.rglob("*")) == before
    refused = machine.run("probe", "-o", str(machine.home / "m.json"), before=machine.as_nobody())
    assert refused.code == 2 and refused.err == f"gpuready: cannot write {machine.home}/m.json: permission denied\n"


def test_d42_a_temporary_folder_that_is_not_there(machine):
    building(machine)
    assert machine.check("--wants", "build").code == 0
    found = machine.check("--wants", "build", env={"TMPDIR": "/scratch/job-7"})
    assert found.codes == ["BLD013"] and found.code == 1
    assert "/scratch/job-7, does not exist" in found.finding("BLD013")["says"]


def test_d42_a_temporary_folder_mounted_noexec_by_its_mounts(machine):
    mounts = "22 1 259:2 / / rw - ext4 /dev/a rw\n23 22 0:5 / /tmp rw,nosuid,noexec - tmpfs tmpfs rw\n"
    building(machine).file("/proc/self/mountinfo", mounts)
    assert "is mounted noexec" in machine.check("--wants", "build").finding("BLD013")["says"]


@pytest.mark.parametrize("hidden", ["/proc", "/sys", "/dev", "/etc"])
def test_d43_d44_no_proc_no_sys(machine, hidden):
    machine.gone(hidden)
    found = machine.check()
    assert found.value("gpu.count") == 1 and found.value("python.version") == "3.12.4"
    if hidden == "/proc":
        assert "/proc/meminfo" in found.gap("memory.total") and found.value("driver.version") == "580.95.05"
    if hidden == "/sys":
        assert found.gap("gpu.pci_count") and found.value("driver.version") == "580.95.05"
    if hidden == "/etc":
        assert found.value("os.pretty") is None


def test_d44_no_sign_where_no_sign_could_be(machine):
    """Without /sys nobody can say that there is no GPU."""
    machine.gone("/sys", "/proc/driver", "/dev", "/usr/bin/nvidia-smi")
    found = machine.check()
    assert found.code == 3 and "GPU001" in found.undecided
    assert found.gap("gpu.count") == "there is no /sys/bus/pci/devices here"


# -- what is left of the machine --------------------------------------------------------------------------

SECOND = {"cpu.max": "200000 100000\n", "memory.max": f"{4 << 30}\n", "memory.current": "1000000\n"}
FIRST = {
    "cpu/cpu.cfs_quota_us": "200000\n",
    "cpu/cpu.cfs_period_us": "100000\n",
    "memory/memory.limit_in_bytes": f"{4 << 30}\n",
    "memory/memory.usage_in_bytes": "1000000\n",
}


def limited(machine, files):
    if "cpu.max" not in files:
        machine.gone("/sys/fs/cgroup")
        machine.file("/proc/self/cgroup", "3:memory:/\n2:cpu,cpuacct:/\n")
    for name, text in files.items():
        machine.file(f"/sys/fs/cgroup/{name}", text)
    return machine


@pytest.mark.parametrize("files", [SECOND, FIRST], ids=["v2", "v1"])
def test_d45_two_processors_and_4_gib_of_a_large_host(machine, files):
    found = limited(machine, files).check(before=LARGE)
    assert (found.value("host.cpus"), found.value("host.cores_usable")) == (96, 2)
    assert found.value("memory.total") > 250 << 30 and found.value("memory.limit") == 4 << 30
    assert found.value("memory.available") == (4 << 30) - 1_000_000


def test_d46_fewer_processors_by_affinity(machine):
    one = f"os.sched_setaffinity(0, {{{min(os.sched_getaffinity(0))}}})\n"
    found = machine.check(before=one)
    assert found.value("host.cores_usable") == 1 and found.facts["host.cores_usable"]["source"] == "sched_getaffinity"


def test_d47_wsl(machine):
    machine.gone("/sys/module", "/proc/driver", "/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm", "/usr/lib")
    machine.gone("/sys/bus/pci/devices/0000:04:00.0", "/usr/bin/nvidia-smi")
    machine.file("/dev/dxg")
    machine.file("/proc/version", "Linux version 5.15.167.4-microsoft-standard-WSL2")
    machine.file("/usr/lib/wsl/lib/libcuda.so.1.1", ELF)
    machine.link("/usr/lib/wsl/lib/libcuda.so.1", "libcuda.so.1.1")
    result = machine.folder / "wsl.xml"
    result.write_text(smi_xml(smi_gpu(0, product_name="NVIDIA GeForce RTX 4090"), driver="581.42"))
    machine.program("nvidia-smi", f"cat {result}", folder="/usr/lib/wsl/lib")
    found = machine.check()
    assert found.code == 0 and not {"GPU001", "DRV004", "DRV002"} & set(found.codes)
    assert found.value("driver.wsl") is True and found.value("driver.version") == "581.42"
    assert found.value("libcuda.path") == "/usr/lib/wsl/lib/libcuda.so.1"


def test_d48_a_sandbox_with_a_kernel_of_its_own(machine):
    name = {"system": "Linux", "release": "4.4.0", "version": "#1 SMP Sun Jan 10 15:06:54 PST 2016"}
    found = machine.check(before=f"Bench._answer_uname = lambda self: {name | {'machine': os.uname().machine}!r}\n")
    assert found.value("os.sandbox") == "gvisor" and found.value("os.kernel") == "4.4.0"


# -- GPUs that are not what they seem ---------------------------------------------------------------------


def test_d49_mig_without_an_instance(machine):
    machine.says("nvidia-smi", smi_xml(smi_gpu(0, current_mig="Enabled")))
    found = machine.check()
    assert found.code == 1 and "no MIG instance" in found.finding("GPU007")["says"]


def test_d49_mig_with_instances(nvml):
    nvml.variables |= {"FAKE_GPUS": "1", "FAKE_MIG": "3"}
    found = nvml.check()
    rows = found.value("gpu.mig_devices")
    assert found.value("gpu.count") == 1 and len(rows) == 3 and all(row["uuid"].startswith("MIG-") for row in rows)
    assert rows[0]["uuid"] in found.words("GPU007")


def mixed(machine):
    names = ("NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3")
    machine.gpus(2)
    machine.says("nvidia-smi", smi_xml(*(smi_gpu(i, product_name=name) for i, name in enumerate(names))))
    return machine


def test_d50_gpus_that_differ(machine):
    found = mixed(machine).check("--wants", "fp8")
    assert found.value("gpu.capability") == ["8.0", "9.0"]
    assert "A100" in found.finding("CAP002")["says"] and "H100" not in found.finding("CAP002")["says"]
    assert "different models" in found.finding("GPU016")["says"]


def test_d51_indices_of_gpus_that_differ_name_none_for_certain(machine):
    found = mixed(machine).check(env={"CUDA_VISIBLE_DEVICES": "1"})
    assert "CUDA numbers them by speed" in found.gap("gpu.visible")
    ordered = machine.check(env={"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    by_uuid = machine.check(env={"CUDA_VISIBLE_DEVICES": uuid(1)})
    assert ordered.value("gpu.visible") == by_uuid.value("gpu.visible") == [1]


# -- the kernel's log and the clock -----------------------------------------------------------------------


def test_d52_a_million_lines_and_a_forged_one(machine):
    lines = b"Nov 15 03:06:11 gpu-07 systemd[1]: Started something.\n" * 1_000_000
    forged = "Nov 15 03:06:12 gpu-07 ada: hello kernel: NVRM: Xid (PCI:0000:04:00): 79, pid=1\n"
    machine.file("/var/log/kern.log", lines + (forged + XID.format(31)).encode())
    found = machine.check()
    assert [row["xid"] for row in found.value("kernel.xids")] == [31] and "SYS021" not in found.codes
    assert found.seconds < 2 + patience()


def test_d52_a_log_that_may_not_be_read(open_machine):
    log = open_machine.file("/var/log/kern.log", XID.format(79), mode=0)
    found = open_machine.check(before=open_machine.as_nobody())
    log.chmod(0o644)
    assert found.gap("kernel.xids") == "/var/log/kern.log: permission denied" and "SYS021" in found.undecided


@pytest.mark.parametrize(
    ("xids", "severity"),
    [((13, 31, 43, 45), None), ((63, 94), "warning"), ((79,), "error"), ((74, 31), "error"), ((64, 95), "error")],
)
def test_d53_faults_of_programs_and_faults_of_gpus(machine, xids, severity):
    machine.file("/var/log/kern.log", "".join(XID.format(xid) for xid in xids))
    found = machine.check()
    assert {row["xid"] for row in found.value("kernel.xids")} == set(xids)
    assert found.code == (severity == "error") and [f["severity"] for f in found.found["findings"]] == (
        [severity] if severity else []
    )


@pytest.mark.parametrize(("text", "fires"), [("from 0x0 (None) to 0x1 (GPU Reset)", True), ("to 0x0 (None)", False)])
def test_d53_a_reset_that_is_due_and_one_that_is_done(machine, text, fires):
    line = XID.format(154).replace("pid=1, name=python", f"GPU recovery action changed {text}")
    machine.file("/var/log/kern.log", line)
    assert ("SYS021" in machine.check().codes) == fires


@pytest.mark.parametrize(("year", "fires"), [("1970", True), ("2026", False)])
def test_d54_a_clock_that_is_wrong_and_runs_backwards(machine, built, year, fires):
    machine.program("nvidia-smi", "exec sleep 98765")
    machine.pace = 0.1
    clock = {"LD_PRELOAD": built(HERE / "clock.c", "libclock.so"), "FAKE_YEAR": year}
    found = machine.check(env=clock)
    assert ("SYS011" in found.codes) == fires and found.value("clock.year") == int(year)
    assert "deadline" in found.gap("gpu.count") and found.seconds < 0.3 + 0.5 + patience()
    if fires:
        (counts,) = [line for line in machine.screen("-v", env=clock).splitlines() if " checks passed" in line]
        assert re.search(r" \d+(?:\.\ds| ms)$", counts)  # by a clock that never jumps


# -- the network, builds, the terminal --------------------------------------------------------------------


def test_d55_no_name_is_ever_looked_up(machine):
    """A resolver that is dead costs nothing, since a check asks none; nor does it open a socket."""
    heard = machine.folder / "heard"
    listen = f"""
import sys
def heard(event, args):
    if event.startswith("socket."):
        with open({str(heard)!r}, "a") as file:
            file.write(event + "\\n")
sys.addaudithook(heard)
"""
    machine.file("/etc/resolv.conf", "nameserver 192.0.2.1\noptions timeout:5 attempts:5\n")
    found = machine.check(before=listen, env={"MASTER_ADDR": "no-such-host.invalid"})
    assert found.seconds < patience() and not heard.exists()


def test_d58_no_compiler_and_no_ninja(machine):
    building(machine)
    machine.gone("/usr/bin/gcc", "/usr/bin/g++", "/usr/bin/ninja")
    found = machine.check("--wants", "build")
    assert found.code == 1 and found.codes == ["BLD011"]
    assert found.finding("BLD011")["says"] == "not on the PATH: a C++ compiler and ninja"


def test_d58_a_gcc_that_is_too_new_for_nvcc(machine):
    building(machine)
    for name in ("gcc", "g++"):
        machine.program(name, "echo 15.2.0")
    found = machine.check("--wants", "build")
    assert found.codes == ["BLD005"] and "15.2" in found.words("BLD005")


def test_d59_more_compilers_than_the_memory_holds(machine):
    limited(building(machine), SECOND | {"cpu.max": "max 100000\n"})
    found = machine.check("--wants", "build", before=LARGE)
    assert found.finding("BLD014")["says"] == "a build would start 96 compilers, but the memory is enough for about 1"
    assert found.finding("BLD014")["fix"][0]["does"] == "set MAX_JOBS=1"


def test_d61_a_user_whom_nobody_knows(open_machine):
    """In containers a user often has a number and no name; root may become one here, others are known."""
    if os.geteuid() != 0:
        open_machine.file("/etc/passwd", "root:x:0:0::/root:/bin/sh\n")
    found = open_machine.check(before=open_machine.as_nobody(uid=4242))
    assert found.code in (0, 3) and found.value("gpu.count") == 1
    assert "SYS020" not in found.codes


def test_d62_two_at_once_write_one_file(machine, tmp_path):
    path = tmp_path / "m.json"
    racing = [machine.start("probe", "-o", str(path)) for _ in range(6)]
    assert [process.wait(timeout=60) for process in racing] == [0] * 6
    for process in racing:
        process.communicate()
    assert json.loads(path.read_text())["kind"] == "recording"
    assert [p.name for p in tmp_path.iterdir() if "m.json" in p.name] == ["m.json"]


CONTRACT = """
framework = "eight"
version = "1.0"
distribution = "torch"
title = "Eight"
origin = "a test"
platforms = ["cuda"]
needs = [
  { key = "gpu.count", want = ">=8", level = "required", cite = "the contract, line 9" },
  { key = "os.system", want = "windows", level = "required", cite = "the contract, line 10" },
  { key = "os.arch", want = "riscv64", level = "required", cite = "the contract, line 11" },
]
"""


def test_d64_a_contract_for_another_machine(machine, tmp_path):
    path = tmp_path / "eight.toml"
    path.write_text(CONTRACT)
    machine.gpus(4)
    ran = machine.run("check", "--contract", str(path), "--json")
    found = {finding["code"]: finding for finding in ran.found["findings"]}
    assert ran.code == 1 and {"SYS003", "SYS004"} <= set(found)
    words = json.dumps(found)
    for found_and_needed in ('"value": 4', ">=8", '"value": "linux"', '"windows"', "riscv64", os.uname().machine):
        assert found_and_needed in words


# -- everything at once -----------------------------------------------------------------------------------


def test_every_program_hangs_and_the_deadlines_hold(machine):
    """In a twentieth of the time; test_root.py has it with the real deadlines."""
    for name in ("nvidia-smi", "nvcc", "gcc", "g++", "ninja", "cmake"):
        machine.program(name, "sleep 98765 & sleep 98765")
    machine.pace = 0.05
    found = machine.check()
    assert found.code == 3 and found.seconds < 6 * 0.15 + 0.5 + patience()
    assert "nvidia-smi: deadline" in found.gap("gpu.count")
    for key in ("toolkit.version", "compiler.gcc", "compiler.gxx", "compiler.ninja", "compiler.cmake"):
        assert found.gap(key) == "deadline"
    for key in ("os.kernel", "memory.total", "python.version", "torch.version", "env.names", "tmp.exists", "disk.free"):
        assert found.value(key)


def test_the_bench_is_the_real_command(machine):
    """The prologue of the bench changes where the door looks and nothing of what is shown."""
    plain = [sys.executable, "-c", "from gpuready.cli import main; main()", "--version"]
    env = {"PYTHONPATH": str(HERE.parents[1] / "src"), "PATH": "/usr/bin:/bin"}
    assert machine.run("--version").out == subprocess.check_output(plain, env=env, text=True)
