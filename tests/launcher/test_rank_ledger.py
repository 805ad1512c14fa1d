"""Who failed first, by the order in which we hear; what two failures have in common."""

from __future__ import annotations

import pytest

from gpuready.launcher import liveness, rank_ledger, restart
from gpuready.launcher.rank_ledger import RankLedger
from gpuready.model.run import LaunchAttempt, RankEnd


def ledger(ranks: int = 3) -> RankLedger:
    made = RankLedger(range(ranks), 0.0)
    for rank in range(ranks):
        made.record_message({"t": "born", "r": rank, "pid": 100 + rank, "host": "gpu-1"}, 0.1)
    return made


def out(made: RankLedger, rank: int, text: str, at: float) -> tuple[int, list[str]]:
    return made.record_message({"t": "out", "r": rank, "d": text}, at)


def end(made: RankLedger, rank: int, at: float, code: int = 1, signal: int = 0, **more: object) -> None:
    made.record_message({"t": "end", "r": rank, "code": code, "signal": signal, **more}, at)


def test_the_first_end_is_the_first_failure():
    made = ledger()
    end(made, 2, 1.0, 137, 9)
    end(made, 0, 1.2)
    end(made, 1, 1.3)
    assert made.first_failed_ranks() == (2,) and made.all_ended() and [e.rank for e in made.list_ends()] == [2, 0, 1]


def test_a_rank_that_dies_slowly_was_first_if_it_spoke_first():
    made = ledger()
    out(made, 1, "[rank1]: Traceback (most recent call last):\nValueError: bad\n", 1.0)
    out(made, 0, "Traceback (most recent call last):\nRuntimeError: Connection closed by peer\n", 1.4)
    end(made, 0, 1.5)
    end(made, 2, 1.6)
    end(made, 1, 4.0)
    assert made.first_failed_ranks() == (1,)


def test_a_rank_that_leaves_in_silence_is_first_before_those_that_complain():
    made = ledger()
    made.record_message({"t": "leaving", "r": 2}, 1.0)
    out(made, 0, "Traceback (most recent call last):\nRuntimeError: Connection closed by peer\n", 1.1)
    end(made, 0, 1.2)
    end(made, 2, 1.5, 9)
    assert made.first_failed_ranks() == (2,)


def test_a_crash_that_was_told_comes_before_what_it_does_to_others():
    """An abort takes its time; the peers have lost their connection long before it is over."""
    made = ledger(2)
    out(made, 1, "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n", 1.0)
    out(made, 0, "Traceback (most recent call last):\nRuntimeError: Connection reset by peer\n", 1.1)
    end(made, 0, 1.2)
    end(made, 1, 1.6, 134, 6)
    assert made.first_failed_ranks() == (1,)


def test_a_traceback_that_was_survived_does_not_count():
    made = ledger()
    out(made, 0, "Traceback (most recent call last):\nValueError: retried\n", 0.5)
    end(made, 1, 1.0, 139, 11)
    end(made, 0, 1.5, 0)
    end(made, 2, 1.6, 0)
    assert made.first_failed_ranks() == (1,)


def test_a_tie_is_a_tie():
    made = ledger(8)
    for rank in (3, 7):
        end(made, rank, 1.0 + rank / 10_000)
    assert made.first_failed_ranks() == (3, 7)


def test_a_death_by_signal_is_no_tie_with_what_it_does():
    made = ledger()
    end(made, 1, 1.0, 137, 9)
    end(made, 0, 1.01)
    assert made.first_failed_ranks() == (1,)


def test_who_was_stopped_is_not_to_blame():
    made = ledger()
    end(made, 1, 1.0, 7)
    end(made, 0, 1.1, 143, 15)
    made.stopping = True
    end(made, 2, 1.2, 1)
    assert made.first_failed_ranks() == (1,) and [e.stopped for e in made.list_ends()] == [False, True, True]


LOST = "Traceback (most recent call last):\nRuntimeError: Connection closed by peer\n"


