"""Answers as they come: twice, late, out of order, replayed, older, newer, hostile (G02, G09 to G11, E33, G18)."""

from __future__ import annotations

import json
import random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.every import every
from tests.fleet.worlds import machine
from tests.sampling import count_draws

from gpuready.fleet import areas
from gpuready.fleet.answer_collector import AnswerCollector
from gpuready.fleet.journal import AnswerJournal
from gpuready.fleet.node_report import parse_node_report
from gpuready.model.fleet import ANSWERED, DEAD, SLOW, FleetNode, NodeAnswer

FACTS = machine()
NODES = [FleetNode(f"n{at}") for at in range(6)]


def body(name: str, verdict: str = "clear", **more) -> str:
    return areas.format_node_answer(name, FACTS, verdict, run="run", at=1000.0, **more)


def reported(**changes) -> str:
    return json.dumps(json.loads(body("n0")) | changes)


def gathered(answers, nodes=NODES, **more) -> AnswerCollector:
    gather = AnswerCollector(nodes, "run", clock=lambda: 1000.0, **more)
    for answer in answers:
        gather.add_answer(answer)
    return gather


def summary(gather: AnswerCollector) -> object:
    states = {name: gather.node_state(name) for name in gather.nodes}
    kept = {name: record.sort_precedence for name, record in gather.records.items()}
    return (
        states,
        kept,
        gather.conflicting_verdicts(),
        gather.find_collisions(),
        gather.skews,
        gather.measured_tries,
        gather.details,
    )


ANSWERS = [
    NodeAnswer("n0", ANSWERED, body("n0")),
    NodeAnswer("n1", SLOW, why="no answer in 10 s"),
    NodeAnswer("n1", ANSWERED, body("n1")),  # late
    NodeAnswer("n2", DEAD, why="no route"),
    NodeAnswer("n2", SLOW, why="no answer in 10 s"),
    NodeAnswer("n3", ANSWERED, body("n3", "clear")),
    NodeAnswer("n3", ANSWERED, body("n3", "not-ready", codes=("GPU013",), attempt=2)),
    NodeAnswer("n4", ANSWERED, body("n1")),  # another's name
    NodeAnswer("n5", ANSWERED, reported(node="n5", run="yesterday")),  # replayed from another run
    NodeAnswer("n0", ANSWERED, areas.format_node_details("n0", FACTS, ["driver"], run="run")),
    NodeAnswer("n0", ANSWERED, body("n0", figures={"gemm": 700.0}, attempt=2)),
    NodeAnswer("n9", ANSWERED, body("n9")),  # nobody asked it
]


def test_late_answers_count_and_the_worst_silence_is_told():
    gather = gathered(ANSWERS)
    assert set(gather.records) == {"n0", "n1", "n3"}
    assert gather.node_state("n2") == (DEAD, "no route")
    assert gather.node_state("n4")[0] == "garbled" and "n1" in gather.node_state("n4")[1]
    assert gather.node_state("n5") == ("garbled", "its answer belongs to another run")
    assert gather.conflicting_verdicts() == {"n3": ("clear", "not-ready")}
    assert [node.name for node in gather.list_unanswered()] == ["n2", "n4", "n5"]


@settings(max_examples=count_draws(60), deadline=None)
@given(st.lists(st.sampled_from(range(len(ANSWERS))), max_size=20), st.randoms(use_true_random=False))
def test_order_and_repetition_change_nothing(extra, dice):
    answers = [*ANSWERS, *(ANSWERS[at] for at in extra)]
    dice.shuffle(answers)
    assert summary(gathered(answers)) == summary(gathered(ANSWERS))


# -- what a node may not say (E33) -------------------------------------------------------------------------


@every(
    "hostile",
    [
        "",
        "null",
        "[]",
        "{}",
        "not json",
        '{"schema":1,"node":"n0"' + ',"x":1' * 3 + "",
        '{"schema":1,"node":"n0","at":NaN}',
        '{"schema":1,"node":"n0","at":Infinity}',
        '{"schema":1,"node":"n0","at":1e999}',
        '{"schema":1,"node":"n0","gpus":' + "9" * 5000 + "}",
        '{"schema":1,"node":"n0","gpus":true}',
        '{"schema":1,"node":"n0","x":' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"schema":1,"node":"n0","x":' + '{"a":' * 5_000 + "1" + "}" * 5_000 + "}",
        "x" * (1 << 22),
        reported(node=["n0"]),
        reported(node="n" * 300),
        reported(print="zz"),
        reported(print={"driver": [1]}),
        reported(verdict="splendid"),
        reported(codes="GPU001"),
        reported(codes=["\x1b[2J"]),
        reported(codes=["A"] * 1000),
        reported(figures={"gemm": "fast"}),
        reported(figures={"gemm": [1.0] * 5000}),
        reported(figures=[1]),
        reported(details={"driver": 3}),
        reported(ids="x" * 100_000),
        reported(schema="one"),
        reported(mem=-7),
    ],
    ids=lambda text: text[:40],
)
def test_hostile_answers_are_refused_with_a_reason(hostile):
    gather = gathered([NodeAnswer("n0", ANSWERED, hostile)])
    kind, why = gather.node_state("n0")
    assert kind == "garbled" and why and len(why) <= 300 and not gather.records


@settings(max_examples=count_draws(150), deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(
            ["schema", "node", "run", "try", "at", "kind", "gpus", "mem", "shm", "print", "ids", "verdict", "codes", "figures", "details", "error"]
        ), inner, max_size=8),
        max_leaves=20,
    )
)  # fmt: skip
def test_no_answer_breaks_the_controller(value):
    gather = gathered([NodeAnswer("n0", ANSWERED, json.dumps(value))])
    assert gather.node_state("n0")[0] in ("answered", "garbled", "refused")


