"""Dumps of flight recorders: read without running anything, and judged by who waits for whom."""

from __future__ import annotations

import contextlib
import json
import os
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuready.logs.flight_recorder import find_standstills, is_recorder_dump, parse_recorder_dump
from gpuready.logs.safe_pickle import safe_unpickle
from tests.sampling import count_draws


class Evil:
    def __reduce__(self):
        return os.system, ("touch /tmp/gpuready-was-here",)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4) | st.tuples(inner, inner),
    max_leaves=20,
)


@given(PLAIN, st.sampled_from([2, 3, 4, 5]))
@settings(max_examples=count_draws(150), deadline=None)
def test_plain_data_comes_back(value, protocol):
    if protocol == 2 and any(quoted in repr(value) for quoted in ("b'", 'b"')):
        return  # protocol 2 has no bytes: Python writes a call in their place
    assert safe_unpickle(pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_code_is_refused_and_not_run(protocol, tmp_path):
    with pytest.raises(ValueError, match="code"):
        safe_unpickle(pickle.dumps({"entries": [Evil()]}, protocol))
    assert not os.path.exists("/tmp/gpuready-was-here")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80",
        b"\x80\x02",
        b"\x80\x02.",
        b"\x80\x02(.",
        b"\x80\x02}u.",
        b"\x80\x02h\x09.",
        b"\x80\x02]]a" * 9,
        b"\x80\x02s.",
        b"garbage",
    ],
)
def test_what_is_broken_says_so(data):
    with pytest.raises(ValueError):
        safe_unpickle(data)


# -- runs of our own making -----------------------------------------------------------------------------------

TENSOR = {0: [0, 1], 1: [0, 1], 2: [2, 3], 3: [2, 3]}


def made(rank: int, world: tuple[int, int], pair: tuple[int, int], op: str = "nccl:all_reduce") -> dict:
    """A dump of one of four ranks: enqueued and completed in the world, and in its tensor-parallel pair."""
    name = "1" if rank < 2 else "2"
    config = {
        "0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"},
        name: {"name": name, "desc": "TENSOR", "ranks": str(TENSOR[rank])},
    }
    status = {
        key: {
            "last_enqueued_collective": enqueued,
            "last_started_collective": -1,
            "last_completed_collective": completed,
        }
        for key, (enqueued, completed) in (("0", world), ("3", pair))
    }
    entries = [
        {
            "pg_id": 3,
            "process_group": (name, "TENSOR"),
            "profiling_name": op,
            "state": "scheduled",
            "collective_seq_id": n,
            "is_p2p": False,
        }
        for n in range(pair[1] + 1, pair[0] + 1)
    ]
    return {"version": "2.9", "pg_config": config, "pg_status": status, "entries": entries}


def judged(*dumps: dict) -> list[tuple[int, str]]:
    return [
        (one.rank, one.why)
        for one in find_standstills([parse_recorder_dump(pickle.dumps(d, 2), rank) for rank, d in enumerate(dumps)])
    ]


def test_a_rank_that_never_came_is_where_it_stands():
    assert judged(
        made(0, (10, 9), (50, 49)), made(1, (9, 9), (49, 49)), made(2, (10, 9), (50, 50)), made(3, (10, 9), (50, 50))
    ) == [(1, "waited-for")]


def test_a_gpu_that_stands_has_not_completed_what_its_peer_has():
    found = judged(
        made(0, (10, 9), (52, 52)), made(1, (10, 9), (52, 45)), made(2, (10, 9), (50, 50)), made(3, (10, 9), (50, 50))
    )
    assert found == [(1, "gpu-stands")]


def test_who_waits_itself_is_not_to_blame():
    """Rank 3 waits for rank 2, which waits for rank 0, which waits for nobody."""
    found = judged(
        made(0, (8, 8), (40, 40)), made(1, (9, 8), (41, 40)), made(2, (9, 8), (50, 50)), made(3, (9, 8), (51, 50))
    )
    assert found == [(0, "waited-for")]


def test_a_rank_that_left_no_dump():
    dumps = [parse_recorder_dump(pickle.dumps(made(r, (10, 9), (50, 50)), 2), r) for r in (0, 1, 3)]
    assert [(s.rank, s.why) for s in find_standstills(dumps)] == [(2, "waited-for")]


def test_a_run_that_goes_on_stands_nowhere():
    assert judged(*(made(r, (10, 10), (50, 50)) for r in range(4))) == []


def test_json_is_as_good():
    data = json.dumps(made(2, (10, 9), (50, 49))).encode()
    assert is_recorder_dump(data) and parse_recorder_dump(data, 2).groups["2"].enqueued == 50
    assert parse_recorder_dump(data, 2) == parse_recorder_dump(pickle.dumps(made(2, (10, 9), (50, 49)), 2), 2)


def test_the_rank_is_told_by_its_groups():
    row = made(0, (1, 1), (1, 1))
    row["pg_config"]["9"] = {"name": "9", "desc": "ALONE", "ranks": "[0]"}
    assert parse_recorder_dump(json.dumps(row).encode()).rank == 0
    with pytest.raises(ValueError, match="rank"):
        parse_recorder_dump(json.dumps(made(0, (1, 1), (1, 1))).encode())


@pytest.mark.parametrize(
    "malformed",
    [[], {"entries": 3}, {"pg_config": [], "pg_status": "x"}, {"pg_status": {"0": None}, "pg_config": {"0": None}}],
)
def test_malformed_dumps_break_nothing(malformed):
    with contextlib.suppress(ValueError):
        parse_recorder_dump(json.dumps(malformed).encode(), 0)


def test_logs_are_no_dumps():
    assert (
        not is_recorder_dump(b"Traceback (most recent call last):")
        and not is_recorder_dump(b"")
        and not is_recorder_dump(b'{"loss": 1}')
    )
