"""Where ranks fail alike, most of them decide which one differs; without a majority nobody is named."""

from __future__ import annotations

import pytest

from gpuready.launcher import rank_votes
from gpuready.model.last_error import last_error_line
from gpuready.model.run import RankEnd
from tests.launcher.ledgers import LOST, end, ledger, out

SIZES = "RuntimeError: [{}]: params[0] in this process with sizes [8, 8] appears not to match sizes of the same param in process {}."
COUNTS = "RuntimeError: DDP expects same model across all ranks, but Rank {} has 4 params, while rank {} has inconsistent 6 params."
DTYPES = (
    "RuntimeError: Detected mismatch between collectives on ranks. Rank {} is running collective: "
    "CollectiveFingerPrint(OpType=ALLREDUCE, TensorDtypes=Float), but Rank {} is running collective: "
    "CollectiveFingerPrint(OpType=ALLREDUCE, TensorDtypes=Double)."
)


def first_of(world: int, said: dict[int, str]) -> tuple[int, ...]:
    """Ranks that fail one after the other, the highest first; who says nothing has lost its peer."""
    made = ledger(world)
    for place, rank in enumerate(reversed(range(world))):
        text = f"Traceback (most recent call last):\n[rank{rank}]: {said[rank]}\n" if rank in said else LOST
        out(made, rank, text, 1.0 + place / 10)
        end(made, rank, 1.05 + place / 10)
    return made.first_failed_ranks()


@pytest.mark.parametrize("words", [SIZES, COUNTS, DTYPES])
def test_the_messages_of_most_name_the_one_that_differs(words):
    assert first_of(3, {0: words.format(0, 1), 1: words.format(1, 0), 2: words.format(2, 1)}) == (1,)
    assert first_of(4, {rank: words.format(rank, 0) for rank in (1, 2, 3)}) == (0,), "who lost its peer differs"
    assert first_of(3, {2: words.format(2, 0)}) == (2,), "nobody joins its complaint"
    assert first_of(2, {0: words.format(0, 1), 1: words.format(1, 0)}) == (0, 1), "no majority"
    assert first_of(2, {1: words.format(1, 0)}) == (0, 1)
    assert first_of(4, {0: words.format(0, 2), 1: words.format(1, 3)}) == (0, 1, 2, 3)


def test_a_list_of_ranks_accuses_none_and_missing_ranks_are_nobody_s_fault():
    lists = dict.fromkeys(range(4), "ValueError: crc mismatch: rank 0: 1a, rank 3: 2b, rank 1: 1a")
    assert first_of(4, {**lists, 3: "ValueError: bad shard"}) == (3,), "the first to end, as nobody is accused"
    late = "torch.distributed.DistStoreError: Timed out after 61 seconds waiting for clients. 3/4 clients joined."
    assert first_of(3, dict.fromkeys(range(3), late)) == (0, 1, 2)


def test_who_did_not_join_is_named_where_the_store_has_counted():
    late = "torch.distributed.DistStoreError: Timed out after 16 seconds waiting for clients. {}/3 clients joined."
    made = ledger(3)
    for rank in (0, 1):
        out(made, rank, f"Traceback (most recent call last):\n{late.format(2)}\n", 1.0)
        end(made, rank, 1.1)
    assert made.first_failed_ranks() == (2,)


def test_ranks_that_say_the_same_without_an_exception_failed_together():
    made = ledger(3)
    for rank in range(3):
        out(made, rank, "train.py: error: the following arguments are required: --lr\n", 1.0 + rank / 10)
        end(made, rank, 1.05 + rank / 10, 2)
    assert made.first_failed_ranks() == (0, 1, 2)


def test_a_sentence_of_all_accuses_nobody():
    assert first_of(4, dict.fromkeys(range(4), "AssertionError: config differs on ranks [2] from rank 0")) == (
        0,
        1,
        2,
        3,
    )


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("RuntimeError: gathered errors, ranks:dict_keys([1])", (1,)),
        ("RuntimeError: stop, rank(s) [1] could not go on", (1,)),
        ("AssertionError: samples per rank: [64, 60, 64, 64]", (1,)),
        ("AssertionError: samples per rank: {0: 64, 1: 60, 2: 64, 3: 64}", (1,)),
        ("AssertionError: samples per rank: [64, 60, 64, 60]", (0, 1, 2, 3)),
        ("ValueError: shape [4, 1, 4, 4] is not square", (0, 1, 2, 3)),
        ("RuntimeError: unused parameters on rank {rank}: 3", (0, 1, 2, 3)),
    ],
)
def test_a_sentence_of_most_that_names_one_rank_is_a_vote(words, first):
    assert first_of(4, {rank: words.replace("{rank}", str(rank)) for rank in range(4)}) == first


