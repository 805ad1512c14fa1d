"""Whole fleets, simulated from recorded facts, through the real code: faults G01, G04 to G09 and G16."""

from __future__ import annotations

import random

import pytest
from benchmarks.fleet_outliers import run as benched
from benchmarks.simulated_fleet import SimulatedTransport
from tests.fleet.worlds import codes, judge_all, judge_gathered, machine, names

from gpuready.fleet import areas
from gpuready.fleet.answer_collector import AnswerCollector
from gpuready.model.fleet import ANSWERED, FleetNode, FleetReport, NodeAnswer
from gpuready.model.node_names import expand_node_set
from gpuready.render import fleet as render
from gpuready.render.layout import Screen

DEVIATIONS = {
    "driver": {"driver.version": "550.54.15"},
    "torch": {"torch.version": "2.7.1+cu126"},
    "cuda": {"nccl.version": "2.21.5"},
    "kernels": {"extension.linked": {"flash-attn": {"cudart": "12", "torch": True, "abi": "old"}}},
    "packages": {"package.transformers": "4.1.0"},
    "variables": {"env.NCCL_P2P_DISABLE": "1"},
    "kernel": {"os.release": "5.15.0-old"},
    "firmware": {"firmware.bios": "1.0"},
    "gpus": {"gpu.ecc": ("off",) * 8},
    "topology": {"gpu.nvlink": (18,) * 7 + (17,)},
    "nics": {"net.peermem": True},
    "mounts": {"disk.kind": "nfs4"},
    "limits": {"limit.memlock": 65536},
    "clocks": {"gpu.power_limit": (500,)},
    "time": {"clock.zone": "Europe/Berlin"},
    "python": {"python.version": "3.11.1"},
}


def test_a_healthy_fleet_is_clear_and_small():
    transport = SimulatedTransport(names(200), machine())
    report = judge_all(transport)
    assert report.verdict == "clear" and report.exit == 0 and not report.findings and not report.drift
    assert transport.asked_count == 200, "nobody was asked for details"
    assert len(transport._answer_body("n00001", {"token": "a" * 16})) <= areas.MAX_ANSWER_BYTES


def test_g01_dead_and_hung_nodes_are_named_apart_and_the_rest_is_complete():
    every = names(600)
    report = judge_all(SimulatedTransport(every, machine(), dead=every[:10], hung=every[500:510]))
    assert expand_node_set(report.states["dead"]) == tuple(every[:10])
    assert expand_node_set(report.states["slow"]) == tuple(every[500:510])
    assert len(expand_node_set(report.states["answered"])) == 580
    assert codes(report) == ["FLT001"] and report.exit == 1
    assert set(expand_node_set(report.exclude)) == {*every[:10], *every[500:510]}


@pytest.mark.parametrize("area", sorted(DEVIATIONS))
def test_g04_drift_in_any_area_is_found_on_exactly_the_nodes_that_have_it(area):
    every = names(80)
    deviating = random.Random(area).sample(every, 3)
    report = judge_all(SimulatedTransport(every, machine(), dict.fromkeys(deviating, DEVIATIONS[area])))
    found = {name for drift in report.drift for group in drift.groups for name in expand_node_set(group.nodes)}
    assert found == set(deviating)
    assert {drift.area for drift in report.drift} == {area} and not any(d.split for d in report.drift)
    assert report.findings


def test_a_fact_that_differs_on_nearly_every_node_blames_no_node():
    every = names(40)
    own = {name: {"os.release": f"6.1.{number}"} for number, name in enumerate(every)}
    report = judge_all(SimulatedTransport(every, machine(), own))
    (drift,) = report.drift
    assert drift.split and drift.area == "kernel" and "different values" in drift.groups[0].value
    assert not report.exclude and not report.blames


def test_the_sentence_of_the_drift():
    every = names(1024)
    deviating = [every[16], every[411], every[997]]
    report = judge_all(
        SimulatedTransport(
            every, machine(**{"driver.version": "580.95.05"}), dict.fromkeys(deviating, DEVIATIONS["driver"])
        )
    )
    said = "driver.version 550.54.15 instead of 580.95.05: 3 of 1,024 nodes differ: n[00017,00412,00998]"
    assert said in report.findings[0].says
    assert "n[00017,00412,00998]" in render.render_fleet_screen(report, Screen(80))


