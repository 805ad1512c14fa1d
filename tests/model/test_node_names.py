"""Node sets: folded and unfolded they are the same, whatever the names, and in linear time."""

from __future__ import annotations

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuready.model.node_names import expand_node_set, fold_node_names
from tests.sampling import count_draws

plain = st.text(string.ascii_letters + string.digits + "-._", min_size=1, max_size=24)


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        (["n0017", "n0412", "n0998"], "n[0017,0412,0998]"),
        ([f"n{at:04d}" for at in range(1, 1025)], "n[0001-1024]"),
        (["n9", "n10", "n11"], "n[9-11]"),
        (["n09", "n10"], "n[09-10]"),
        (["n1", "n01"], "n[1,01]"),
        (["login"], "login"),
        (["n7"], "n7"),
        ([], ""),
        (["n2", "n1", "n1"], "n[1-2]"),
        ([f"r1n{at}.c2.example" for at in range(3)], "r1n[0-2].c2.example"),
        (["ip-20251115093000", "ip-20251115093001"], "ip-20251115093000,ip-20251115093001"),
    ],
)
def test_as_slurm_writes_them(names, folded):
    assert fold_node_names(names) == folded
    assert set(expand_node_set(folded)) == set(names)


@settings(max_examples=count_draws(150), deadline=None)
@given(st.lists(plain, max_size=60))
def test_round_trip_of_any_names(names):
    assert sorted(expand_node_set(fold_node_names(names))) == sorted(set(names))


@settings(max_examples=count_draws(60), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 120), st.booleans()), max_size=80))
def test_round_trip_of_racks_and_numbers(rows):
    names = [f"r{rack}n{at:03d}" if padded else f"r{rack}n{at}" for rack, at, padded in rows]
    assert sorted(expand_node_set(fold_node_names(names))) == sorted(set(names))


def unfoldable(count: int) -> list[str]:
    return [f"aa-X{at % 97:02d}Y{at % 89:02d}Z{at % 83:02d}-{at * 2654435761 % 2**32:x}g" for at in range(count)]


def test_ten_thousand_names_that_do_not_fold_cost_no_more_each_than_a_thousand(cost):
    names = unfoldable(10_000)
    assert sorted(expand_node_set(fold_node_names(names))) == sorted(set(names))
    assert cost(lambda: fold_node_names(names[:3000])) < 1.5 * 10 * cost(lambda: fold_node_names(names[:300]))


@pytest.fixture
def cost():
    """Steps of Python, not seconds: the same on any machine."""
    import sys

    def measured(work) -> int:
        steps = 0

        def count(frame, event, arg):
            nonlocal steps
            steps += 1
            return count

        before = sys.gettrace()
        sys.settrace(count)
        try:
            work()
        finally:
            sys.settrace(before)
        return steps

    return measured