def test_who_was_well_until_the_others_failed_is_only_spoken_of():
    assert first_of(4, dict.fromkeys((1, 2, 3), "RuntimeError: only rank 0 may write")) == (1, 2, 3)
    assert first_of(4, {3: "ValueError: the part of rank 1 is empty"}) == (3,)


def test_the_lines_of_a_message_that_name_what_is_wrong_are_told():
    fields = ("ValidationError: 1 error for Config", "lr", "  Input should be greater than 0", "    See the page")
    trace = ("Traceback (most recent call last):", '  File "t.py", line 3, in <module>', "    load()")
    (said,) = {rank_votes.describe_first([1], [RankEnd(1, "n", 7, 1, last=(*trace, *fields))], 2)}
    assert said.endswith("failed first: ValidationError: 1 error for Config lr Input should be greater than 0")
    after = (*trace, "ValueError: bad", "[W1119] the group was left open")
    assert rank_votes.describe_first([1], [RankEnd(1, "n", 7, 1, last=after)], 2).endswith("ValueError: bad")


@pytest.mark.parametrize(("line", "named"), [(7, (1,)), (9, (2, 0, 1))])
def test_a_rank_that_is_at_another_line_than_one_that_crashed_and_all_others(line, named):
    made = ledger(3)
    sizes = "what(): op.preamble.length <= op.nbytes. 33336 vs 4\nFatal Python error: Aborted\n"
    frames = f'  File "/v/site-packages/torch/c10d.py", line 3 in all_reduce\n  File "/j/train.py", line {line} in <module>\n'
    for rank, at in ((1, 5), (2, 7)):
        made.record_message({"t": "call", "r": rank, "d": f"all_reduce(float32 [{at}]) at train.py:{at}"}, 1.0)
    out(made, 0, sizes + frames, 1.0)
    end(made, 0, 1.1, 134, 6)
    for rank in (1, 2):
        out(made, rank, LOST, 1.2)
        end(made, rank, 1.3)
    assert set(made.first_failed_ranks()) == set(named)


@pytest.mark.parametrize(("others", "named"), [((4096, 8), {1}), ((8, 4096), {2}), ((8, 8), {0}), ((4096, 512), {1})])
def test_who_crashed_since_more_came_than_it_expected_has_the_smaller_tensor(others, named):
    made = ledger(3)
    for rank, size in enumerate(others, 1):
        made.record_message({"t": "call", "r": rank, "d": f"all_reduce(float32 [{size}]) at train.py:7"}, 1.0)
    sizes = "what(): op.preamble.length <= op.nbytes. 2732 vs 8\nFatal Python error: Aborted\n"
    out(made, 0, sizes + '  File "/j/train.py", line 7 in <module>\n', 1.0)
    end(made, 0, 1.1, 134, 6)
    for rank in (1, 2):
        out(made, rank, LOST, 1.2)
        end(made, rank, 1.3)
    assert set(made.first_failed_ranks()) == named


def test_the_tracebacks_of_a_checkpoint_that_all_show_name_their_rank():
    shown = "CheckpointException ranks:dict_keys([1])\nTraceback (most recent call last): (RANK 1)\n"
    lines = f'{shown}  File "w.py", line 3, in write_data\nOSError: [Errno 5] Input/output error\n'
    made = ledger(3)
    for rank in (2, 0, 1):
        out(made, rank, lines, 1.0)
        end(made, rank, 1.1)
    assert made.first_failed_ranks() == (1,)
    assert rank_votes.explain_vote(made.list_ends(), 1, 3).startswith("3 of 3 ranks name it: OSError")


def test_a_value_that_is_not_finite_is_found_beside_times_and_other_values():
    rows = (
        '{{"rank": {}, "time": "12:00:0{},31", "step": 4, "lr": 3.1e-05, "grad": {}.5, "loss": {}}}',
        "RuntimeError: diverged",
    )
    made = ledger(3)
    for rank in (0, 2, 1):
        out(made, rank, "\n".join((rows[0].format(rank, rank, rank, "NaN" if rank == 2 else "2.5"), rows[1], "")), 1.0)
        end(made, rank, 1.1)
    assert made.first_failed_ranks() == (2,)


