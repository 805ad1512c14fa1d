"""The cases that break something for real: frozen, dead, full and read-only disks, hidden folders, unknown users.

They need root, and are run by ``make faults`` alone. Every mount is in a namespace of this process; every disk is
a file of the test. The real root is only ever looked at through a second, read-only mount.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.apply import wheels
from tests.faults import mounts
from tests.faults.bench import Machine, patience, strays
from tests.running import SRC

pytestmark = pytest.mark.faults
HOST = ("os.kernel", "memory.total", "limit.nofile", "env.names")
"""Facts that no broken disk may hide."""

COVERED = 'mount -t {kind} none {path} && exec "$@"'


@pytest.fixture(scope="session", autouse=True)
def private() -> None:
    if os.geteuid() != 0:
        pytest.skip("NOT ROOT: nothing of this file is tested; run `make faults` as root")
    try:
        mounts.apart()
    except OSError as error:
        pytest.skip(f"NO MOUNT NAMESPACE ({error}): nothing of this file is tested")


def covered(path: str, kind: str) -> list[str]:
    """What starts a command where something else lies over a folder."""
    return ["unshare", "-m", "--", "sh", "-c", COVERED.format(path=path, kind=kind), "sh"]


def open_to_all(path: str | Path) -> bool:
    return all(os.stat(p).st_mode & 0o001 for p in (Path(path), *Path(path).parents) if os.path.isdir(p))


@pytest.fixture
def strangers(open_machine: Machine) -> Machine:
    if not open_to_all(SRC):
        pytest.skip(f"{SRC} may not be entered by other users: run this from another folder")
    return open_machine


def real(machine: Machine, *argv: str, **options: object):
    """The check of this very machine, with all that no fault may hide."""
    found = machine.check(*argv, rooted=False, **options)
    for key in HOST:
        assert found.value(key) is not None
    return found


# -- D state ----------------------------------------------------------------------------------------------


def test_d02_nvidia_smi_cannot_be_killed(machine, tmp_path, seen):
    with mounts.disk(tmp_path) as disk:
        machine.program("nvidia-smi", f": > {disk}/file")
        with mounts.frozen(disk):
            process = machine.start("check", "transformers", "--json", marker="bench-frozen")
            began = time.monotonic()
            out, err = process.communicate(timeout=30)
            seconds = time.monotonic() - began
        left = time.monotonic() + 2
        while strays("bench-frozen") and time.monotonic() < left:
            time.sleep(0.02)
        assert strays("bench-frozen") == []  # the thaw ends what no kill could
    gap = {fact["key"]: fact for fact in json.loads(out)["facts"]}["gpu.count"]["gap"]
    seen(
        "D02", "unkillable, its pid and where it waits, within 3.5 s and the start", gap.partition("; yet")[0], seconds
    )
    assert process.returncode == 3 and err == b""
    assert "nvidia-smi: unkillable: pid " in gap and "in state D (" in gap
    assert seconds < 3 + 0.5 + patience()


# -- a disk that does not answer --------------------------------------------------------------------------


def test_d35_the_active_environment_lies_on_a_dead_disk(machine, tmp_path, seen):
    with mounts.dead(tmp_path / "dead") as dead:
        found = real(machine, env={"VIRTUAL_ENV": f"{dead}/venv"}, tidy=False)
    machine.look_after(*machine.last)  # what no kill could reach has ended with the disk
    seen(
        "D35",
        "packages unknown, host complete, within 10.5 s and the start",
        found.gap("python.packages"),
        found.seconds,
    )
    assert found.gap("python.packages").startswith("no answer within 8 s") and found.value("compiler.gcc") is not False
    assert found.seconds < 10 + 0.5 + patience()


def test_d35_a_python_that_is_named_lies_on_a_dead_disk(machine, tmp_path, seen):
    with mounts.dead(tmp_path / "dead") as dead:
        ran = machine.run("check", "--python", f"{dead}/venv", rooted=False, tidy=False)
    machine.look_after(*machine.last)
    seen("D35", "refused in one sentence, within 10.5 s and the start", ran.err.strip(), ran.seconds)
    assert ran.code == 2 and ran.out == "" and "is its disk there?" in ran.err and ran.err.count("\n") == 1
    assert ran.seconds < 10 + 0.5 + patience()


NAMED = (
    "check --on {}/machine.json",
    "check transformers --config={}/job.yaml",
    "check transformers --contract {}/c.toml",
    "check --dockerfile {}/Dockerfile",
    "diagnose {}/log",
    "fit {}/config.json --on h100",
    "plan transformers --on h100x8 --find-links {}/wheels",
    "report --on {}/machine.json",
    "install --verify -e {}/env",
    "probe -o {}/machine.json",
    "run {}/train.py",
)


@pytest.mark.parametrize("reads_only", [False, True], ids=["dead", "reads"])
@pytest.mark.parametrize("command", NAMED)
def test_d35_a_file_that_is_named_lies_on_a_dead_disk(machine, tmp_path, seen, command, reads_only):
    with mounts.dead(tmp_path / "dead", reads_only) as dead:
        ran = machine.run(*command.format(dead).split(), rooted=False, tidy=False)
    machine.look_after(*machine.last)
    seen("D35", "refused in one sentence, within 5.5 s and the start", ran.err.strip(), ran.seconds)
    assert ran.code == 2 and ran.out == "" and "is its disk there?" in ran.err and ran.err.count("\n") == 1
    assert ran.seconds < 5 + 0.5 + patience()


@pytest.mark.parametrize(
    ("case", "name", "lost"),
    [
        ("D39", "HOME", "hub.token"),
        ("D42", "TMPDIR", "tmp.exists"),
        ("D23", "CUDA_HOME", "toolkit.version"),
        ("D36", "PATH", "compiler.gcc"),
    ],
)
def test_a_variable_leads_to_a_dead_disk(machine, tmp_path, seen, case, name, lost):
    with mounts.dead(tmp_path / "dead") as dead:
        rest = f":{os.environ['PATH']}" if name == "PATH" else ""
        found = real(machine, "--python", sys.executable, env={name: f"{dead}/x{rest}"}, tidy=False)
    machine.look_after(*machine.last)
    what = f"{name} on a dead disk: {lost} unknown, packages and host known, within 10.5 s and the start"
    seen(case, what, found.gap(lost), found.seconds)
    assert found.gap(lost).startswith("no answer within") and found.value("python.packages")
    assert found.seconds < 10 + 0.5 + patience()


def test_prove_with_its_home_on_a_frozen_disk(tmp_path):
    words = [sys.executable, "-m", "gpuready", "prove", "matmul-tf32"]
    with mounts.disk(tmp_path) as home, mounts.frozen(home):
        ran = subprocess.run(words, env={**os.environ, "HOME": str(home)}, capture_output=True, text=True, timeout=60)
    assert "the evidence was not kept: the disk of the cache does not answer" in ran.stdout and ran.returncode in (0, 1)


# -- disks that cannot be written -------------------------------------------------------------------------


def test_d40_a_read_only_root(machine, tmp_path, seen):
    root = tmp_path / "readonly"
    with mounts.mounted(root, "-o", "bind,ro", "/"):
        for needed in (sys.executable, SRC, machine.folder):
            if not os.path.exists(f"{root}{needed}"):
                pytest.skip(f"{needed} is not on the root disk, so it is not on its second mount either")
        machine.start("--version").communicate()  # the script of the bench must be there before
        with mounts.mounted(Path(f"{root}/proc"), "-t", "proc", "proc"):
            prefix = ["/usr/sbin/chroot", root]
            found = real(machine, prefix=prefix, cwd="/")
            refused = machine.run("probe", "-o", f"{machine.folder}/m.json", rooted=False, prefix=prefix, cwd="/")
    seen("D40", "the check runs; a file is refused with the reason", refused.err.strip(), found.seconds)
    assert found.seconds < patience() and refused.code == 2
    assert refused.err == f"gpuready: cannot write {machine.folder}/m.json: read-only file system\n"


def fill(disk: Path, what: str) -> None:
    """Leave no room, or no inode."""
    try:
        if what == "room":
            with (disk / "filler").open("wb", buffering=0) as file:
                while True:
                    file.write(b"x" * 4096)
        for number in range(1 << 20):
            (disk / f"filler{number}").touch()
    except OSError:
        return


@pytest.mark.parametrize("what", ["room", "inodes"])
def test_d41_a_full_disk(machine, tmp_path, seen, what):
    with mounts.disk(tmp_path, 2 << 20, "-O", "^has_journal", "-N", "32") as disk:
        old = disk / "m.json"
        old.write_text("the old one")
        fill(disk, what)
        before = sorted(os.listdir(disk))
        full = {"HOME": str(disk), "TMPDIR": str(disk)}
        found = real(machine, env=full)
        refused = machine.run("probe", "-o", str(old), rooted=False, env=full)
        shown = machine.run("probe", "-o", "-", rooted=False, env=full)
        seen(
            "D41",
            f"no {what}: the old file whole, nothing beside it, stdout works",
            refused.err.strip(),
            refused.seconds,
        )
        assert refused.code == 2 and refused.err == f"gpuready: cannot write {old}: no space left on device\n"
        assert old.read_text() == "the old one" and sorted(os.listdir(disk)) == before
    assert shown.code == 0 and shown.found["kind"] == "recording" and found.seconds < patience()


def test_d42_a_temporary_folder_mounted_noexec(machine, tmp_path, seen):
    with mounts.mounted(tmp_path / "noexec", "-t", "tmpfs", "-o", "noexec,size=8m", "none") as folder:
        found = real(machine, "--wants", "build", env={"TMPDIR": str(folder)})
    says = found.finding("BLD013")["says"]
    seen("D42", "BLD013 before anything is built", says, found.seconds)
    assert f"{folder}, is mounted noexec" in says


# -- hidden folders ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("case", "path", "lost"), [("D43", "/proc", "memory.total"), ("D44", "/sys", "gpu.pci_count")])
def test_d43_d44_no_proc_and_no_sys(machine, seen, case, path, lost):
    found = machine.check(rooted=False, prefix=covered(path, "tmpfs"))
    seen(case, f"no {path}: complete, {lost} unknown", found.gap(lost), found.seconds)
    assert "there is no /" in found.gap(lost) and found.value("limit.nofile") and found.value("python.version")
    assert found.seconds < patience()
    if path == "/sys":  # nobody can say that there is no GPU
        assert found.gap("gpu.count") and "GPU001" in found.undecided


def test_d43_processes_of_others_are_hidden(strangers, seen):
    prefix = covered("/proc", "proc -o hidepid=2")
    found = strangers.check(rooted=False, prefix=prefix, before=strangers.as_nobody())
    seen("D43", "hidepid=2, as a plain user: complete", found.found["verdict"], found.seconds)
    assert found.value("memory.total") and found.value("os.kernel") and found.seconds < patience()


# -- users and signals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("uid", [0, 4242, 65534])
def test_d61_users(strangers, seen, uid):
    before = strangers.as_nobody(uid) if uid else ""
    found = strangers.check(rooted=False, before=before, env={"HOME": "/nonexistent"})
    shown = strangers.run("check", "transformers", "-v", rooted=False, before=before)
    warned = "ran as root; permissions of other users not checked" in shown.out
    result = found.found["verdict"] + (", root warned" if warned else "")
    seen("D61", f"uid {uid}: complete" + ("" if uid else ", root warned"), result, found.seconds)
    assert warned == (uid == 0) == found.value("user.root")
    assert found.value("os.kernel") and found.value("limit.nofile") and shown.code == found.code


def test_d63_a_hundred_signals_at_any_moment(machine, seen):
    machine.program("nvidia-smi", "sleep 98765 & sleep 98765")
    machine.program("gcc", "sleep 98765")
    began, left = time.monotonic(), 0
    for turn in range(100):
        process = machine.start("check", "transformers", marker=f"bench-turn-{turn}-")
        time.sleep(random.uniform(0.03, 0.25))
        process.send_signal(random.choice((signal.SIGTERM, signal.SIGINT)))
        process.communicate(timeout=20)
        until = time.monotonic() + 1  # what was killed may need the processor to end; a leak would stay for seconds
        while strays(f"bench-turn-{turn}-") and time.monotonic() < until:
            time.sleep(0.02)
        left += len(strays(f"bench-turn-{turn}-"))
    seen("D63", "100 signals at random moments: no process is left", f"{left} left", time.monotonic() - began)
    assert left == 0 and os.listdir(machine.tmp) == []


# -- the budget -------------------------------------------------------------------------------------------


def test_the_budget_with_everything_hanging(nvml, seen):
    nvml.variables["FAKE_HANG"] = "init"
    for name in ("nvidia-smi", "nvcc", "gcc", "g++", "ninja", "cmake"):
        nvml.program(name, "sleep 98765 & sleep 98765")
    found = nvml.check()
    what = "NVML and six programs hang: host and packages complete, within 26.5 s and the start, 60 s at most"
    seen("budget", what, found.gap("gpu.count").partition("; yet")[0], found.seconds)
    assert found.seconds < 26 + 0.5 + patience() and found.code == 3
    assert "NVML: no answer within 20 s; nvidia-smi: deadline" in found.gap("gpu.count")
    for key in (*HOST, "python.version", "torch.version", "disk.free"):
        assert found.value(key)


# -- a folder for temporary files that starts no program ------------------------------------------------------

NOEXEC = ["unshare", "-m", "--", "sh", "-c", 'mount -t tmpfs -o noexec,mode=1777 none /tmp && exec "$@"', "sh"]


def test_d42_everything_works_where_tmp_is_mounted_noexec():
    """What is started lies in the environment, the state folder or gpuready itself, never in the folder for temporary files."""
    if Path(sys.prefix).resolve().is_relative_to("/tmp"):
        pytest.skip("this checkout lies in /tmp, over which the test mounts")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        bench = wheels.Bench(Path(folder))
        script = Path(folder) / "train.py"
        script.write_text("print('trained')\n")
        commands = (
            bench.argv("1.0", "--yes"),
            ["install", "--verify", "-e", str(bench.home)],
            ["run", "--nproc", "2", str(script)],
        )
        env = bench.env | {"TMPDIR": "/tmp", "PATH": os.environ["PATH"]}
        for words in commands:
            ran = subprocess.run(
                [*NOEXEC, sys.executable, "-m", "gpuready", *words], env=env, cwd=folder, capture_output=True, text=True
            )
            assert ran.returncode == 0, ran.stdout + ran.stderr
        assert bench.version() == "1.0" and ran.stdout.count("trained") == 2
