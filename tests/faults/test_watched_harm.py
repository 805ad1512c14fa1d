"""What watching must never do: end a healthy run, hide its answer, cut its ranks short. Real disks, signals and engines."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.faults import mounts
from tests.launcher.stage import Stage

pytestmark = pytest.mark.faults

WRITER = """
import os, time
print("pid", os.getpid(), flush=True)
def write_checkpoint():
    with open(f"disk/{os.environ['RANK']}", "w") as file:
        file.write("x" * 4096); file.flush(); os.fsync(file.fileno())
time.sleep(2)
if os.environ["RANK"] == "1": write_checkpoint()
time.sleep(1000)
"""


def test_a_rank_in_uninterruptible_sleep_is_named_and_ctrl_c_has_its_answer(tmp_path, seen):
    stage = Stage(tmp_path)
    stage.script(WRITER)
    (tmp_path / "d").mkdir()
    with mounts.disk(tmp_path / "d") as disk:
        os.symlink(disk, tmp_path / "disk")
        with mounts.frozen(disk):
            process = stage.start("--nproc", "2", "--grace", "2", "--", "train.py")
            stage.until("pid", 1)
            text, at = _read_until(process, "uninterruptible sleep", 50)
            assert "rank 1 on here" in text and "write_checkpoint" in text
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
            taken = time.monotonic() - began
        assert process.returncode == 130 and b"interrupted" in out and b"ValueError" not in out + err
    _until_gone(stage)
    seen("H01", "rank 1 in state D with its line, and exit 130", f"both, exit after {taken:.0f} s", at)


def _read_until(process, words: str, within: float) -> tuple[str, float]:
    began, text = time.monotonic(), ""
    os.set_blocking(process.stderr.fileno(), False)
    while words not in text:
        assert time.monotonic() - began < within, text
        text += (process.stderr.read() or b"").decode()
        time.sleep(0.1)
    time.sleep(0.5)
    text += (process.stderr.read() or b"").decode()
    os.set_blocking(process.stderr.fileno(), True)
    return text, time.monotonic() - began


def _until_gone(stage: Stage, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while stage.left() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not stage.left()