def test_an_error_in_json_is_read():
    line = '[rank1]: {"time": "12:00", "type": "ValueError", "message": "bad\\nshard"}'
    assert last_error_line(["x", line, "{"]) == "ValueError: bad shard"
    made = ledger(1)
    out(made, 0, '{"msg": "failed", "exc": "Traceback (most recent call last):\\nKeyError: 7"}\n', 1.0)
    assert list(made.ranks[0].tail)[-1] == "KeyError: 7"


def test_an_error_is_known_by_its_traceback_too():
    trace = [
        "Traceback (most recent call last):",
        '  File "t.py", line 3, in <module>',
        "    raise Stop(x)",
        "          ^^^^",
    ]
    assert last_error_line([*trace, "Stop: no shard is left"]) == "Stop: no shard is left"
    assert last_error_line(["ValueError: early", *trace[:1], "    lr: 3", "Model: llama"]) == "ValueError: early"


def steps(rank: int, *losses: str) -> str:
    lines = [f"[rank{rank}]: step {step} loss {loss}" for step, loss in enumerate(losses)]
    return "\n".join([*lines, "Traceback (most recent call last):", "ValueError: loss is nan"])


def test_the_log_that_shows_a_nan_where_the_others_show_numbers_is_that_of_the_first():
    said = {rank: steps(rank, "2.1", "-2.0", "nan") for rank in range(4)}
    assert first_of(4, {**said, 1: steps(1, "2.1", "nan", "nan")}) == (1,)
    assert first_of(4, said) == (0, 1, 2, 3), "all at once"
    only_one_writes = dict.fromkeys(range(4), "ValueError: loss is nan")
    assert first_of(4, {**only_one_writes, 0: steps(0, "2.0", "nan")}) == (0, 1, 2, 3), "the others write no losses"


def test_a_few_that_fail_alike_are_told_by_their_order():
    made = ledger(8)
    for at, rank in ((1.0, 5), (1.4, 3)):
        out(made, rank, "Traceback (most recent call last):\nKeyError: 'x'\n", at)
        end(made, rank, at + 0.01)
    assert made.first_failed_ranks() == (5,)


def test_it_is_said_by_what_a_rank_differs():
    ends = [RankEnd(rank, "here", 7, 1, last=(COUNTS.format(rank, 0 if rank == 2 else 2),)) for rank in range(3)]
    assert rank_votes.explain_vote(ends, 2, 3).startswith("2 of 3 ranks name it: RuntimeError: DDP expects")
    assert rank_votes.explain_vote([RankEnd(1, "here", 7, 1, last=("KeyError: 'x'",))], 1, 3) == ""


def test_a_collective_with_other_sizes_on_one_rank_names_nobody():
    made = ledger(3)
    out(
        made,
        0,
        "  what():  [enforce fail at gloo/transport/tcp/pair.cc:454] op.preamble.length <= op.nbytes. 8000 vs 4000\n",
        1.0,
    )
    end(made, 0, 1.1, 134, 6)
    for rank in (1, 2):
        out(made, rank, LOST, 1.2)
        end(made, rank, 1.3)
    assert made.first_failed_ranks() == (0, 1, 2)
    said = rank_votes.explain_vote(made.list_ends(), 0, 3)
    assert (
        said.startswith("a collective has 8000 bytes on one rank and 4000 on another") and "--check-collectives" in said
    )


FRAME = '[rank{0}]:   File "/x/torch/distributed/distributed_c10d.py", line 9, in {1}\n'
GAVE_UP = "[rank{0}]: RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 12000ms for recv operation to complete\n"


@pytest.mark.parametrize(
    ("calls", "first"),
    [
        (["all_gather", "broadcast", "all_gather", "all_gather"], (1,)),
        (["all_gather", "broadcast", "all_gather", "broadcast"], (0, 1, 2, 3)),
        (["all_gather"] * 4, (0, 1, 2, 3)),
        (["all_gather", "broadcast"], (0, 1)),
    ],
)
def test_who_waited_in_another_collective_than_all_others_differs(calls, first):
    made = ledger(len(calls))
    for rank, call in enumerate(calls):
        out(made, rank, f"Traceback (most recent call last):\n{FRAME.format(rank, call)}{GAVE_UP.format(rank)}", 9.0)
        end(made, rank, 9.1 + rank / 10)
    assert made.first_failed_ranks() == first
    if len(first) == 1:
        says = "it was in broadcast, and all others in all_gather"
        assert rank_votes.explain_vote(made.list_failed_ends(), 1, 4) == says


