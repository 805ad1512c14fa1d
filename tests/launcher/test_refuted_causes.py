"""A cause that only the end of a process suggests is not told where the machine, or gpuready itself, refutes it."""

from __future__ import annotations

import pytest

from gpuready.model.run import LaunchAttempt, RankEnd
from gpuready.workflow import run
from gpuready.workflow.run import _is_refuted


def ended(**more: object) -> LaunchAttempt:
    return LaunchAttempt(ends=(RankEnd(0, "here", 7, 137, **more),), first=(0,))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("code", "attempt", "refuted"),
    [
        ("RUN029", LaunchAttempt(why="claimed"), True),
        ("RUN029", LaunchAttempt(why="hung"), True),
        ("RUN029", LaunchAttempt(why="engine"), False),
        ("RUN029", ended(), False),
        ("MEM003", ended(memory_kills=False), True),
        ("MEM003", ended(memory_kills=True), False),
        ("MEM003", ended(), False),
        ("MEM003", ended(memory_kills=False, last=("RuntimeError: can't allocate memory: you tried 9 bytes",)), False),
        ("SYS001", ended(shm_free=0.6), True),
        ("SYS001", ended(shm_free=0.01), False),
        ("NET001", LaunchAttempt(why="missing"), False),
    ],
)
def test_what_was_seen_refutes_a_cause(code, attempt, refuted):
    assert _is_refuted(code, attempt) is refuted


LIMITS = {"files": 1024, "processes": 4096, "pids": 64, "denied": 0}


@pytest.mark.parametrize(
    ("last", "limits", "said"),
    [
        ("OSError: [Errno 24] Too many open files: '/x'", LIMITS, "1024 open files are allowed"),
        ("RuntimeError: can't start new thread", LIMITS, "its control group 64 (pids.max"),
        ("KeyError: 'x'", LIMITS | {"denied": 3}, "and 3 were refused"),
        ("KeyError: 'x'", LIMITS, ""),
        ("RuntimeError: can't allocate memory", LIMITS | {"addresses": 6 << 30}, "6.0 GiB of addresses"),
        ("MemoryError", LIMITS | {"memory": 4 << 30}, "4.0 GiB of memory are allowed to its control group"),
        ("OSError: [Errno 24] Too many open files", {}, ""),
        ("OSError: [Errno 27] File too large", LIMITS | {"file_bytes": 4096}, "files of at most 4096 bytes"),
        ("OSError: [Errno 27] File too large", LIMITS | {"file_bytes": -1}, ""),
    ],
)
def test_limits_are_looked_at_where_a_rank_died(last, limits, said):
    attempt = run._add_limits(ended(last=(last,), limits=limits))
    assert [said in note.says for note in attempt.notes] == ([True] if said else [])
    assert run._is_refuted("RUN019", attempt) is bool(said), "then the program is not the cause"
    assert run._is_refuted("MEM003", attempt) is bool(said), "and no process was killed"
    assert not run._is_refuted("MEM003", attempt.replace(ends=(attempt.ends[0].replace(signal=9),)))


@pytest.mark.parametrize(
    ("line", "more", "excluded"),
    [
        ("KeyError: 'input_ids'", {}, True),
        ("KeyError: 'input_ids'", {"decided": "its log says 'tokenizers 0.20.1', and those of the others"}, False),
        ("ImportError: cannot import name 'fused' from 'fastops' (/srv/old/fastops.py)", {}, False),
        ("AttributeError: module 'fastops' has no attribute 'fused'", {}, False),
        ("AttributeError: 'Trainer' object has no attribute 'fused'", {}, True),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/scratch/vocab.txt'", {}, False),
        ("RuntimeError: tokenizers are not the same: {0: '0.21.0', 1: '0.20.1'}", {}, False),
        ("RuntimeError: connect to 127.0.0.1 and 10.0.0.2", {}, True),
    ],
)
def test_the_environment_is_not_excluded_where_the_error_may_be_of_one_place(line, more, excluded):
    assert run._is_environment_excluded(ended(last=(line,), limits=LIMITS).replace(**more)) is excluded
    assert not run._is_environment_excluded(ended(last=(line,)).replace(**more)), "nobody has looked at the limits"


def test_the_full_disk_is_named():
    end = ended(last=("OSError: [Errno 28] No space left on device: 'a.pt'",), full=("/scratch (4.0 GiB)",))
    assert [note.says for note in run._add_limits(end).notes] == ["no room is left on /scratch (4.0 GiB)"]


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (ended(signal=7, full=("/scratch (4.0 GiB)",)), "no room is left on /scratch (4.0 GiB); to write into a file"),
        (ended(signal=7), ""),
        (ended(last=("FileNotFoundError: [Errno 2] No such file or directory: 'a.pt'",), folder="/j"), "deleted"),
        (ended(last=("FileNotFoundError: [Errno 2] No such file or directory: '/d/a'",), folder="/j"), ""),
        (ended(last=("begin",), errors="/dev/null"), "its stderr led to /dev/null"),
        (ended(last=("KeyError: 3",), errors="/dev/null"), ""),
    ],
)
def test_the_place_where_a_rank_died_is_looked_at(end, said):
    assert [said in note.says for note in run._add_limits(end).notes] == ([True] if said else [])


def test_a_start_that_is_repeated_is_told_with_its_cause():
    failed = ended(last=("KeyError: 'first'",)).replace(seconds=3.0)
    assert run._describe_restart(failed, None, 1, 2) == (
        "start 1 failed after 3 s: rank 0 on here failed first: KeyError: 'first'; restart 1 of 2"
    )
