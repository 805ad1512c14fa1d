"""A rank as its agent sees it."""

from __future__ import annotations

import os

import pytest

from gpuready.launcher import rank_main
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