MISMATCH = "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n  what(): op.preamble.length <= op.nbytes. 2048 vs 1024\n"


@pytest.mark.parametrize(
    ("kinds", "first"),
    [
        (["float32", "float32", "float64"], (2,)),
        (["float32", "bfloat16", "float32"], (1,)),
        (["float32", "bfloat16", "float32", ""], (1,)),
        (["float32", "bfloat16", "", ""], (0, 1, 2, 3)),
        (["float32", "float16", "float64"], (0, 1, 2)),
        (["float32", "float64"], (0, 1)),
    ],
)
def test_a_line_that_one_rank_alone_prints_otherwise_names_it_where_sizes_differ(kinds, first):
    made = ledger(len(kinds))
    for rank, kind in enumerate(kinds):
        said = f"rank {rank}: seed {rank}{rank}7\nmodel of rank {rank}: 2632 parameters, torch.{kind}\n" if kind else ""
        out(made, rank, said + (MISMATCH if rank == 0 else LOST), 9.0)
        end(made, rank, 9.1 + rank / 10)
    assert made.first_failed_ranks() == first
    says = rank_votes.explain_vote(made.list_failed_ends(), first[0], len(kinds))
    assert "2048 bytes on one rank and 1024 on another" in says and ("its log says 'model of" in says) is (
        len(first) == 1
    )


def test_a_line_of_its_own_explains_who_waited_in_vain_and_no_other_failure():
    for error, shown in (
        ("torch.distributed.DistStoreError: wait timeout after 12000ms", True),
        ("ValueError: bad", False),
    ):
        made = ledger(3)
        for rank, world in enumerate((3, 3, 4)):
            text = f"Traceback (most recent call last):\n[rank2]: {error}\n" if rank == 2 else LOST
            out(made, rank, f"rank {rank} of {world} starts\n{text}", 9.0)
            end(made, rank, 9.1)
        said = rank_votes.explain_vote(made.list_failed_ends(), 2, 3)
        assert made.first_failed_ranks() == (2,) and ("its log says 'of 4 starts'" in said) is shown


def test_the_signal_that_gpuready_sent_is_not_how_a_rank_failed():
    late = RankEnd(1, "n", 7, 143, 15, stopped=True, last=("step 4",))
    assert rank_votes.describe_first([1], [late], 2) == (
        "rank 1 on n failed first: it did not come, the others gave up waiting for it"
    )
    assert "KeyError: 'ids'" in rank_votes.describe_first([1], [late.replace(last=("KeyError: 'ids'", "step 4"))], 2)
    assert "SIGTERM" in rank_votes.describe_first([1], [late.replace(stopped=False)], 2)


@pytest.mark.parametrize(
    ("line", "is_one"),
    [
        ("zlib.error: Error -3 while decompressing data: invalid distance code", True),
        ("[rank3]: struct.error: unpack requires a buffer of 8 bytes", True),
        ("srun: error: task 0", False),
        ("error: unknown option", False),
        ("see logs/train.error for more", False),
    ],
)
def test_an_exception_whose_name_is_a_small_word_of_its_module(line, is_one):
    assert (last_error_line([line, "step 4"]) != "") is is_one


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("torch.distributed.DistStoreError: wait timeout after 12000ms, keys: /default_pg/0//cpu//0/3", "for a rank 3 in"),
        ("torch.distributed.DistStoreError: Timed out after 13 seconds waiting for clients. 3/4 clients joined.", "for 4 ranks in"),
    ],
)  # fmt: skip
def test_who_waits_for_more_ranks_than_the_job_has_is_not_given_its_world_size(line, says):
    made = ledger(3)
    made.world = 3
    out(made, 1, f"Traceback (most recent call last):\n{line}\n", 1.0)
    end(made, 1, 1.1)
    assert made.first_failed_ranks() == (1,) and not made.gave_up_waiting([])
    assert says in rank_votes.find_other_numbers(made.list_ends()[0], 3)
    assert not rank_votes.find_other_numbers(made.list_ends()[0], 0), "their number is not known"
    own = RankEnd(1, last=(line.replace("0/3", "0/2").replace("/4", "/3"),))
    assert "RANK is not" in rank_votes.find_other_numbers(own.replace(rank=2), 3) or "clients" in line
    assert not rank_votes.find_other_numbers(own, 3)


