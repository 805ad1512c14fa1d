"""Who failed first, by the order in which we hear; lines come whole."""

from __future__ import annotations

import pytest

from gpuready.launcher import rank_votes
from tests.launcher.ledgers import LOST, beat, end, ledger, out, row


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


def test_who_lost_a_connection_of_its_own_did_not_lose_its_peer():
    made = ledger()
    out(made, 0, LOST, 1.0)
    end(made, 0, 1.1)
    out(
        made, 1, "Traceback (most recent call last):\nConnectionResetError: [Errno 104] Connection reset by peer\n", 1.2
    )
    end(made, 1, 1.3)
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


@pytest.mark.parametrize("words", rank_votes.LOST_PEER_PHRASES)
def test_who_only_lost_a_peer_is_not_the_first(words):
    made = ledger()
    out(made, 0, f"Traceback (most recent call last):\nRuntimeError: {words}\n", 1.0)
    end(made, 0, 1.1)
    end(made, 1, 1.4, 3)
    assert made.first_failed_ranks() == (1,)


@pytest.mark.parametrize("words", rank_votes.GAVE_UP_PHRASES)
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


HERE, THERE = (
    '  File "/x/torch/distributed/c10d.py", line 1 in all_reduce',
    '  File "/x/train.py", line 7 in read_shard',
)


@pytest.mark.parametrize(
    ("words", "stuck", "places", "gave_up"),
    [
        ("TimeoutError: the step is overdue", 4.0, (HERE, THERE), True),
        ("TimeoutError: the step is overdue", 0.0, (HERE, THERE), False),
        ("KeyError: 'x'", 4.0, (HERE, THERE), False),
        ("bye", 4.0, (HERE, THERE), True),
        ("bye", 4.0, (THERE, THERE), False),
        ("bye", 0.0, (HERE, THERE), False),
    ],
)
def test_a_watchdog_of_its_own_gives_up_where_one_alone_is_elsewhere(words, stuck, places, gave_up):
    made = ledger(3)
    beat(made, 4.0, r0=row(still=stuck, waits=1))
    for rank, place in enumerate(places, start=1):
        made.record_message({"t": "stack", "r": rank, "d": [place]}, 4.5)
    out(made, 0, words + "\n", 5.0)
    end(made, 0, 5.1, 17)
    assert made.gave_up_waiting() is gave_up and made.only_victims_failed() is gave_up
    made.suspects = [2]
    assert made.first_failed_ranks() == ((2,) if gave_up else (0,))


@pytest.mark.parametrize(("file", "first"), [("/j/train.py", (2,)), ("/v/site-packages/urllib3/pool.py", (0, 1))])
def test_ranks_that_give_up_alike_wait_for_the_one_that_does_not(file, first):
    made = ledger(3)
    made.record_message({"t": "stack", "r": 2, "d": [THERE]}, 4.5)
    for rank in (0, 1):
        out(made, rank, f'Traceback\n  File "{file}", line 3 in wait\nTimeoutError: no answer\n', 5.0)
        made.record_message({"t": "leaving", "r": rank}, 5.0)
        end(made, rank, 5.1)
    made.suspects = [2]
    assert made.first_failed_ranks() == first


def test_what_a_logger_writes_before_each_line_of_a_traceback_is_no_part_of_it():
    made = ledger(2)
    rows = ("Traceback (most recent call last):", '  File "train.py", line 3, in <module>', "OSError: shard 12 is gone")
    out(made, 1, "".join(f"12:00:0{n},{n}31 | worker | ERROR | {row}\n" for n, row in enumerate(rows)), 1.0)
    end(made, 1, 1.1)
    assert made.list_ends()[0].last == rows
    out(
        made,
        0,
        "╭──── Traceback (most recent call last) ────╮\n│ x │\nOriginal Traceback (most recent call last):\n",
        2.0,
    )
    end(made, 0, 2.1)
    assert made.list_ends()[1].last[0].startswith("╭─") and made.list_ends()[1].last[2].startswith("Original")


def test_a_code_after_the_work_is_a_failure():
    made = ledger(2)
    end(made, 0, 1.0, 0, done=True)
    end(made, 1, 1.0, 5, done=True)
    assert made.first_failed_ranks() == (1,)


def test_ended_well_before_the_crash_on_the_way_out():
    made = ledger(1)
    end(made, 0, 1.0, 134, 6, done=True)
    assert made.first_failed_ranks() == () and not made.list_failed_ends(), "nobody else is ended for it"
    assert made.list_ends()[0].crashed_at_exit


def test_lines_come_whole():
    made = ledger(1)
    assert out(made, 0, "a\nb", 0.2) == (0, ["a"])
    assert out(made, 0, "c\n", 0.3) == (0, ["bc"])
    assert out(made, 0, "x" * 70_000, 0.4) == (0, [])
    assert out(made, 0, "y\nlast", 0.5) == (0, ["x" * 70_000 + "y"])
    assert made.record_message({"t": "end", "r": 0, "code": 0, "signal": 0}, 0.6) == (0, ["last"])


def test_a_message_of_a_rank_that_nobody_asked_for_is_nothing():
    assert out(ledger(2), 9, "x\n", 1.0) == (-1, [])


@pytest.mark.parametrize(
    ("states", "said"), [("DDD", "in uninterruptible sleep (state D, in kernel_clone)"), ("SDD", "")]
)
def test_the_state_of_a_rank_that_did_not_come_is_kept(states, said):
    made = ledger(2)
    for at, state in enumerate(states):
        beat(made, float(at), r1=row(state))
    made.record_message({"t": "stack", "r": 1, "d": [], "kernel": ["kernel_clone"]}, 3.0)
    made.stopping = True
    end(made, 1, 4.0, 137, 9)
    assert made.list_ends()[0].stood == said
