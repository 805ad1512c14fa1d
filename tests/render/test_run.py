"""The post-mortem of a run: the cause of a chain of exceptions, and the rank that was waited for in vain."""

from __future__ import annotations

import pytest

from gpuready.model.run import LaunchAttempt, LaunchJob, RankEnd, RunOutcome
from gpuready.render import run

JOB = LaunchJob("local", "python", "script", ("train.py",), 2, logs="gpuready-logs/1")
TRACEBACK = ("Traceback (most recent call last):", '  File "/j/train.py", line 3, in <module>')


def post_mortem(first: RankEnd, *others: RankEnd, **more: object) -> str:
    attempt = LaunchAttempt((first, *others), (first.rank,), code=1, **more)
    return run.render_post_mortem(RunOutcome(JOB, (attempt,), 1, "failed", seconds=14.0))


def test_the_last_lines_of_a_rank_are_not_those_of_a_native_stack():
    frames = [f"frame #{n}: <unknown function> + 0x67e (0x7f07 in libtorch_cpu.so)" for n in range(40)]
    shown = post_mortem(RankEnd(1, "gpu-07", 77, 143, 15, stopped=True, last=("cannot reach (n9, 29500)", *frames)))
    assert "cannot reach (n9, 29500)" in shown and "frame #" not in shown


@pytest.mark.parametrize("words", run.CHAIN_WORDS)
@pytest.mark.parametrize("tag", ["", "[rank1]: "])
def test_a_chain_of_exceptions_is_shown_with_its_cause(words, tag):
    lines = (*TRACEBACK, "PermissionError: lease expired", "", words, "", *TRACEBACK, "RuntimeError: training failed")
    shown = post_mortem(RankEnd(1, "gpu-07", 77, 1, last=tuple(tag + line for line in lines)))
    assert shown.index("PermissionError: lease expired") < shown.index(words) < shown.index("training failed")
    assert shown.count("Traceback") == 1


def test_a_traceback_that_was_survived_is_no_cause():
    lines = (*TRACEBACK, "ValueError: retried", "", run.CHAIN_WORDS[0], "", "step 3", *TRACEBACK, "KeyError: 'x'")
    shown = post_mortem(RankEnd(1, "gpu-07", 77, 1, last=lines))
    assert "KeyError: 'x'" in shown and "retried" not in shown


def test_what_a_thread_or_a_program_said_before_the_traceback_is_shown():
    thread = ("Exception in thread Thread-1 (read):", *TRACEBACK, "OSError: truncated")
    assert "OSError: truncated" in post_mortem(RankEnd(1, "n", 7, 1, last=(*thread, *TRACEBACK, "queue.Empty")))
    went_on = (*thread, *(f"step {n}" for n in range(9)), *TRACEBACK, "KeyError: 'x'")
    assert "OSError" not in post_mortem(RankEnd(1, "n", 7, 1, last=went_on))
    called = ("quota exceeded", *TRACEBACK, "subprocess.CalledProcessError: Command 'put' returned 7")
    assert "quota exceeded" in post_mortem(RankEnd(1, "n", 7, 1, last=called))


def test_whose_original_traceback_it_was_is_shown():
    caught = "RuntimeError: Caught ValueError in DataLoader worker process 1."
    shown = post_mortem(RankEnd(1, "n", 7, 1, last=(*TRACEBACK, caught, run.ORIGINAL, TRACEBACK[1], "ValueError: bad")))
    assert shown.index(caught) < shown.index(run.ORIGINAL) < shown.index("ValueError: bad")
    spawned = (
        "ProcessRaisedException: ",
        "",
        "-- Process 2 terminated with the following error:",
        *TRACEBACK,
        "KeyError: 'x'",
    )
    assert "Process 2 terminated" in post_mortem(RankEnd(0, "n", 7, 1, last=(*TRACEBACK, *spawned)))