@pytest.mark.parametrize("share", [0.5, 0.45, 0.3])
def test_g05_an_upgrade_half_way_is_a_split_and_nobody_is_broken(share):
    every = names(120)
    report = judge_all(
        SimulatedTransport(every, machine(), dict.fromkeys(every[: int(120 * share)], DEVIATIONS["driver"]))
    )
    assert codes(report) == ["FLT006"] and report.verdict == "clear" and report.exclude == ""
    assert [drift.split for drift in report.drift] == [True]


def test_deviating_nodes_beside_a_split_are_still_found():
    every = names(400)
    deviating = dict.fromkeys(every[:200], DEVIATIONS["driver"]) | {every[7]: {"driver.version": "1.0"}}
    report = judge_all(SimulatedTransport(every, machine(), deviating))
    assert {"FLT002", "FLT006"} <= set(codes(report)) and report.exclude == every[7]


def test_g06_kinds_of_nodes_are_compared_among_themselves():
    every = names(300)
    a100 = {"gpu.name": ("NVIDIA A100-SXM4-80GB",) * 8, "gpu.nvlink": (12,) * 8}
    head = {"gpu.count": 0, "gpu.name": (), "gpu.uuid": (), "gpu.nvlink": (), "gpu.ecc": (), "gpu.pci_count": 0}
    dice = random.Random(3)
    slow = {name: 300.0 if at < 100 else 700.0 for at, name in enumerate(every)}
    figures = lambda name, attempt: {"gemm_bf16": slow[name] * dice.gauss(1, 0.01)}  # noqa: E731
    deviating = dict.fromkeys(every[:100], a100) | dict.fromkeys(every[280:], head)
    report = judge_all(SimulatedTransport(every, machine(), deviating, figures=figures), "bench")
    assert report.verdict == "clear" and not report.outliers and not report.drift
    assert len(report.peers) == 3


def test_a_node_that_lost_its_gpus_is_no_kind_of_its_own():
    every = names(64)
    lost = {"gpu.count": 0, "gpu.name": (), "gpu.uuid": (), "gpu.pci_count": 8}
    report = judge_all(SimulatedTransport(every, machine(), {every[3]: lost, every[9]: {"gpu.count": 7}}))
    assert "FLT007" in codes(report)
    assert {every[3], every[9]} <= set(expand_node_set(report.exclude))


def test_g07_a_check_that_fails_on_a_third_of_the_nodes_is_itself_in_question():
    every = names(120)
    failing = dict.fromkeys(random.Random(1).sample(every, 36), ("SYS011",))
    report = judge_all(SimulatedTransport(every, machine(), codes=failing))
    assert codes(report) == ["FLT013"] and report.verdict == "undecided" and report.exclude == ""
    few = judge_all(SimulatedTransport(every, machine(), codes=dict.fromkeys(every[:5], ("SYS011",))))
    assert codes(few) == ["FLT015"] and few.exclude == "n[00001-00005]"
    everywhere = judge_all(SimulatedTransport(every[:50], machine(), codes=dict.fromkeys(every, ("PKG002",))))
    assert codes(everywhere) == ["FLT015"] and everywhere.verdict == "not-ready" and everywhere.exclude == ""


def test_a_check_that_fails_where_the_driver_differs_is_believed():
    every = names(160)
    old = every[:60]
    report = judge_all(
        SimulatedTransport(
            every, machine(), dict.fromkeys(old, DEVIATIONS["driver"]), codes=dict.fromkeys(old, ("DRV001",))
        )
    )
    assert "FLT013" not in codes(report) and "FLT015" in codes(report)


def test_g08_a_node_eight_percent_slower_is_found_in_noise_and_nobody_else_is():
    dice, slow = random.Random(1), "n00123"

    def figures(name: str, attempt: int) -> dict[str, float]:
        return {"gemm_bf16": 700 * dice.gauss(1, 0.03) * (0.92 if name == slow else 1)}

    report = judge_all(SimulatedTransport(names(300), machine(), figures=figures), "bench")
    assert [one.node for one in report.outliers if one.confirmed] == [slow] and report.exclude == slow
    rows = [benched(f"test {at}", scatter=0.03, slow=0.08) for at in range(3)]
    assert sum(row["found"] for row in rows) >= 2 and sum(row["false"] for row in rows) == 0


@pytest.mark.parametrize(
    "kind",
    [{"scatter": 0.02, "lasting": 0.02}, {"scatter": 0.001, "lasting": 0.03}, {"scatter": 0.02, "tails": True}],
    ids=["half of it lasts", "all of it lasts", "heavy tails"],
)
def test_g08_whatever_figures_scatter_like_nobody_is_accused_for_it(kind):
    assert sum(benched(f"test {at}", nodes=400, **kind)["false"] for at in range(6)) == 0


