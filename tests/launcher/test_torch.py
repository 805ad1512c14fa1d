"""`gpuready run` with real torch: forked ranks, torchrun underneath, a peer that dies in a collective."""

from __future__ import annotations

import pytest

from tests import target_environment
from tests.launcher.stage import Stage

REDUCE = """
import os, sys
there = "torch" in sys.modules
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
value = torch.full((1,), float(dist.get_rank() + 1))
dist.all_reduce(value)
print("sum", value.item(), "preloaded", there, "threads", len(os.listdir("/proc/self/task")) > 0, flush=True)
"""
KILLED = (
    REDUCE
    + """
import signal, time
for step in range(10000):
    dist.all_reduce(value)
    if step == 3 and dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
"""
)


@pytest.fixture
def torch_stage(tmp_path):
    return Stage(tmp_path, target_environment.python())


@pytest.mark.faults
def test_forked_ranks_reduce(torch_stage):
    """A good end. That forked ranks reduce is seen in every run by the test below."""
    torch_stage.script(REDUCE + "dist.destroy_process_group()\n")
    done = torch_stage.run("--nproc", "3", "--fork", "--", "train.py")
    assert done.code == 0 and done.out.count("sum 6.0 preloaded True") == 3


def test_b01_a_peer_that_is_killed_in_a_collective(torch_stage):
    torch_stage.script(KILLED)
    done = torch_stage.run("--nproc", "2", "--fork", "--", "train.py")
    assert [torch_stage.log(rank).count("sum 3.0 preloaded True") for rank in range(2)] == [1, 1]
    assert done.code == 137 and "failed: rank 1 on here" in done.out and "SIGKILL" in done.out
    assert "rank 0 failed" in done.words


ALONE = """
import os, sys, time
print("preloaded", "torch" in sys.modules, "world", os.environ["WORLD_SIZE"], flush=True)
sys.exit(7) if os.environ["RANK"] == "1" else time.sleep(120)
"""
"""Ranks that import no torch, which takes most of a test's time."""


@pytest.mark.parametrize(
    ("code", "says"),
    [
        pytest.param(ALONE, "preloaded False world 2", id="alone"),
        pytest.param(
            REDUCE + "sys.exit(7) if dist.get_rank() == 1 else dist.barrier()\n",
            "sum 3.0 preloaded False",
            id="reduce",
            marks=pytest.mark.faults,
        ),
    ],
)
def test_torchrun_underneath_with_its_first_failing_rank(torch_stage, code, says):
    torch_stage.script(code)
    done = torch_stage.run("--nproc", "2", "--engine", "torchrun", "--json", "--", "train.py")
    assert done.code == 7 and done.found["attempts"][0]["first"] == [1]
    assert says in torch_stage.log(0)