def test_who_left_with_0_before_the_others_failed_is_the_cause():
    made = ledger()
    made.record_message({"t": "leaving", "r": 2, "done": True}, 1.0)
    for rank in (0, 1):
        out(made, rank, LOST, 1.1)
        end(made, rank, 1.2)
    end(made, 2, 3.0, 0)
    assert made.first_failed_ranks() == (2,)


def test_who_finished_is_not_blamed_for_what_another_did():
    made = ledger()
    end(made, 2, 1.0, 0)
    end(made, 1, 5.0, 137, 9)
    out(made, 0, LOST, 5.1)
    end(made, 0, 5.2)
    assert made.first_failed_ranks() == (1,)


def test_who_had_failed_before_it_was_stopped_is_the_first():
    made = ledger()
    made.record_message({"t": "leaving", "r": 1}, 1.0)
    out(made, 0, LOST, 1.1)
    end(made, 0, 1.2)
    made.stopping = True
    end(made, 1, 9.0, 143, 15)
    end(made, 2, 9.0, 143, 15)
    assert made.first_failed_ranks() == (1,)


@pytest.mark.parametrize("words", rank_ledger.GAVE_UP_PHRASES)
def test_who_was_waited_for_in_vain_is_the_first(words):
    """The group's time-out ends the waiters, while the rank that they wait for still reads."""
    made = ledger()
    for rank in (0, 1):
        out(made, rank, f"Traceback (most recent call last):\nRuntimeError: {words} 6000\n", 1.1)
        end(made, rank, 1.2)
    assert made.only_victims_failed() and made.gave_up_waiting()
    made.stopping, made.suspects = True, [2]
    end(made, 2, 9.0, 143, 15)
    assert made.first_failed_ranks() == (2,)


def test_a_code_after_the_work_is_a_failure():
    made = ledger(2)
    end(made, 0, 1.0, 0, done=True)
    end(made, 1, 1.0, 5, done=True)
    assert made.first_failed_ranks() == (1,)


def test_ended_well_before_the_crash_on_the_way_out():
    made = ledger(1)
    end(made, 0, 1.0, 134, 6, done=True)
    assert made.first_failed_ranks() == () and not made.list_failed_ends()


def test_lines_come_whole():
    made = ledger(1)
    assert out(made, 0, "a\nb", 0.2) == (0, ["a"])
    assert out(made, 0, "c\n", 0.3) == (0, ["bc"])
    assert out(made, 0, "x" * 70_000, 0.4) == (0, [])
    assert out(made, 0, "y\nlast", 0.5) == (0, ["x" * 70_000 + "y"])
    assert made.record_message({"t": "end", "r": 0, "code": 0, "signal": 0}, 0.6) == (0, ["last"])


def test_a_message_of_a_rank_that_nobody_asked_for_is_nothing():
    assert out(ledger(2), 9, "x\n", 1.0) == (-1, [])


# -- beats ------------------------------------------------------------------------------------------------


def beat(made: RankLedger, at: float, **ranks: tuple[object, ...]) -> None:
    made.record_message({"t": "beat", "d": [[int(r[1:]), *reported] for r, reported in ranks.items()]}, at)


def row(
    state: str = "S", cpu: float = 0.0, late: float | None = 0.4, still: float = 0.0, ran: float = 0.0,
    roamed: float = 0.0, waits: int = 0,
) -> tuple[object, ...]:  # fmt: skip
    return (state, cpu, late, still, ran, roamed, waits)


def beaten(
    states: dict[str, str], cpu: dict[str, float], late: dict[str, float], seconds: int = 14
) -> list[liveness.RunNote]:
    """Beats of so many seconds; what is said at their end."""
    made = ledger(len(states))
    for second in range(seconds):
        rows = {r: row(s, cpu.get(r, 0.0) * second, second * late[r] if r in late else 0.4) for r, s in states.items()}
        beat(made, 1.0 + second, **rows)
    return liveness.find_liveness_notes(made, float(seconds))


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


