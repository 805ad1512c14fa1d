"""What the kernel tells of a rank that was killed: its control group's counter and its own log, replayed from files."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gpuready.launcher import process_status

V1 = "9:name=systemd:/\n4:cpu,memory:/jobs/7\n0::/\n"
V2 = "0::/user.slice/job-7\n"


def tree(root, cgroup: str, files: dict[str, str]) -> str:
    for path, text in {"proc/self/cgroup": cgroup, **files}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return str(root)


@pytest.mark.parametrize(
    ("cgroup", "files", "count"),
    [
        (V2, {"sys/fs/cgroup/user.slice/job-7/memory.events": "low 0\noom 4\noom_kill 3\n"}, 3),
        (V2, {"sys/fs/cgroup/memory.events": "oom_kill 2\n"}, 2),  # a container: its own group is what is mounted
        (V1, {"sys/fs/cgroup/memory/jobs/7/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n"}, 5),
        (V1, {"sys/fs/cgroup/memory/jobs/7/memory.oom_control": "oom_kill_disable 0\n"}, None),
        (V1, {"sys/fs/cgroup/memory/jobs/7/memory.oom_control": "oom_kill many\n"}, None),
        (V2, {}, None),
        ("rubbish\n", {}, None),
    ],
)  # fmt: skip
def test_a24_the_counter_of_the_control_group(tmp_path, cgroup, files, count):
    assert process_status.count_oom_kills(tree(tmp_path, cgroup, files)) == count


def test_a24_no_control_groups_at_all(tmp_path):
    assert process_status.count_oom_kills(str(tmp_path)) is None


def test_a24_the_log_of_the_kernel(tmp_path):
    log = tmp_path / "kmsg"
    line = "3,918,5,-;Out of memory: Killed process 4711 (python) total-vm:9064kB, anon-rss:8096kB\n"
    log.write_text("6,1,2,-;quiet\n" * 800 + line + "6,1,2,-;quiet\n" * 800)
    assert process_status.killed_for_memory(4711, str(log)) is True
    assert process_status.killed_for_memory(471, str(log)) is False, "the beginning of a number is another process"
    assert process_status.killed_for_memory(1, str(tmp_path / "none")) is None
    for at in range(8192 - 40, 8192 + 1):  # wherever the line is cut by the size of a read
        log.write_text("x" * at + line)
        assert process_status.killed_for_memory(4711, str(log)) is True


def test_memory_that_runs_out_is_told_once_with_who_grew(monkeypatch):
    from gpuready.launcher.process_status import MemoryWatch

    sizes, room = {11: 1 << 30, 12: 1 << 30}, [8 << 30, 10 << 30]
    monkeypatch.setattr(process_status, "read_resident_bytes", sizes.__getitem__)
    monkeypatch.setattr(process_status, "read_memory_room", lambda: tuple(room))
    watch, ranks = MemoryWatch(), {0: 11, 1: 12}
    assert watch.look(ranks, 1.0) is None
    room[0] = 1 << 29
    assert watch.look(ranks, 30.0) is None, "nobody of ours has grown"
    sizes[12] = 8 << 30
    assert watch.look(ranks, 61.0) == (
        1,
        "memory runs out: 0.5 of 10.0 GiB are left, and rank 1 has grown from 1.0 to 8.0 GiB in 60 s",
    )
    assert watch.look(ranks, 62.0) is None


def test_the_tighter_of_host_and_control_group_counts(tmp_path):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 1000 kB\nMemAvailable: 900 kB\n")
    assert process_status.read_memory_room(str(tmp_path)) == (900 << 10, 1000 << 10)
    (tmp_path / "proc/self/cgroup").write_text("0::/job\n")
    group = tmp_path / "sys/fs/cgroup/job"
    group.mkdir(parents=True)
    (group / "memory.max").write_text("500000\n")
    (group / "memory.current").write_text("480000\n")
    (group / "memory.stat").write_text("anon 1\ninactive_file 5000\n")
    assert process_status.read_memory_room(str(tmp_path)) == (25000, 500000)
    (group / "memory.max").write_text("max\n")
    assert process_status.read_memory_room(str(tmp_path))[1] == 1000 << 10


def test_a_frozen_group_and_one_that_is_not(tmp_path):
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/cgroup").write_text("3:freezer:/a\n0::/b\n")
    for folder in ("freezer/a", "b"):
        (tmp_path / "sys/fs/cgroup" / folder).mkdir(parents=True)
    assert not process_status.is_frozen(7, str(tmp_path))
    (tmp_path / "sys/fs/cgroup/b/cgroup.events").write_text("populated 1\nfrozen 1\n")
    assert process_status.is_frozen(7, str(tmp_path))
    (tmp_path / "sys/fs/cgroup/b/cgroup.events").write_text("populated 1\nfrozen 0\n")
    (tmp_path / "sys/fs/cgroup/freezer/a/freezer.state").write_text("FROZEN\n")
    assert process_status.is_frozen(7, str(tmp_path))


def test_the_limits_are_those_with_which_a_rank_died():
    words = "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (77, 99)); r.setrlimit(r.RLIMIT_DATA, (1 << 30, -1)); raise SystemExit(3)"
    process = subprocess.Popen([sys.executable, "-c", words])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    found = process_status.read_limits(pid=process.pid)
    assert (found["files"], found["data_bytes"]) == (77, 1 << 30)
    assert process_status.read_limits()["files"] != 77
    process.wait()


def test_the_limits_of_a_group_are_those_of_the_rank_and_not_of_who_started_it(tmp_path):
    for pid, group, most in (("self", "job", "4096"), ("7", "job/rank2", "8")):
        (tmp_path / f"proc/{pid}").mkdir(parents=True)
        (tmp_path / f"proc/{pid}/cgroup").write_text(f"3:pids:/{group}\n")
        (tmp_path / f"sys/fs/cgroup/pids/{group}").mkdir(parents=True)
        (tmp_path / f"sys/fs/cgroup/pids/{group}/pids.max").write_text(f"{most}\n")
        (tmp_path / f"sys/fs/cgroup/pids/{group}/pids.events").write_text(f"max {len(pid) - 1}\n")
    assert [process_status.read_limits(str(tmp_path), pid)["pids"] for pid in ("self", 7)] == [4096, 8]
    assert process_status.read_limits(str(tmp_path), 7)["denied"] == 0


_LOOKS = """
import os, sys
from pathlib import Path
from gpuready.launcher import process_status
from tests.faults import mounts
mounts.apart()
own, other = map(Path, sys.argv[1:])
few, small = (("-t", "tmpfs", "-o", options, "none") for options in ("size=4m,nr_inodes=3", "size=64k"))
with mounts.mounted(own, *few), mounts.mounted(other, *small):
    for name in ("a", "b"):
        open(f"{own}/{name}", "w").close()
    with open(f"{other}/fill", "wb") as file:
        file.write(bytes(1 << 16))
    print(process_status.list_full_disks([f"{own}/c", "/proc"]), process_status.list_full_disks([f"{other}/fill"]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_a_full_disk_is_told_where_it_was_used_and_what_it_lacks(tmp_path):
    own, other = str(tmp_path / "own"), str(tmp_path / "other")
    done = subprocess.run([sys.executable, "-c", _LOOKS, own, other], capture_output=True, text=True, check=False)
    assert done.stdout == f"['{own} (0.0 GiB free, no inodes: df -i)'] ['{other} (0.0 GiB free)']\n", done.stderr
