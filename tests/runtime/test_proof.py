"""What the proof of a group concludes, from sums that are right and wrong: no torch is needed for that."""

from __future__ import annotations

import struct

import pytest

from gpuready.runtime import group_proof

NAMES = {rank: f"rank {rank} (host-{rank}, pid {rank})" for rank in range(6)}


def total(members: list[int]) -> list[float]:
    return [
        sum(column) for column in zip(*(group_proof.values_to_send(members, rank) for rank in members), strict=True)
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 8, 200])
def test_the_sum_of_all_is_what_it_must_be(size):
    members = list(range(size))
    assert total(members) == group_proof.expected_sum(members) and not group_proof.compare_sum(total(members), members)


def test_a_float_has_every_number_of_a_large_sum_exactly():
    assert max(group_proof.expected_sum(list(range(1500)))) <= 1 << 24


def test_b05_b06_every_bit_of_a_sum_counts():
    members = [0, 1, 2]
    for place, value in enumerate(total(members)):
        for bit in range(32):
            (raw,) = struct.unpack("<I", struct.pack("<f", value))
            (bent,) = struct.unpack("<f", struct.pack("<I", raw ^ (1 << bit)))
            found = total(members)
            found[place] = bent
            wrong = group_proof.compare_sum(found, members)
            assert wrong and wrong["owners"] == (
                [(place - group_proof.SHARED_PLACES) // 4] if place >= group_proof.SHARED_PLACES else []
            )


def test_b07_who_has_a_nan():
    found = total([4, 5])
    found[-1] = float("nan")
    wrong = group_proof.compare_sum(found, [4, 5])
    assert wrong["nan"] and wrong["owners"] == [5] and "nan in place of 8388611" in wrong["says"]


def test_neighbours_are_tried_in_one_order_everywhere():
    assert group_proof.neighbour_pairs(2) == [[0, 1]] and group_proof.neighbour_pairs(3) == [[0, 1], [1, 2], [0, 2]]
    for size in (4, 5, 9):
        assert {
            rank: sum(rank in pair for pair in group_proof.neighbour_pairs(size)) for rank in range(size)
        } == dict.fromkeys(range(size), 2)


def ranks(size: int, wrong_first: set[int] = frozenset(), alone: set[int] = frozenset(), pairs: set[tuple[int, int]] = frozenset(), owners: tuple[int, ...] = (), nan: bool = False):  # fmt: skip
    """What each rank would tell: who saw the first sum wrong, who is wrong alone, which pairs are."""
    bad = {"says": "1 of 20 numbers, such as 2 in place of 1", "owners": list(owners), "nan": nan}
    found = {
        rank: {"first": bad if rank in wrong_first else {}, "alone": bad if rank in alone else {}, "pairs": {}}
        for rank in range(size)
    }
    for one, other in group_proof.neighbour_pairs(size):
        for rank, peer in ((one, other), (other, one)):
            found[rank]["pairs"][str(peer)] = bad if (one, other) in pairs else {}
    return found


@pytest.mark.parametrize(
    ("found", "words", "blamed"),
    [
        (ranks(4, set(range(4)), {2}, {(1, 2), (2, 3)}), "rank 2 (host-2, pid 2) changes data, and does so alone too", (2,)),
        (ranks(4, set(range(4)), {2}, nan=True), "rank 2 (host-2, pid 2) sends NaN", (2,)),
        (ranks(4, set(range(4)), set(), {(1, 2), (2, 3)}), "rank 2 (host-2, pid 2) changes data, in each of its pairs, while the other pairs are right", (2,)),
        (ranks(4, set(range(4)), set(), {(1, 2)}), "data changes between rank 1 (host-1, pid 1) and rank 2 (host-2, pid 2)", (1, 2)),
        (ranks(4, {0, 3}, owners=(1,)), "rank 1 (host-1, pid 1) changes data, as what it sent arrives wrong", (1,)),
        (ranks(2, {0, 1}, set(), {(0, 1)}, owners=(1,)), "rank 1 (host-1, pid 1) changes data, as what it sent arrives wrong again", (1,)),
        (ranks(4, {3}), "alone and in pairs every rank was right, so that it comes and goes", (3,)),
    ],
)  # fmt: skip
def test_b06_who_is_to_blame(found, words, blamed):
    fault = group_proof.diagnose_ranks(len(found), found, NAMES)
    assert words in fault.says and fault.ranks == blamed and fault.code == "RUN022" and fault.fix
    assert fault.says.startswith(f"the first sum over {len(found)} ranks is wrong: ")


def test_a_rank_that_does_not_come_through_the_retest():
    found = ranks(4, {0})
    del found[1], found[3]
    assert "ranks 1, 3 did not come through the retest" in group_proof.diagnose_ranks(4, found, NAMES).says