def test_a_refusal_in_words_is_no_garbage():
    assert gathered([NodeAnswer("n0", ANSWERED, '{"schema":1,"node":"n0","error":"no torch"}')]).node_state("n0") == (
        "refused",
        "no torch",
    )


# -- versions ----------------------------------------------------------------------------------------------


def test_older_nodes_tell_less_and_newer_ones_more_than_we_read():
    whole = json.loads(body("n0"))["print"]
    older = parse_node_report(reported(schema=0, print={"driver": whole[:8]}))
    assert older.fingerprint_of("driver") == whole[:8] and older.fingerprint_of("python") == ""
    newer = parse_node_report(reported(schema=2, print=whole + "0" * 16, surprise={"deep": [1]}))
    assert newer.prints == whole
    assert gathered([NodeAnswer("n0", ANSWERED, reported(schema=2))]).newer_nodes == {"n0"}


# -- names -------------------------------------------------------------------------------------------------


def test_aliases_are_no_conflict_and_one_name_for_two_is():
    nodes = [FleetNode("10.0.0.1"), FleetNode("10.0.0.2"), FleetNode("gpu7")]
    fine = [
        NodeAnswer("10.0.0.1", ANSWERED, reported(node="alpha", ids="")),
        NodeAnswer("gpu7", ANSWERED, reported(node="gpu7.example", ids="")),
    ]
    assert gathered(fine, nodes).find_collisions() == []
    twice = [*fine, NodeAnswer("10.0.0.2", ANSWERED, reported(node="alpha", ids=""))]
    assert gathered(twice, nodes).find_collisions() == [("the name alpha", ("10.0.0.1", "10.0.0.2"))]


def test_an_engine_that_dies_half_way_leaves_the_rest_complete():
    """Its part is unknown, and nothing is invented for it."""
    nodes = [FleetNode(f"n{at}") for at in range(100)]
    gather = gathered([NodeAnswer(n.name, ANSWERED, body(n.name)) for n in nodes[:60]], nodes)
    assert len(gather.records) == 60
    assert {gather.node_state(node.name) for node in nodes[60:]} == {("slow", "nothing came back")}


# -- the journal -------------------------------------------------------------------------------------------


def test_a_controller_that_died_is_resumed_and_asks_only_the_rest(tmp_path):
    nodes = [FleetNode(f"n{at}") for at in range(100)]
    journal = AnswerJournal(str(tmp_path / "run"))
    first = gathered([NodeAnswer(n.name, ANSWERED, body(n.name)) for n in nodes[:60]], nodes, journal=journal)
    first.add_answer(NodeAnswer("n60", DEAD, why="no route"))
    journal.flush_to_disk()
    with open(journal.path, "a") as file:  # the line that was being written
        file.write('{"at": 3, "node": "n6')
    again = AnswerCollector(nodes, "run", AnswerJournal(str(tmp_path / "run")))
    assert [node.name for node in again.list_unanswered()] == [f"n{at}" for at in range(60, 100)]
    assert again.node_state("n60")[0] == DEAD
    again.add_answer(NodeAnswer("n61", ANSWERED, body("n61")))
    again.journal.flush_to_disk()
    third = AnswerCollector(nodes, "run", AnswerJournal(str(tmp_path / "run")))
    assert len(third.records) == 61


def test_a_healthy_answer_is_small_whatever_the_name():
    many = FACTS.with_facts(FACTS.fact("gpu.uuid").replace(value=tuple(f"GPU-{at}" for at in range(16))))
    for name in ("n1", "gpu-node-0123.cluster.datacenter.example.org", "x" * 120):
        assert len(areas.format_node_answer(name, many, "clear", run="a" * 16, at=1763.25)) <= 512


def test_equal_nodes_have_equal_fingerprints_whatever_is_their_own():
    dice = random.Random(2)
    prints = set()
    for at in range(20):
        own = {
            "host.name": f"gpu-{at:03d}",
            "gpu.uuid": tuple(f"GPU-{dice.random()}" for _ in range(8)),
            "gpu.pcie": tuple(f"{dice.choice((1, 5))} x16" for _ in range(8)),
            "limit.nproc": 515490 + at,
            "memory.total": (2 << 40) + at * 4096,
            "env.LD_LIBRARY_PATH": f"/local/gpu-{at:03d}/lib",
            "env.CUDA_VISIBLE_DEVICES": str(at % 8),
            "env.HF_TOKEN": str(at),
            "net.interfaces": {"eth0": {"up": True, "kind": "ethernet", "addresses": [f"10.0.0.{at}"], "mtu": 9000, "speed": 1, "index": at},
                               f"veth{at}": {"up": True}},
        }  # fmt: skip
        known = machine(**own)
        prints.add(json.loads(areas.format_node_answer("n", known))["print"])
    assert len(prints) == 1
