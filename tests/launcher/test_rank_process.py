"""A rank as its agent sees it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import traceback
from typing import Any

import pytest

from gpuready.launcher import rank_main, rank_process
from gpuready.launcher.rank_process import RankProcess


@pytest.fixture
def rank():
    """Its end of the beats is the test's to close."""
    pipes = rank_main.RankPipes()
    made = RankProcess(0, os.getpid(), pipes)
    yield made
    for fd in (pipes._out, pipes._stack, pipes._ask, pipes.ask, *made.handlers):
        os.close(fd)


def test_a_rank_that_became_another_program_beats_no_more(rank):
    """Its threads and its pipes are gone with exec: nobody may say that it holds the GIL."""
    os.write(rank.pipes._beat, rank_main.BEAT)
    assert rank.read_pipe(rank.pipes.beat) and rank.last_beat > 0
    os.close(rank.pipes._beat)
    assert not rank.read_pipe(rank.pipes.beat) and rank.last_beat == 0.0


class Tensor:
    dtype, shape = "torch.float32", (6, 2)


def test_the_collective_of_a_rank_is_told_with_its_tensors_and_its_numbers(tmp_path):
    (tmp_path / "torch/distributed").mkdir(parents=True)
    library = tmp_path / "torch/distributed/distributed_c10d.py"
    library.write_text("def broadcast(tensor, src, group=None, flag=True):\n    other = 3\n    return 1 / 0\n")
    names: dict[str, Any] = {}
    exec(compile(library.read_text(), str(library), "exec"), names)
    with pytest.raises(ZeroDivisionError) as caught:
        names["broadcast"](Tensor(), 1)
    frames = list(traceback.walk_tb(caught.value.__traceback__))[::-1]
    said = rank_main.describe_call(frames)
    assert said == f"broadcast(float32 [6, 2], src 1) at test_rank_process.py:{frames[-1][1]}"
    assert rank_main.describe_call(frames[1:]) == ""


def test_what_a_rank_says_of_itself_is_told_apart_from_its_stack(rank):
    rank._handle_stack(b'Thread 0x1\ncall all_reduce(float32 [8])\npaths [[], [], ["/"]]\n')
    kinds = [(message["t"], message["d"]) for message in rank.messages]
    assert kinds == [("paths", '[[], [], ["/"]]'), ("call", "all_reduce(float32 [8])"), ("stack", ["Thread 0x1"])]


def test_a_shell_is_not_ended_before_its_programs():
    """It would end by SIGTERM at once, and what it started be killed without the time to save."""
    with subprocess.Popen(["sh", "-c", "sleep 99; true"], start_new_session=True) as shell:
        try:
            deadline = time.monotonic() + 10
            while len(both := rank_process.list_signalled(shell.pid, signal.SIGINT)) < 2:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            child = next(pid for pid in both if pid != shell.pid)
            assert rank_process.list_signalled(shell.pid, signal.SIGTERM) == [child]
            assert rank_process.list_signalled(child, signal.SIGTERM) == [child]
        finally:
            os.killpg(shell.pid, 9)
