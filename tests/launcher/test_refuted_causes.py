"""A cause that only the end of a process suggests is not told where the machine, or gpuready itself, refutes it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gpuready.model.diagnosis import NOT_ENVIRONMENT, AlternativeCause, Diagnosis, LogEvidence
from gpuready.model.run import LATER, LaunchAttempt, LaunchJob, RankEnd, RunOutcome
from gpuready.render.run import render_post_mortem
from gpuready.workflow import run
from gpuready.workflow.run import _is_refuted

JOB = LaunchJob("local", "", "script", (), 4, port=29500)


def ended(**more: object) -> LaunchAttempt:
    return LaunchAttempt(ends=(RankEnd(0, "here", 7, 137, **more),), first=(0,))  # type: ignore[arg-type]


NO_MEMORY = "OSError: [Errno 12] Cannot allocate memory"


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
        ("MEM003", ended(oom=True), False),
        ("MEM003", ended(oom=True, limits={"memory": 2 << 30}), True),
        ("MEM003", ended(memory_kills=False, last=("RuntimeError: can't allocate memory: you tried 9 bytes",)), False),
        ("MEM003", ended(last=(NO_MEMORY,), limits={"free": 20 << 30}), True),
        ("MEM003", ended(last=(NO_MEMORY,), limits={"free": 2 << 30}), False),
        ("MEM003", ended(last=(f"{NO_MEMORY}: Unable to allocate 30.5 GiB",), limits={"free": 20 << 30}), False),
        ("MEM003", ended(last=(f"{NO_MEMORY}: tried 4096 bytes",), limits={"free": 20 << 30}), True),
        ("RUN019", ended(signal=9), True),
        ("RUN019", ended(signal=9, stopped=True), False),
        ("RUN019", ended(signal=11), False),
        ("SYS001", ended(shm_free=0.6), True),
        ("SYS001", ended(shm_free=0.01), False),
        ("NET001", LaunchAttempt(why="missing"), False),
    ],
)
def test_what_was_seen_refutes_a_cause(code, attempt, refuted):
    assert _is_refuted(code, attempt) is refuted


def test_what_a_rank_has_survived_is_no_cause():
    lines = [LogEvidence("rank-0.log", number, text) for number, text in ((3, "out of memory"), (9, "KeyError: 'x'"))]
    rows = [AlternativeCause(text, "", "", 0.3, evidence=(line,)) for text, line in zip("ab", lines, strict=True)]
    found = Diagnosis("cause", "x", evidence=(lines[1],), alternatives=(*rows, AlternativeCause("c", "", "", 0.2)))
    kept = run._drop_survived(found, ended(last=("KeyError: 'x'",))).alternatives
    assert [other.cause for other in kept] == ["b", "c"]
    assert len(run._drop_survived(found, ended(last=("step 3",))).alternatives) == 3


LIMITS = {"files": 1024, "processes": 4096, "pids": 64, "denied": 0}


@pytest.mark.parametrize(
    ("last", "limits", "said"),
    [
        ("OSError: [Errno 24] Too many open files: '/x'", LIMITS, "1024 open files are allowed"),
        ("RuntimeError: can't start new thread", LIMITS, "its control group 64 (pids.max"),
        ("KeyError: 'x'", LIMITS | {"denied": 3}, "and 3 were refused"),
        ("KeyError: 'x'", LIMITS, ""),
        ("RuntimeError: can't allocate memory", LIMITS | {"addresses": 6 << 30}, "6.0 GiB of addresses"),
        (
            "MemoryError",
            LIMITS | {"addresses": -1, "data_bytes": 2 << 30},
            "2.0 GiB of data are allowed to it (ulimit -d)",
        ),
        ("MemoryError", LIMITS | {"memory": 4 << 30}, "4.0 GiB of memory are allowed to its control group"),
        ("OSError: [Errno 12] Cannot allocate memory", LIMITS | {"locked_bytes": 65536}, ""),
        (
            "RuntimeError: mlock: Cannot allocate memory",
            LIMITS | {"locked_bytes": 65536},
            "65536 bytes of locked memory",
        ),
        ("RuntimeError: can't start new thread", LIMITS | {"addresses": 6 << 30}, "6.0 GiB of addresses"),
        ("OSError: [Errno 24] Too many open files", {}, ""),
        ("OSError: [Errno 27] File too large", LIMITS | {"file_bytes": 4096}, "files of at most 4096 bytes"),
        (
            "RuntimeError: basic_ios::clear: iostream error",
            LIMITS | {"file_bytes": 4096},
            "files of at most 4096 bytes",
        ),
        ("OSError: [Errno 27] File too large", LIMITS | {"file_bytes": -1}, ""),
    ],
)
def test_limits_are_looked_at_where_a_rank_died(last, limits, said):
    attempt = run._add_limits(ended(last=(last,), limits=limits), JOB)
    assert [said in note.says for note in attempt.notes] == ([True] if said else [])
    assert run._is_refuted("RUN019", attempt) is bool(said), "then the program is not the cause"
    assert run._is_refuted("MEM003", attempt) is bool(said), "and no process was killed"
    assert not run._is_refuted("MEM003", attempt.replace(ends=(attempt.ends[0].replace(signal=9),)))


@pytest.mark.parametrize(
    ("last", "told"), [("OSError: 4096 requested and 130 written", True), ("OSError: [Errno 2] No such file", False)]
)
def test_a_short_write_on_a_full_disk_is_told(last, told):
    notes = run._add_limits(ended(last=(last,), full=("/spill (0.0 GiB free)",)), JOB).notes
    assert ["no room is left on /spill" in note.says for note in notes] == [True] * told


@pytest.mark.parametrize(
    ("line", "more", "excluded"),
    [
        ("sqlite3.OperationalError: database is locked", {}, False),
        ("socket.gaierror: [Errno -2] Name or service not known", {}, False),
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


def test_a_file_that_may_not_grow_is_no_full_disk_though_another_one_is_full():
    rows = (("OSError: [Errno 27] File too large", True), ("OSError: [Errno 28] No space left on device", False))
    for last, refuted in rows:
        end = {"last": (last,), "limits": {"file_bytes": 100}, "full": ("/spill (0.0 GiB free)",)}
        assert _is_refuted("SYS002", run._add_limits(ended(**end), JOB)) is refuted


def test_a_disk_without_inodes_has_bytes_left():
    full = ("/spill (3.9 GiB free, no inodes: df -i)",)
    attempt = run._add_limits(ended(last=("OSError: [Errno 28] No space left on device: '/spill/x'",), full=full), JOB)
    assert [(note.says, note.fix) for note in attempt.notes] == [
        (f"no room is left on {full[0]}", "delete files there, or write elsewhere")
    ]
    assert _is_refuted("SYS002", attempt), "df -h shows room"


def test_a_variable_that_is_not_set_is_of_the_environment():
    frames = ('  File "<frozen os>", line 679, in __getitem__', "KeyError: 'WANDB_API_KEY'")
    assert not run._is_environment_excluded(ended(last=frames, limits=LIMITS))


def test_the_full_disk_is_named():
    end = ended(last=("OSError: [Errno 28] No space left on device: 'a.pt'",), full=("/scratch (0.0 GiB free)",))
    assert [note.says for note in run._add_limits(end, JOB).notes] == ["no room is left on /scratch (0.0 GiB free)"]


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (
            ended(signal=7, full=("/scratch (0.0 GiB free)",)),
            "no room is left on /scratch (0.0 GiB free); to write into a file",
        ),
        (ended(signal=7), ""),
        (ended(last=("FileNotFoundError: [Errno 2] No such file or directory: 'a.pt'",), folder="/j"), "deleted"),
        (ended(last=("FileNotFoundError: [Errno 2] No such file or directory: '/d/a'",), folder="/j"), ""),
        (ended(last=("begin",), errors="/dev/null"), "its stderr led to /dev/null"),
        (ended(last=("KeyError: 3",), errors="/dev/null"), ""),
    ],
)
def test_the_place_where_a_rank_died_is_looked_at(end, said):
    assert [said in note.says for note in run._add_limits(end, JOB).notes] == ([True] if said else [])


def test_a_start_that_is_repeated_is_told_with_its_cause():
    failed = ended(last=("KeyError: 'first'",)).replace(seconds=3.0)
    assert run._describe_restart(failed, None, 1, 2) == (
        "start 1 failed after 3 s: rank 0 on here failed first: KeyError: 'first'; restart 1 of 2"
    )


@pytest.mark.parametrize(("awaited", "said"), [(4, ["it waited for a rank 4 in a job of 4 ranks"]), (3, [])])
def test_a_rank_beyond_the_job_is_another_world_size(awaited, said):
    """gloo waits for the address of each rank by its number: only a world of another size has one beyond the job."""
    line = f"torch.distributed.DistStoreError: wait timeout after 15000ms, keys: /default_pg/0//cpu//0/{awaited}"
    assert [note.says.partition(":")[0] for note in run._add_limits(ended(last=(line,)), JOB).notes] == said
    assert not run._add_limits(ended(last=(line,)), JOB.replace(nnodes=2)).notes, "the size of the job is not known"


def test_what_a_later_start_met_is_no_cause_where_the_first_failed_otherwise():
    attempts = [ended(signal=7), ended(last=("FileExistsError: run.lock: remove it",))]
    blamed = Diagnosis("cause", NOT_ENVIRONMENT, "RUN019", "the program itself failed")
    memory = Diagnosis("cause", "host-oom-killed", "MEM003", "the host ran out of memory")
    for first, last, told in ((None, blamed, None), (memory, blamed, memory), (None, memory, memory)):
        attempt, found = run._defer_to_first(attempts, first, last, "logs/1")
        assert found == told and [note.kind for note in attempt.notes] == [LATER]
    outcome = RunOutcome(LaunchJob("local", "p", "script", ("t.py",), 1), (attempts[0], attempt), 1, "failed")
    assert "start 2 failed otherwise than start 1" in " ".join(render_post_mortem(outcome).split())


def test_the_rank_that_the_launcher_saw_is_no_estimate(monkeypatch, tmp_path):
    read = Diagnosis("cause", "any", "PKG034", "a package is missing", rank=0, confidence=0.9, rank_confidence=0.6)
    monkeypatch.setattr(run, "_diagnose_logs", lambda *_: read)
    logs = SimpleNamespace(paths=(), folder=str(tmp_path))
    found = run._diagnose_failure(logs, JOB, ended(last=("ModuleNotFoundError: No module named 'kite'",)))
    assert found is not None and (found.rank, found.rank_confidence) == (0, 0.0)
