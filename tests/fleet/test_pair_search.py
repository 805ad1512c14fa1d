"""The search for the bad one (G15), simulated: the schedule and the inference are the real ones."""

from __future__ import annotations

import pytest
from benchmarks.fleet_search import run

from gpuready.fleet.journal import AnswerJournal
from gpuready.fleet.pair_search import PairSearch, mark_slow_pairs
from gpuready.model.fleet import FAILED, PASSED, SLOW, NodePair


def totals(starts: range, **options) -> dict[str, int]:
    rows = [run(start, **options) for start in starts]
    assert all(row["rounds"] <= 8 for row in rows)
    return {key: sum(row[key] for row in rows) for key in rows[0]}


@pytest.mark.parametrize(("nodes", "bad"), [(1000, 1), (400, 20), (200, 50), (9, 2), (64, 16)])
def test_three_rounds_are_exact_for_faults_that_always_show(nodes, bad):
    total = totals(range(3), nodes=nodes, bad=bad, after=3 if nodes > 9 else 0)
    assert total["found"] == total["bad"] and total["false_nodes"] == total["false_links"] == 0


def test_faults_that_show_now_and_then_are_confirmed_and_nobody_else_is_accused():
    total = totals(range(5), nodes=200, bad=4, shows=0.7)
    assert total["found"] >= 0.9 * total["bad"] and total["false_nodes"] == 0


def test_faults_that_show_less_often_accuse_nobody_else():
    total = totals(range(4), nodes=200, bad=4, shows=0.4)
    assert total["false_nodes"] == total["false_links"] == 0


@pytest.mark.parametrize("nodes", [8, 16, 200])
def test_no_healthy_node_of_a_busy_fleet_is_accused_and_the_bad_one_is_found(nodes):
    """Two in five pairs end by their time limit, whoever is in them."""
    total = totals(range(20), nodes=nodes, bad=1, late=0.4)
    assert total["false_nodes"] == total["false_links"] == 0 and total["found"] >= 0.8 * total["bad"]


def test_links_are_links():
    total = totals(range(4), nodes=300, bad=1, links=2)
    assert total["found_links"] == 8 and total["found"] == 4 and total["false_nodes"] == total["false_links"] == 0
    few = totals(range(8), nodes=8, links=1)
    assert few["found_links"] == 8 and few["false_nodes"] == 0


@pytest.mark.parametrize("count", [2, 3, 4, 5, 7, 8, 9, 10, 33])
def test_pairs_of_a_round_are_disjoint_and_a_healthy_fleet_is_soon_done(count):
    search = PairSearch([f"n{at}" for at in range(count)])
    met = set()
    while pairs := search.next_round():
        flat = [name for pair in pairs for name in pair]
        assert len(flat) == len(set(flat)) and len(pairs) == count // 2
        met |= {frozenset(pair) for pair in pairs}
        for a, b in pairs:
            search.add_outcome(NodePair(a, b, search.round_number, PASSED))
    assert search.list_suspects() == [] and search.round_number <= (7 if count <= 8 else 3)
    if count <= 8:
        assert len(met) == count * (count - 1) // 2, "everybody met everybody"


def test_two_nodes_alone_cannot_tell_who_it_is_and_nobody_is_accused():
    search = PairSearch(["a", "b"])
    while pairs := search.next_round():
        search.add_outcome(NodePair(*pairs[0], search.round_number, FAILED))
    (link,) = search.list_suspects()
    assert (link.kind, link.confirmed, search.round_number) == ("link", False, 2)
    assert link.evidence == ("the pair failed 2 of 2 times: no pair passed, so it may be a fault of all nodes",)


def test_where_no_pair_passes_nobody_is_confirmed():
    found = searched([f"n{at}" for at in range(24)], lambda a, b: ())
    assert found.list_suspects() and not any(one.confirmed for one in found.list_suspects())
    assert found.round_number == 4


def test_a_pair_that_failed_once_and_then_passed_accuses_nobody():
    failed = []

    def outcome(a, b):
        if failed or "n3" not in (a, b):
            return None
        return failed.append((a, b)) or ()

    found = searched([f"n{at}" for at in range(24)], outcome)
    assert found.list_suspects() == [] and sum(set(failed[0]) == {one.first, one.second} for one in found.pairs) == 2


def test_a_node_that_fails_with_two_good_nodes_after_its_first_failure_is_bad():
    found = searched([f"n{at}" for at in range(24)], lambda a, b: () if "n3" in (a, b) else None)
    (bad,) = found.list_suspects()
    assert (bad.kind, bad.names, bad.failed, bad.confirmed) == ("node", ("n3",), 3, True)
    assert bad.evidence == ("failed 3 of 3 pairs with good nodes",)