def test_who_was_waited_for_did_not_fail_and_shows_where_it_stood():
    frames = [f'  File "/v/lib/python3.11/site-packages/x/{n}.py", line 1 in get' for n in range(5)]
    stack = ["Thread 0x1 (most recent call first):", *frames, '  File "/j/train.py", line 9 in read_shard']
    late = RankEnd(1, "gpu-07", 77, 143, 15, seconds=12.0, stopped=True, last=("step 0",))
    shown = post_mortem(
        late, RankEnd(0, "gpu-07", 76, 1, last=(*TRACEBACK, "RuntimeError: gave up")), stacks={1: stack}
    )
    assert "rank 1 on gpu-07 (pid 77) did not come: the others gave up waiting for it" in " ".join(shown.split())
    assert "line 9 in read_shard" in shown and "SIGTERM" not in shown and "gave up" in shown


def test_the_line_of_an_exception_is_never_cut():
    says = (
        "RuntimeError: [enforce fail at alloc_cpu.cpp:124] err == 0. "
        + "x" * 30
        + " can't allocate memory: 1125899906842624 bytes"
    )
    shown = post_mortem(RankEnd(1, "gpu-07", 77, 1, last=(*TRACEBACK, f"    {'y' * 200}", says)))
    assert "can't allocate memory: 1125899906842624 bytes" in " ".join(shown.split()) and "y" * 100 not in shown
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_what_a_library_says_before_a_crash_is_shown():
    words = (
        "step 9",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "  what():  std::bad_alloc",
        "",
    )
    crash = (
        "Fatal Python error: Aborted",
        "Current thread 0x1 (most recent call first):",
        '  File "t.py", line 3 in f',
    )
    shown = post_mortem(RankEnd(1, "gpu-07", 77, 134, 6, last=(*(f"step {n}" for n in range(9)), *words, *crash)))
    assert "terminate called after throwing" in shown and "what():  std::bad_alloc" in shown and "step 8" not in shown


def test_a_rank_that_gpuready_ended_has_its_own_error_as_headline():
    end = RankEnd(1, "gpu-07", 77, 143, 15, seconds=12.0, stopped=True, last=(*TRACEBACK, "KeyError: 'ids'", "step 4"))
    headline = " ".join(post_mortem(end).split())
    assert "failed first: KeyError: 'ids'; gpuready ended it after 12.0 s" in headline and "SIGTERM" not in headline


NO_CAUSE = "no known cause: look at what stands before these lines"


@pytest.mark.parametrize(
    ("end", "unknown"),
    [
        (RankEnd(1, "n", 7, 7, last=("step 4",)), True),
        (RankEnd(1, "n", 7, 1, last=(*TRACEBACK, "KeyError: 'ids'")), False),
        (RankEnd(1, "n", 7, 1, last=(*TRACEBACK, "zlib.error: Error -3 while decompressing data")), False),
        (RankEnd(1, "n", 7, 1, last=(*TRACEBACK, "    warn()", "UserWarning: step() comes first")), False),
        (RankEnd(1, "n", 7, 139, 11, last=("Fatal Python error: Segmentation fault", "Current thread 0x1")), False),
        (RankEnd(1, "n", 7, last=("step 4",)), False),  # it left
        (RankEnd(1, "n", 7, 143, 15, stopped=True, last=("step 4",)), False),  # it did not come
    ],
)
def test_no_cause_is_known_only_where_nothing_says_what_happened(end, unknown):
    attempt = LaunchAttempt((end,), (1,), code=1)
    shown = run.render_post_mortem(RunOutcome(JOB, (attempt,), 1, "failed"), explained=False)
    assert (NO_CAUSE in " ".join(shown.split())) is unknown


def test_the_last_lines_are_not_empty_ones():
    shown = post_mortem(RankEnd(1, "gpu-07", 77, 7, last=("shard 5 is damaged", *["", "\r", " \x07"] * 20)))
    assert "shard 5 is damaged" in shown
