"""What the beats of living ranks say: stopped, frozen, holding the GIL, slow, all still."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpuready.launcher import hang_watch
from gpuready.launcher.rank_ledger import RankState
from tests.launcher.ledgers import beat, end, ledger, out, row

if TYPE_CHECKING:
    from gpuready.launcher.rank_ledger import RankLedger


def beaten(
    states: dict[str, str], cpu: dict[str, float], late: dict[str, float], seconds: int = 14
) -> list[hang_watch.RunNote]:
    """Beats of so many seconds; what is said at their end."""
    made = ledger(len(states))
    for second in range(seconds):
        rows = {r: row(s, cpu.get(r, 0.0) * second, second * late[r] if r in late else 0.4) for r, s in states.items()}
        beat(made, 1.0 + second, **rows)
    return hang_watch.find_liveness_notes(made, float(seconds))


def stand(made: RankLedger, rank: int, function: str, *inner: str, **more: object) -> None:
    """A rank stands in a function of the user's, and in some of a library's inside it."""
    lines = [
        "Thread 0x1 (most recent call first):",
        *(f'  File "/v/{i}", line 5 in {n}' for i, _, n in map(split, inner)),
    ]
    lines.append(f'  File "/j/train.py", line 9 in {function}')
    made.record_message({"t": "stack", "r": rank, "d": lines, **more}, 1.0)


def split(text: str) -> tuple[str, str, str]:
    return text.rpartition(" ")


C10D = "site-packages/torch/distributed/distributed_c10d.py"
ALL_REDUCE, BARRIER = f"{C10D} all_reduce", f"{C10D} barrier"


def judged(made: RankLedger, seconds: float = 30.0, **rows: tuple[object, ...]) -> list[hang_watch.RunNote]:
    beat(made, seconds, **rows)
    return hang_watch.find_liveness_notes(made, seconds)


def test_a_stopped_rank_is_sure():
    (note,) = beaten({"r0": "S", "r1": "T"}, {}, {}, 4)
    assert note.kind == "stopped" and note.rank == 1 and note.sure and note.fix == "kill -CONT 101"


def test_a_tracer_that_holds_a_rank_is_named():
    made = ledger(1)
    stand(made, 0, "step", tracer="'gdb -p 100', pid 7")
    for second in range(4):
        beat(made, 1.0 + second, r0=row("t"))
    (note,) = hang_watch.find_liveness_notes(made, 4.0)
    assert "'gdb -p 100', pid 7 traces it" in note.says and "kill -CONT has no effect" in note.fix


def test_one_beat_in_state_t_is_not_enough():
    assert not beaten({"r0": "S", "r1": "T"}, {}, {}, 2)


def test_a_rank_in_uninterruptible_sleep_and_a_frozen_one():
    assert not beaten({"r0": "S", "r1": "D"}, {}, {}, 15)
    (note,) = beaten({"r0": "S", "r1": "D"}, {}, {}, 25)
    assert note.kind == "kernel" and note.rank == 1 and "state D" in note.says
    (note,) = beaten({"r0": "S", "r1": "F"}, {}, {}, 4)
    assert note.kind == "frozen" and note.rank == 1 and note.sure


@pytest.mark.parametrize(("share", "how"), [(0.98, "spins"), (0.0, "waits")])
def test_who_holds_the_gil(share, how):
    notes = beaten({"r0": "S", "r1": "S" if not share else "R"}, {"r1": share, "r0": 0.3}, {"r1": 1.0})
    assert [n.kind for n in notes] == ["gil"] and how in notes[0].says and notes[0].rank == 1 and notes[0].sure


def test_a_rank_whose_script_has_ended_beats_no_more():
    """Python takes torch apart, for seconds on a busy machine: nobody holds the GIL."""
    made = ledger(1)
    made.record_message({"t": "leaving", "r": 0, "done": True}, 1.0)
    for second in range(14):
        beat(made, 1.0 + second, r0=row("R", 0.9 * second, float(second)))
    assert not hang_watch.find_liveness_notes(made, 14.0)


def test_who_gets_no_processor_does_not_hold_the_gil():
    assert not beaten({"r0": "R", "r1": "R"}, {"r0": 0.5, "r1": 0.01}, {"r1": 1.0}), "nor is it said to wait"


def test_a_standstill_names_who_is_elsewhere_whoever_writes():
    made = ledger(3)
    for rank in (0, 1):
        stand(made, rank, "step", ALL_REDUCE)
    stand(made, 2, "load")
    out(made, 0, "alive\n", 29.5)
    (note,) = judged(made, r0=row(still=25.0), r1=row(still=24.0), r2=row(still=26.0))
    assert note.kind == "still" and not note.sure and note.rank == 2
    assert "rank 2 in train.py:9 (load); ranks 0, 1 in all_reduce at train.py:9 (step)" in note.says
    assert not judged(made, 31.0, r0=row(still=1.0), r1=row(still=25.0), r2=row()), "who moves does not stand still"


def test_waiters_that_spin_are_not_accused():
    """As NCCL waits: no Python runs, but the processor does."""
    made = ledger(3)
    for rank in (0, 1):
        stand(made, rank, "item")
    stand(made, 2, "fetch")
    (note,) = judged(made, r0=row("R", ran=25.0), r1=row("R", ran=25.0), r2=row(still=25.0, ran=25.0))
    assert note.rank == 2 and "fetch" in note.says


def test_another_collective_and_another_kind_of_message():
    made = ledger(3)
    for rank in (0, 2):
        stand(made, rank, "step", ALL_REDUCE)
    stand(made, 1, "sync", BARRIER)
    (note,) = judged(made, r0=row(still=25.0), r1=row(still=25.0), r2=row(still=25.0))
    assert note.rank == 1 and "rank 1 in barrier at train.py:9 (sync)" in note.says
    stand(made, 1, "step", ALL_REDUCE)
    (note,) = judged(made, 31.0, r0=row(still=26.0), r1=row(still=26.0), r2=row(still=26.0))
    assert note.rank is None and "--check-collectives" in note.fix


def test_a_collective_has_the_name_that_the_user_called():
    made = ledger(3)
    for rank in (0, 1):
        stand(
            made,
            rank,
            "groups",
            f"{C10D} _store_based_barrier",
            f"{C10D} _new_process_group_helper",
            f"{C10D} new_group",
        )
    stand(made, 2, "step", ALL_REDUCE)
    (note,) = judged(made, r0=row(still=25.0), r1=row(still=25.0), r2=row(still=25.0))
    assert note.rank == 2 and "ranks 0, 1 in new_group at train.py:9 (groups)" in note.says


def test_one_that_does_not_exit_is_named_and_not_those_who_finished():
    made = ledger(3)
    for rank in (0, 1):
        end(made, rank, 1.0, 0)
    made.record_message({"t": "leaving", "r": 2, "done": True}, 1.0)
    stand(made, 2, "close")
    (note,) = judged(made, r2=row(still=25.0))
    assert note.rank == 2 and note.says.startswith("rank 2 finished the script and has not exited for 25 s")
    assert "wait for it" not in note.says


def test_one_that_goes_on_alone_is_not_kept_by_those_who_left():
    made = ledger(3)
    for rank in (0, 1):
        end(made, rank, 1.0, 0)
    stand(made, 2, "upload")
    (note,) = judged(made, r2=row(still=25.0))
    assert "rank 2 in train.py:9 (upload)" in note.says and "wait for it" not in note.says
    stand(made, 2, "step", ALL_REDUCE)
    (note,) = judged(made, 31.0, r2=row(still=26.0))
    assert "rank 0 ended with 0 after 1 s, rank 1 ended with 0 after 1 s, and the others wait for it" in note.says


def test_one_that_keeps_the_others_waiting():
    made = ledger(2)
    stand(made, 0, "step", ALL_REDUCE)
    stand(made, 1, "resample")
    assert not judged(made, 50.0, r0=row(still=45.0), r1=row("R", roamed=45.0)), "an evaluation"
    (note,) = judged(made, 70.0, r0=row(still=65.0), r1=row("R", roamed=65.0))
    assert note.rank == 1 and "resample" in note.says and "keeps the others waiting" in note.says
    assert not judged(made, 90.0, r0=row(still=85.0), r1=row("R", roamed=2.0)), "it goes from function to function"


def test_who_looks_again_for_a_file_waits_for_the_rank_that_works():
    """Rank 0 prepares the data set, the others poll for its lock: nobody is accused but, after a minute, rank 0."""
    for polls, accused in ((1, []), (0, [1])):
        made = ledger(2)
        stand(made, 0, "tokenize")
        stand(made, 1, "load")
        notes = judged(made, 50.0, r0=row("R", roamed=45.0), r1=row(still=45.0, roamed=45.0, polls=polls))
        assert [note.rank for note in notes] == accused
    made = ledger(2)
    stand(made, 0, "tokenize")
    stand(made, 1, "load")
    (note,) = judged(made, 70.0, r0=row("R", roamed=65.0), r1=row(still=65.0, roamed=65.0, polls=1))
    assert note.rank == 0 and "tokenize) keeps the others waiting" in note.says
    (note,) = judged(made, 30.0, r0=row(still=25.0), r1=row(still=25.0, roamed=25.0, polls=1))
    assert note.says.startswith("nothing has moved for 25 s")


def test_pauses_of_this_run_set_the_limit():
    made = ledger(1)
    stand(made, 0, "save")
    for at, still in ((10.0, 9.0), (20.0, 15.0), (21.0, 0.0), (40.0, 15.0), (41.0, 0.0)):
        beat(made, at, r0=row(still=still))
    assert not judged(made, 80.0, r0=row(still=39.0)) and judged(made, 90.0, r0=row(still=49.0))


def test_what_it_waits_for_is_said():
    made = ledger(2)
    stand(made, 0, "step", ALL_REDUCE)
    child = {"pid": 7, "state": "S", "command": "sleep 100", "stack": []}
    stand(made, 1, "upload", "lib/python3.11/subprocess.py wait", children=[child])
    (note,) = judged(made, r0=row(still=25.0), r1=row(still=25.0))
    assert "waiting for a program that it started ('sleep 100', pid 7, state S)" in note.says


def test_where_its_other_threads_stand_is_said():
    made = ledger(2)
    stand(made, 0, "steps", ALL_REDUCE)
    threads = ["Thread 0x2 (most recent call first):", '  File "/v/lib/python3.11/socket.py", line 5 in recv']
    threads += ['  File "/j/train.py", line 4 in fetch', "Thread 0x1 (most recent call first):"]
    threads += ['  File "/v/lib/python3.11/threading.py", line 7 in join', '  File "/j/train.py", line 9 in load']
    made.record_message({"t": "stack", "r": 1, "d": threads}, 1.0)
    (note,) = judged(made, r0=row(still=30.0, waits=1), r1=row(still=30.0))
    assert (
        "train.py:9 (load), waiting for a thread or a lock (its other threads are in train.py:4 (fetch))" in note.says
    )


def test_three_places_without_a_majority_accuse_nobody():
    made = ledger(3)
    for rank, function in enumerate((ALL_REDUCE, BARRIER, f"{C10D} broadcast")):
        stand(made, rank, "sync", function)
    (note,) = judged(made, **{f"r{rank}": row(still=30.0, waits=1) for rank in range(3)})
    assert note.rank is None and "barrier" in note.says


def test_b16_a_rank_that_the_others_wait_for_step_after_step():
    made = ledger(3)
    for second in range(25):
        beat(made, 1.0 + second, r0=row(waits=1), r1=row(cpu=0.9 * second, waits=second % 5 == 0), r2=row(waits=1))
    (note,) = hang_watch.find_liveness_notes(made, 26.0)
    assert note.kind == "slow" and note.rank == 1 and not note.sure and "computes" in note.says


@pytest.mark.parametrize(("state", "said"), [("R", ["slow"]), ("S", [])])
def test_b16_a_straggler_on_a_busy_machine_is_one_too(state, said):
    """Recorded at a load of 14 on two cores: ready to run all the time, and without a processor for 16 s."""
    made = ledger(2)
    for second in range(25):
        slow = row(state, cpu=0.04 * second, still=min(second, 16.0), waits=second % 10 == 0)
        beat(made, 1.0 + second, r0=row(waits=1), r1=slow)
    assert [note.kind for note in hang_watch.find_liveness_notes(made, 26.0)] == said


def test_ranks_that_all_compute_are_well():
    assert not beaten({"r0": "R", "r1": "R"}, {"r0": 0.9, "r1": 0.97}, {}, 30)


def test_where_a_stack_stands():
    stack = ["Thread 0x1 (most recent call first):", '  File "/x/worker.py", line 3 in run',
             "Current thread 0x2 (most recent call first):",
             '  File "/v/site-packages/torch/distributed/distributed_c10d.py", line 3252 in all_reduce',
             '  File "/v/site-packages/torch/distributed/c10d_logger.py", line 83 in wrapper',
             '  File "/job/train.py", line 41 in step', '  File "/job/train.py", line 60 in <module>']  # fmt: skip
    state = RankState(0)
    assert hang_watch.describe_place(state).text == ""
    state.stack = stack
    assert hang_watch.describe_place(state).text == "all_reduce at train.py:41 (step)"


@pytest.mark.parametrize(
    ("innermost", "waits", "polled", "kind", "text"),
    [
        (
            '/v/site-packages/torch/nn/parallel/distributed.py", line 2128 in _distributed_broadcast_coalesced',
            "a lock (futex)",
            "",
            "collective",
            "distributed_broadcast_coalesced at train.py:41 (step)",
        ),
        (
            '/v/site-packages/torch/autograd/graph.py", line 865 in _engine_run_backward',
            "a lock (futex)",
            "",
            "collective",
            "the backward pass at train.py:41 (step), where it waits for the gradients of others",
        ),
        (
            '/v/site-packages/torch/autograd/graph.py", line 865 in _engine_run_backward',
            "",
            "",
            "other",
            "train.py:41 (step), waiting for the backward pass",
        ),
        (
            '/v/site-packages/torch/utils/file_baton.py", line 49 in wait',
            "the end of a sleep",
            "/c/lock, which is not there",
            "other",
            "train.py:41 (step), which looks again and again at /c/lock, which is not there",
        ),
    ],
)
def test_what_a_rank_waits_for_inside_of_torch(innermost, waits, polled, kind, text):
    made = ledger(2)
    stack = [
        "Current thread 0x1 (most recent call first):",
        f'  File "{innermost}',
        '  File "/j/train.py", line 41 in step',
    ]
    made.record_message({"t": "stack", "r": 0, "d": stack, "waits": waits}, 1.0)
    made.record_message({"t": "file", "r": 0, "d": polled}, 1.0)
    place = hang_watch.describe_place(made.ranks[0])
    assert (place.kind, place.text) == (kind, text)