def test_who_wants_to_listen_where_rank_0_does_has_another_rank():
    line = "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: {}, code: -98"
    twin = RankEnd(1, last=(line.format(45857),))
    assert "on port 45857, where rank 0 listens" in rank_votes.find_other_address(twin, "127.0.0.1", 45857)
    assert not rank_votes.find_other_address(twin, "127.0.0.1", 29500)
    assert not rank_votes.find_other_address(twin.replace(rank=0), "127.0.0.1", 45857)


def test_who_looks_for_the_store_elsewhere_has_another_address():
    line = "torch.distributed.DistNetworkError: The client socket has timed out after 15000ms while trying to connect to (10.99.0.77, 42703)."
    end_ = RankEnd(1, last=(line,))
    assert "MASTER_ADDR is not" in rank_votes.find_other_address(end_, "127.0.0.1", 42703)
    assert "MASTER_PORT is not" in rank_votes.find_other_address(end_, "10.99.0.77", 29500)
    assert not rank_votes.find_other_address(end_, "10.99.0.77", 42703)
    calls = "[E1119 socket.cpp:1028] [c10d] The client socket has timed out after 12000ms while trying to connect to (n9.invalid, 45209)."
    waits = RankEnd(1, last=(calls, "frame #44: __libc_start_main + 0x85 (0x7f07a2645305)", ""))
    assert "at n9.invalid port 45209" in rank_votes.find_other_address(waits, "127.0.0.1", 45209)
    assert not rank_votes.find_other_address(waits.replace(last=(calls, "step 1")), "127.0.0.1", 45209), (
        "it came through"
    )
    gone = RankEnd(1, last=("ValueError: could not connect to (10.99.0.77, 42703)", "ValueError: bad shard"))
    assert not rank_votes.find_other_address(gone, "127.0.0.1", 42703)


def test_who_goes_on_after_most_have_ended_well_does_more_than_they():
    made = ledger(3)
    for rank in (0, 2):
        end(made, rank, 1.0, 0, done=True)
    out(made, 1, LOST, 1.1)
    end(made, 1, 1.2)
    assert made.first_failed_ranks() == (1,)
    assert "does more than they do" in rank_votes.explain_vote(made.list_ends(), 1, 3)
    own = [one.replace(last=("ValueError: bad shard",)) for one in made.list_ends()]
    assert not rank_votes.explain_vote(own, 1, 3), "its own error is the reason"


def test_who_does_not_listen_where_the_others_call_is_named_and_not_they():
    calls = "[E1119 socket.cpp:1028] [c10d] The client socket has timed out after 12000ms while trying to connect to (127.0.0.1, 41399)."
    joined = "torch.distributed.DistStoreError: Timed out after 13 seconds waiting for clients. 1/3 clients joined."
    for store, first in ((("127.0.0.1", 41399), (0,)), (("127.0.0.1", 9), (0,)), (("", 0), (1, 2))):
        made = ledger(3)
        made.world, made.store = 3, store
        for rank in (1, 2):
            out(made, rank, calls + "\n", 1.0)
        out(made, 0, f"Traceback (most recent call last):\n{joined}\n", 1.2)
        end(made, 0, 1.3)
        assert made.first_failed_ranks() == first
    raised = calls.replace("[E1119 socket.cpp:1028] [c10d] ", "torch.distributed.DistNetworkError: ")
    made = ledger(3)
    made.store = ("127.0.0.1", 41399)
    for rank in (1, 2):
        out(made, rank, f"Traceback (most recent call last):\n{raised}\n", 1.0)
        end(made, rank, 1.3)
        made.record_message({"t": "stack", "r": rank, "d": ['  File "linecache.py", line 30 in getline']}, 1.4)
    native = (
        "Exception raised from throwTimeoutError at socket.cpp:1030 (most recent call first):\nframe #0: c10::Error\n"
    )
    out(made, 1, native, 1.5)
    assert made.first_failed_ranks() == (0,) and made.gave_up_waiting()


