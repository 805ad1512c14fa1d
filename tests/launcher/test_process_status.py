"""What the kernel tells of a rank that was killed: its control group's counter and its own log, replayed from files."""

from __future__ import annotations

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