def test_the_slow_gpu_of_a_node_is_named():
    dice = random.Random(4)

    def figures(name: str, attempt: int):
        return {"gemm": [700 * dice.gauss(1, 0.01) * (0.8 if (name, at) == ("n00007", 5) else 1) for at in range(8)]}

    report = judge_all(SimulatedTransport(names(40), machine(), figures=figures), "bench")
    assert [(one.node, one.gpu) for one in report.outliers] == [("n00007", 5)] and codes(report) == ["FLT011"]


def test_g09_two_nodes_with_one_gpu_are_a_conflict():
    every = names(30)
    shared = {"gpu.uuid": (*(f"GPU-own-{at}" for at in range(7)), "GPU-n00001-0")}
    report = judge_all(SimulatedTransport(every, machine(), {every[4]: shared}))
    assert codes(report) == ["FLT012"] and set(expand_node_set(report.exclude)) == {every[0], every[4]}


def test_a_clock_that_is_off_and_shared_memory_that_is_small():
    import time

    every = names(40)
    transport = SimulatedTransport(every, machine(), {every[5]: {"system.shm": 64 << 20}})
    gather = AnswerCollector(transport.list_nodes(), "run")
    for name in every:
        late = 47 if name == every[8] else 0
        body = areas.format_node_answer(name, transport.facts_of_node(name), "clear", run="run", at=time.time() + late)
        gather.add_answer(NodeAnswer(name, ANSWERED, body, seconds=0.1))
    report = judge_gathered(gather, transport)
    assert set(codes(report)) == {"FLT009", "FLT010"} and report.exclude == every[5]
    assert "n00009 46 s ahead" in next(f.says for f in report.findings if f.code == "FLT009")


def test_g16_a_node_that_changes_its_mind_is_listed_and_the_worse_counts():
    every = names(240)
    transport = SimulatedTransport(every, machine())
    gather = AnswerCollector(transport.list_nodes(), "run")
    transport.ask_nodes(gather.list_unanswered(), {"do": "check", "token": "run"}, 1, gather.add_answer)
    transport.codes = {every[6]: ("GPU013",)}
    transport.ask_nodes(transport.list_nodes(), {"do": "check", "token": "run", "try": 2}, 1, gather.add_answer)
    assert list(gather.conflicting_verdicts()) == [every[6]] and 1 - len(gather.conflicting_verdicts()) / 240 >= 0.995
    report = judge_gathered(gather, transport)
    assert {"FLT014", "FLT015"} == set(codes(report)) and report.verdicts["not-ready"] == every[6]


def test_a_reference_decides_instead_of_the_majority():
    every = names(20)
    reference = machine(**{"driver.version": "580.95.05"})
    deviating = dict.fromkeys(every[1:], DEVIATIONS["driver"]) | {every[0]: {"driver.version": "580.95.05"}}
    report = judge_all(SimulatedTransport(every, machine(), deviating), reference=reference)
    (drift,) = report.drift
    assert (drift.want, drift.against, drift.groups[0].count, drift.split) == ("580.95.05", "reference", 19, False)
    assert report.exclude == "", "a list with nearly all of the fleet helps nobody"


def test_what_nobody_could_see_is_not_different():
    transport = SimulatedTransport(names(20), machine())
    unreadable = transport.facts_of_node("n00003")
    gather = AnswerCollector([FleetNode(name) for name in names(20)], "run")
    for name in names(20):
        known = transport.facts_of_node(name)
        if name == "n00003":
            known = unreadable.with_facts(unreadable.fact("gpu.ecc").replace(value=None, gap="no permission"))
        gather.add_answer(NodeAnswer(name, ANSWERED, areas.format_node_answer(name, known, run="run")))
        gather.add_answer(NodeAnswer(name, ANSWERED, areas.format_node_details(name, known, ["gpus"], run="run")))
    assert judge_gathered(gather, transport).drift == ()


def test_the_report_travels_as_json():
    import json

    every = names(50)
    report = judge_all(SimulatedTransport(every, machine(), {every[3]: DEVIATIONS["driver"]}, dead=every[:2]))
    document = json.loads(json.dumps(report.fields()))
    assert FleetReport.from_json(document).to_json() == report.to_json()
    assert document["verdict"] == "not-ready" and document["states"]["dead"] == "n[00001-00002]"


def test_nothing_answers_and_that_is_not_clear():
    every = names(3)
    report = judge_all(SimulatedTransport(every, machine(), dead=every))
    assert report.verdict == "not-ready" and codes(report) == ["FLT001"]