def test_a_search_goes_on_from_the_pairs_of_a_journal(tmp_path):
    journal, search = AnswerJournal(str(tmp_path)), PairSearch([f"n{at}" for at in range(12)])
    for a, b in search.next_round():
        pair = NodePair(a, b, 1, FAILED if "n3" in (a, b) else PASSED, why="timed out", gpus=(1,))
        search.add_outcome(pair)
        journal.add_pair(pair)
    journal.flush_to_disk()
    resumed = PairSearch(search.names)
    for pair in AnswerJournal(str(tmp_path)).read_pairs():
        resumed.add_outcome(pair)
    assert resumed.pairs == search.pairs and resumed.round_number == 1
    assert list(journal.read_entries()) == []
    assert {frozenset(pair) for pair in resumed.next_round()}.isdisjoint(map(frozenset, first_pairs(search)))


def first_pairs(search: PairSearch) -> list[tuple[str, str]]:
    return [(pair.first, pair.second) for pair in search.pairs]


def test_nodes_that_are_lost_take_part_no_longer_and_a_pair_counts_once():
    search = PairSearch([f"n{at}" for at in range(12)])
    search.next_round()
    search.drop_node("n3")
    assert all("n3" not in pair for pair in search.next_round())
    for _ in range(3):
        search.add_outcome(NodePair("n1", "n2", 2, FAILED))
        search.add_outcome(NodePair("n2", "n1", 2, FAILED))
    assert len(search.pairs) == 1


def searched(names, outcome) -> PairSearch:
    """A search whose pairs end as ``outcome`` says: with the GPUs that failed, or nothing."""
    search = PairSearch(names)
    while pairs := search.next_round():
        for a, b in pairs:
            gpus = outcome(a, b)
            search.add_outcome(NodePair(a, b, search.round_number, PASSED if gpus is None else FAILED, gpus=gpus or ()))
    return search


def test_a_bad_node_and_a_bad_link_among_eight_are_both_named():
    """The members of the link failed with the bad node too: that is explained, and the pair is tried again."""

    def outcome(a, b):
        return () if "n7" in (a, b) or {a, b} == {"n2", "n5"} else None

    found = searched([f"n{at}" for at in range(8)], outcome).list_suspects()
    assert {(one.kind, one.names) for one in found if one.confirmed} == {("node", ("n7",)), ("link", ("n2", "n5"))}
    assert len(found) == 2


def test_a_node_that_failed_with_three_good_ones_is_not_paired_again():
    """Each of its pairs would take the whole time limit."""
    tried = []

    def outcome(a, b):
        tried.append((a, b))
        return () if "n7" in (a, b) else None

    found = searched([f"n{at}" for at in range(8)], outcome).list_suspects()
    assert [(one.kind, one.names, one.confirmed) for one in found] == [("node", ("n7",), True)]
    assert sum("n7" in pair for pair in tried) == 3
    assert len({frozenset(pair) for pair in tried if "n7" not in pair}) == 21


@pytest.mark.parametrize("count", [2, 5, 8])
def test_in_a_fleet_of_eight_or_fewer_all_pairs_are_tried(count):
    tried = set()
    searched([f"n{at}" for at in range(count)], lambda a, b: tried.add(frozenset((a, b))))
    assert len(tried) == count * (count - 1) // 2


@pytest.mark.parametrize("count", [6, 24])
def test_the_bad_gpus_of_a_node_are_named_and_a_bad_node_is_a_node(count):
    """n2 has two bad GPUs, n4 is bad as a whole; each GPU meets its like."""

    def outcome(a, b):
        if "n4" in (a, b):
            return ()
        return (1, 3) if "n2" in (a, b) else None

    found = searched([f"n{at}" for at in range(count)], outcome).list_suspects()
    assert {(one.kind, one.names, one.gpu) for one in found if one.confirmed} == {
        ("gpu", ("n2",), 1),
        ("gpu", ("n2",), 3),
        ("node", ("n4",), None),
    }


def test_a_port_in_a_name_is_no_gpu():
    found = searched([f"h{at}:2222" for at in range(12)], lambda a, b: () if "h3:2222" in (a, b) else None)
    assert [(one.kind, one.names) for one in found.list_suspects()] == [("node", ("h3:2222",))]


def test_one_rail_between_two_nodes_is_a_link_and_says_which():
    found = searched([f"n{at}" for at in range(8)], lambda a, b: (5,) if {a, b} == {"n1", "n6"} else None)
    (link,) = found.list_suspects()
    assert (link.kind, link.names) == ("link", ("n1", "n6")) and "only GPU 5 of each" in link.evidence[0]


def test_the_slow_gpu_of_a_pair_is_kept_with_it():
    pairs = [NodePair(f"a{at}", f"b{at}", 1, PASSED, rate=100.0, rates=(100.0, 100.0)) for at in range(5)]
    pairs.append(NodePair("a9", "b9", 1, PASSED, rate=20.0, rates=(99.0, 20.0)))
    assert [(one.outcome, one.gpus) for one in mark_slow_pairs(pairs)][4:] == [(PASSED, ()), (SLOW, (1,))]


def test_pairs_far_below_the_usual_rate_are_slow():
    pairs = [NodePair(f"a{at}", f"b{at}", 1, PASSED, rate=100.0 if at else 40.0) for at in range(6)]
    assert [pair.outcome for pair in mark_slow_pairs(pairs)] == [SLOW] + [PASSED] * 5
    assert mark_slow_pairs(pairs[:2]) == pairs[:2], "with so few nothing is usual"
