"""What counts as a move of a rank: at the meeting point rank 0 polls for the others, and still only waits."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from gpuready.launcher import rank_watch
from gpuready.launcher.memory_stacks import Position, StackReader
from gpuready.launcher.rank_watch import MEETING_POINT, RankWatch

POLLS = "import time\nprint('on', flush=True)\nwhile True: time.sleep(0.005)"


class Reader:
    """A main thread that stays at one place of a file of torch's."""

    def __init__(self, file: str):
        self.file = file

    def read_position(self, pid: int, forked: bool, files: dict[int, str]) -> Position:
        return Position([1], [b"1"], b"1", [f"/v/site-packages{self.file}", "/j/train.py"])


@pytest.mark.parametrize(("file", "moves"), [(MEETING_POINT, False), ("/torch/distributed/distributed_c10d.py", True)])
def test_who_polls_at_the_meeting_point_does_not_move(file, moves):
    with subprocess.Popen([sys.executable, "-c", POLLS], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline()
            watch = RankWatch(process.pid, True, Reader(file), time.monotonic())  # type: ignore[arg-type]
            watch.look(time.monotonic())
            watch.look(time.monotonic())
            time.sleep(0.6)
            still = watch.look(time.monotonic())[2]
        finally:
            process.kill()
    assert (still == 0.0) == moves


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("import time; time.sleep(99)", "the end of a sleep"),
        ("import subprocess as s; s.Popen('sleep 99 & echo', shell=True, stdout=s.PIPE).stdout.read()", "(sleep 99)"),
        ("import ctypes as c; m = bytes(64); [c.CDLL(None).pthread_mutex_lock(m) for _ in 'ab']", "a lock (futex)"),
    ],
)
def test_a_wait_without_any_frame_of_python_is_named(script, said):
    with subprocess.Popen([sys.executable, "-c", script], start_new_session=True) as process:
        try:
            deadline = time.monotonic() + 10
            while said not in rank_watch.describe_wait(process.pid) and time.monotonic() < deadline:
                time.sleep(0.02)
            assert said in rank_watch.describe_wait(process.pid)
        finally:
            os.killpg(process.pid, 9)


def test_it_is_said_what_a_rank_waits_for(tmp_path):
    reader = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    (tmp_path / "locks").write_text(
        f"4: FLOCK  ADVISORY  WRITE {os.getpid()} 00:1b:1 0 EOF\n4: -> FLOCK  ADVISORY  WRITE 977 00:1b:1 0 EOF\n"
    )
    try:
        deadline = time.monotonic() + 5
        while not (said := rank_watch.describe_wait(reader.pid)) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert said == "standard input"
        assert f"pid {os.getpid()} holds" in rank_watch.describe_wait(977, str(tmp_path / "locks"))
    finally:
        reader.kill()
        reader.communicate()


def test_the_folders_of_its_open_files_are_kept(tmp_path):
    (tmp_path / "a.bin").touch()
    script = f"held = open({str(tmp_path / 'a.bin')!r}); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        watch = RankWatch(process.pid, False, StackReader(), time.monotonic())
        watch.look_at_places()
        process.communicate(b"\n")
    assert watch.places == {str(tmp_path), os.getcwd(), os.environ.get("TMPDIR", "/tmp"), "/dev/shm"}
