"""What counts as a move of a rank: who looks again and again for a file, a lock or the others still only waits."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from types import FrameType

import pytest

from gpuready.launcher import rank_main, rank_watch
from gpuready.launcher.memory_stacks import Position, StackReader
from gpuready.launcher.rank_watch import MEETING_POINT, RankWatch

POLLS = "import time\nprint('on', flush=True)\nwhile True: time.sleep(0.005)"


class Reader:
    """A main thread that stays at one place of a file of torch's."""

    def __init__(self, file: str):
        self.file = file

    def read_position(self, pid: int, forked: bool, files: dict[int, str]) -> Position:
        return Position([1], [b"1"], b"1", [f"/v/site-packages{self.file}", "/j/train.py"])


COUNTS = POLLS.replace("time.sleep(0.005)", "open('/dev/urandom', 'rb').read(65536)[:0]; time.sleep(0.005)")
TRIES = POLLS.replace("time.sleep(0.005)", "lock.acquire(timeout=0.005)").replace(
    "time\n", "_thread\nlock = _thread.allocate_lock()\nlock.acquire()\n"
)


@pytest.mark.parametrize(
    ("file", "script", "moves"),
    [
        (MEETING_POINT, POLLS, False),
        ("/torch/distributed/distributed_c10d.py", POLLS, True),
        ("/torch/utils/file_baton.py", POLLS, False),
        ("/j/train.py", TRIES, False),
        ("/j/train.py", COUNTS, True),
    ],
)
def test_who_sleeps_and_looks_again_at_one_place_does_not_move(file, script, moves):
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline()
            watch = RankWatch(process.pid, True, Reader(file), time.monotonic())  # type: ignore[arg-type]
            watch.look(time.monotonic())
            still = []
            while len(still) < 9:
                time.sleep(0.2)
                still.append(watch.look(time.monotonic())[2])
        finally:
            process.kill()
    assert any(still) != moves


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
        said = rank_watch.describe_wait(977, str(tmp_path / "locks"))
        assert f"pid {os.getpid()} (" in said and said.endswith(" holds")
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


class Baton:
    """As torch.utils.file_baton has it."""

    def __init__(self, path: str):
        self.lock_file_path, self.wait_seconds = path, 0.1

    def wait(self) -> FrameType | None:
        if os.path.exists(self.lock_file_path):
            time.sleep(0)
        return sys._getframe()


def wait_for_both(first: str, second: str) -> FrameType | None:
    while not (os.path.exists(first) and os.path.exists(second)):
        time.sleep(0)
    return sys._getframe()


def test_the_one_file_that_is_looked_at_again_and_again_is_found(tmp_path):
    path = str(tmp_path / "lock")
    assert rank_main.find_polled_file(Baton(path).wait()) == path
    assert rank_main.find_polled_file(wait_for_both("/etc", "/tmp")) == ""
    assert rank_main.find_polled_file(sys._getframe()) == ""


def test_it_is_said_who_holds_the_file_that_is_looked_at(tmp_path):
    path = tmp_path / "lock"
    assert rank_watch.describe_polled_file(str(path)) == f"{path}, which is not there"
    path.touch()
    assert "which is there since 0 s and which no process" in rank_watch.describe_polled_file(str(path))
    with path.open("w") as file:
        assert f"pid {os.getpid()} " in rank_watch.describe_polled_file(str(path))
        fcntl.flock(file, fcntl.LOCK_EX)
        assert "has locked" in rank_watch.describe_polled_file(str(path))