def judged(made: RankLedger, seconds: float = 30.0, **rows: tuple[object, ...]) -> list[liveness.RunNote]:
    beat(made, seconds, **rows)
    return liveness.find_liveness_notes(made, seconds)


def test_a_stopped_rank_is_sure():
    (note,) = beaten({"r0": "S", "r1": "T"}, {}, {}, 4)
    assert note.kind == "stopped" and note.rank == 1 and note.sure and note.fix == "kill -CONT 101"


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
    assert not liveness.find_liveness_notes(made, 14.0)


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


def test_b16_a_rank_that_the_others_wait_for_step_after_step():
    made = ledger(3)
    for second in range(25):
        beat(made, 1.0 + second, r0=row(waits=1), r1=row(cpu=0.9 * second, waits=second % 5 == 0), r2=row(waits=1))
    (note,) = liveness.find_liveness_notes(made, 26.0)
    assert note.kind == "slow" and note.rank == 1 and not note.sure and "computes" in note.says


@pytest.mark.parametrize(("state", "said"), [("R", ["slow"]), ("S", [])])
def test_b16_a_straggler_on_a_busy_machine_is_one_too(state, said):
    """Recorded at a load of 14 on two cores: ready to run all the time, and without a processor for 16 s."""
    made = ledger(2)
    for second in range(25):
        slow = row(state, cpu=0.04 * second, still=min(second, 16.0), waits=second % 10 == 0)
        beat(made, 1.0 + second, r0=row(waits=1), r1=slow)
    assert [note.kind for note in liveness.find_liveness_notes(made, 26.0)] == said


def test_ranks_that_all_compute_are_well():
    assert not beaten({"r0": "R", "r1": "R"}, {"r0": 0.9, "r1": 0.97}, {}, 30)


def test_where_a_stack_stands():
    stack = ["Thread 0x1 (most recent call first):", '  File "/x/worker.py", line 3 in run',
             "Current thread 0x2 (most recent call first):",
             '  File "/v/site-packages/torch/distributed/distributed_c10d.py", line 3252 in all_reduce',
             '  File "/v/site-packages/torch/distributed/c10d_logger.py", line 83 in wrapper',
             '  File "/job/train.py", line 41 in step', '  File "/job/train.py", line 60 in <module>']  # fmt: skip
    assert liveness.locate_stack(stack) == "all_reduce at train.py:41 (step)" and liveness.locate_stack([]) == ""


# -- again ------------------------------------------------------------------------------------------------


def failed(*last: str, code: int = 1, seconds: float = 5.0) -> LaunchAttempt:
    return LaunchAttempt((RankEnd(0, "h", 1, code, 0, 1, last=last),), (0,), code=code, seconds=seconds)


def test_three_of_a_kind_are_enough():
    same = [failed("ValueError: bad 17"), failed("ValueError: bad 18"), failed("ValueError: bad 19")]
    assert not restart.why_restart_is_useless(same[:2]) and "3 times" in restart.why_restart_is_useless(same)


def test_progress_gives_another_chance():
    assert not restart.why_restart_is_useless([failed(f"step {n} loss 2", "ValueError: bad") for n in (10, 20, 30)])
    assert restart.why_restart_is_useless([failed("step 10/100", "ValueError: bad") for _ in range(3)])
    assert not restart.why_restart_is_useless([failed("ValueError", seconds=s) for s in (4.0, 4000.0, 9000.0)])


def test_another_failure_is_another_count():
    assert not restart.why_restart_is_useless([failed("ValueError: a"), failed("KeyError: b"), failed("ValueError: a")])


def test_what_stays_until_somebody_changes_it():
    assert "PKG001" in restart.why_restart_is_useless([failed("x")], "PKG001", "torch has no CUDA")
    assert not restart.why_restart_is_useless([failed("x")], "NET007", "a peer went away")
    assert restart.why_restart_is_useless([LaunchAttempt(why="missing", code=1)])