def test_ranks_that_gave_up_waiting_for_each_other_blame_nobody():
    """Rank 2 is still in its own rendezvous: which of the three differs, no message tells."""
    made = ledger(3)
    for rank in (0, 1):
        out(
            made,
            rank,
            "Traceback (most recent call last):\nRuntimeError: Timed out waiting 12000ms for send operation to complete\n",
            1.0,
        )
        end(made, rank, 1.0 + rank)
    made.stopping = True
    end(made, 2, 3.0, 143, 15)
    assert made.first_failed_ranks() == (0, 1, 2)
    says = rank_votes.describe_first((0, 1, 2), made.list_ends(), 3)
    assert says.startswith("it is not known which rank: each waited for another")


EIGHT, SIX = "all_reduce(float32 [8]) at train.py:7", "all_reduce(float32 [6]) at train.py:7"


@pytest.mark.parametrize(
    ("calls", "named"),
    [
        ([EIGHT, SIX, EIGHT, EIGHT], "it was in all_reduce(float32 [6]), and all others in all_reduce(float32 [8])"),
        ([EIGHT, EIGHT.replace(":7", ":9"), EIGHT, EIGHT], "it was in all_reduce(float32 [8]) at train.py:9, and all"),
        ([EIGHT, SIX, EIGHT, ""], "it was in all_reduce(float32 [6]), and all others"),
        ([EIGHT, SIX, EIGHT, SIX], ""),
        ([EIGHT, "", EIGHT, EIGHT], ""),
        ([EIGHT, SIX, "", ""], ""),
    ],
)
def test_who_was_in_a_collective_with_another_tensor_or_place_differs(calls, named):
    ends = [RankEnd(rank, code=1, call=call, last=("no more",)) for rank, call in enumerate(calls)]
    found = rank_votes.find_difference(ends, 4)
    assert (found is not None and found[0] == 1 and found[1].startswith(named)) if named else found is None


def test_the_one_of_which_no_tensor_is_known_differs_where_the_sizes_do_and_the_others_have_the_same():
    mismatch = "[enforce fail at pair.cc:454] op.preamble.length <= op.nbytes. 8 vs 4"
    ends = [RankEnd(rank, code=1, call="" if rank == 2 else EIGHT, last=(mismatch,)) for rank in range(4)]
    assert rank_votes.find_difference(ends, 4) == (2, "all others were in all_reduce(float32 [8])")


@pytest.mark.parametrize(
    "end", ["stopping: a rank has failed", "Traceback (most recent call last):\nRuntimeError: one failed"]
)
def test_the_error_that_one_rank_alone_caught_before_all_ended_alike_is_the_first(end):
    made = ledger(4)
    for rank in range(4):
        caught = "Traceback (most recent call last):\nPermissionError: /out\n" if rank == 2 else "step 7\n"
        out(made, rank, f"{caught}{end}\n", 1.0 + rank / 10)
        made.record_message({"t": "end", "r": rank, "code": 1, "signal": 0}, 1.05 + rank / 10)
    assert made.first_failed_ranks() == (2,)
    says = "its log alone has an error before that of all: PermissionError: /out"
    assert rank_votes.explain_vote(made.list_ends(), 2, 4) == says
    assert rank_votes.explain_vote(made.list_ends()[2:3], 2, 4) == "", "of its own"


@pytest.mark.parametrize(
    ("line", "waits"),
    [
        ("CalledProcessError: Command '['/opt/installs/bin/python']' died with <Signals.SIGSEGV: 11>.", False),
        ("RuntimeError: the pipeline stalled", True),
        ("RuntimeError: step is stuck", True),
    ],
)
def test_a_path_does_not_speak_of_waiting(line, waits):
    assert rank_votes.speaks_of_waiting([line]) is waits


@pytest.mark.parametrize("name", ["socket.gaierror", "struct.error", "shards.exhausted"])
def test_an_exception_in_small_letters_below_a_traceback_is_the_last_error(name):
    lines = ["Traceback (most recent call last):", '  File "/j/t.py", line 4, in load', f"{name}: bad"]
    assert last_error_line(lines) == f"{name}: bad"
    assert last_error_line(["Traceback (most recent call last):", '  File "/j/t.py", line 4, in load', "loss: 3"]) == ""
