"""A node's own side: what it looks at beyond a check, one rank for each GPU, and figures that stay with their GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from benchmarks.simulated_fleet import SimulatedTransport
from tests.fleet.worlds import judge_gathered, machine, names
from tests.running import QUIET, SRC

from gpuready import workflow
from gpuready.fleet import areas, drift, node_payload, pair_rounds
from gpuready.fleet.answer_collector import AnswerCollector
from gpuready.fleet.journal import AnswerJournal
from gpuready.fleet.pair_rounds import PAIR_SECONDS, PairRounds
from gpuready.fleet.pair_search import PairSearch
from gpuready.model.bench import BenchMeasure
from gpuready.model.fleet import ANSWERED, FleetNode, NodeAnswer
from gpuready.probe import fleet_facts
from gpuready.system.host_access import RunResult
from gpuready.workflow import fleet as fleet_workflow
from gpuready.workflow import fleet_node


@pytest.fixture
def here(monkeypatch, tmp_path):
    """A node whose packages are recorded, and whose station is read from files that a test may change."""
    monkeypatch.setattr(workflow, "probe_machine", lambda **_: machine())
    for name, text in {"CLOCK_SOURCE_FILE": "tsc", "GOVERNOR_FILE": "performance", "DMI_FOLDER": "2.1"}.items():
        path = tmp_path / name
        path.mkdir() if name == "DMI_FOLDER" else path.write_text(f"{text}\n")
        monkeypatch.setattr(fleet_facts, name, str(path))
    (tmp_path / "DMI_FOLDER" / "bios_version").write_text("2.1\n")
    monkeypatch.setattr(fleet_facts, "MOUNTS_FILE", str(tmp_path / "mounts"))
    (tmp_path / "mounts").write_text("nas:/data /data nfs4 rw,noatime 0 0\nproc /proc proc rw 0 0\n")
    return tmp_path


def answer(name: str, **more) -> NodeAnswer:
    request = {"schema": 1, "do": "fingerprint", "token": "run", "options": {}, **more}
    return NodeAnswer(name, ANSWERED, fleet_node.answer_node_request(request, name))


@pytest.mark.parametrize(
    ("file", "text", "area", "key", "value"),
    [
        ("CLOCK_SOURCE_FILE", "hpet\n", "time", "clock.source", "hpet"),
        ("GOVERNOR_FILE", "powersave\n", "clocks", "cpu.governor", "powersave"),
        ("DMI_FOLDER/bios_version", "1.9\n", "firmware", "firmware.bios", "1.9"),
        ("mounts", "nas:/data /data nfs4 ro 0 0\n", "mounts", "mount.table./data.read_only", "yes"),
        ("mounts", "old:/data /data nfs4 rw 0 0\n", "mounts", "mount.table./data.source", "old:/data"),
        ("mounts", "", "mounts", "mount.table./data.type", "none"),
    ],
)
def test_bios_governor_mounts_and_clock_are_compared_between_nodes(here, file, text, area, key, value):
    gather = AnswerCollector([FleetNode(name) for name in names(4)], "run")
    for name in names(3):
        gather.add_answer(answer(name))
    gather.add_answer(answer(names(1)[0], do="details", keys=[area]))
    (here / file).write_text(text)
    gather.add_answer(answer("n00004"))
    gather.add_answer(answer("n00004", do="details", keys=[area]))
    rows = [(d.area, d.key, g.value, g.nodes) for d in judge_gathered(gather, None).drift for g in d.groups]
    assert (area, key, value, "n00004") in rows and {row[0] for row in rows} == {area}
    assert len(answer("n00004").body) <= areas.MAX_ANSWER_BYTES


def test_a_node_that_cannot_see_its_mounts_does_not_differ(here):
    gather = AnswerCollector([FleetNode(name) for name in names(3)], "run")
    for name in names(2):
        gather.add_answer(answer(name))
        gather.add_answer(answer(name, do="details", keys=["mounts"]))
    (here / "mounts").unlink()
    (here / "mounts").mkdir()  # it is there, and cannot be read
    gather.add_answer(answer("n00003"))
    gather.add_answer(answer("n00003", do="details", keys=["mounts"]))
    assert not judge_gathered(gather, None).drift


def test_a_recording_that_tells_less_than_a_node_accuses_nobody(here):
    """`gpuready probe` looks at one machine, and not at its firmware and mounts."""
    gather = AnswerCollector([FleetNode("n1")], "run")
    gather.add_answer(answer("n1"))
    gather.add_answer(answer("n1", do="details", keys=list(areas.AREAS)))
    rows = {area: areas.reference_values(area, machine()) for area in areas.AREAS}
    differ = drift.find_area_differences(gather.records, {"n1": "all"}, rows)
    assert {one.area for one in differ} >= {"firmware", "mounts"}
    assert drift.explain_differences(differ, gather.details) == []


@pytest.mark.parametrize(
    ("name", "told"), [("NVIDIA H200", {"gpu.count"}), ("NVIDIA H100 80GB HBM3", {"gpu.count", "gpu.name"})]
)
def test_a_node_without_one_of_its_gpus_differs_in_their_number_alone(name, told):
    eight = {"gpu.count": 8, "gpu.name": ["NVIDIA H200"] * 8, "gpu.numa": [0, 0, 0, 0, 1, 1, 1, 1]}
    seven = {"gpu.count": 7, "gpu.name": [name] * 7, "gpu.numa": [0, 0, 0, 1, 1, 1, 1]}
    details = {"n1": {"gpus": eight}, "n3": {"gpus": seven}}
    differ = [drift.AreaDifference("gpus", "all", {"a": ["n1", "n2"], "b": ["n3"]}, "a", None)]
    assert {one.key for one in drift.explain_differences(differ, details)} == told


# -- bench ---------------------------------------------------------------------------------------------------


class Found:
    def __init__(self, *measures: BenchMeasure):
        self.measures = measures


def test_the_figure_of_a_gpu_stays_at_its_place_where_another_failed():
    found = Found(
        BenchMeasure("matmul-bf16", "as-expected", "gpu 0", 7.0e14),
        BenchMeasure("matmul-bf16", "crashed", "gpu 1"),
        BenchMeasure("matmul-bf16", "as-expected", "gpu 2", 7.1234567e14),
        BenchMeasure("matmul-fp8", "unsupported", "gpu 0"),
        BenchMeasure("kernel-launch", "measured", "gpu 0", 4e-6),
    )
    result = fleet_node.bench_figures(found)  # type: ignore[arg-type]
    assert result == {"matmul-bf16": [7.0e14, 0.0, 7.123e14], "kernel-launch_latency": [4e-6]}


# -- pairs ---------------------------------------------------------------------------------------------------


class Paired(SimulatedTransport):
    """Nodes whose pairs end as ``bad`` says, by the code that puts the ranks of a real node together."""

    def __init__(self, count: int, gpus: int, bad: dict[str, set[int]]):
        super().__init__(names(count), machine())
        self.gpus, self.bad, self.requests = gpus, bad, []

    def _answer_body(self, name, request):
        part = request["pairs"][name]
        self.requests.append((name, part))
        broken = self.bad.get(name, set()) | self.bad.get(part["peer"], set())
        ranks = [
            {"outcome": "failed", "why": "the numbers are wrong"}
            if at in broken
            else {"outcome": "passed", "rate": 1e9, "seconds": 0.1}
            for at in range(part["gpus"])
        ]
        return json.dumps({"schema": 1, "node": name, "do": "pair", "pair": fleet_node._combine_ranks(ranks)})


def bisected(transport: Paired) -> PairSearch:
    nodes = [FleetNode(name, gpus=transport.gpus) for name in transport.names]
    rounds = PairRounds(transport, nodes, "t", backend="nccl")
    search = PairSearch(transport.names)
    while pairs := search.next_round():
        for pair in rounds(search.round_number, pairs):
            search.add_outcome(pair)
    return search


def test_every_gpu_has_a_rank_and_the_bad_one_is_named():
    transport = Paired(20, 8, {"n00005": {6}, "n00011": set(range(8))})
    found = {(one.kind, one.names, one.gpu) for one in bisected(transport).list_suspects() if one.confirmed}
    assert found == {("gpu", ("n00005",), 6), ("node", ("n00011",), None)}
    assert {part["gpus"] for _, part in transport.requests} == {8}


def test_a_node_with_one_gpu_that_is_bad_is_a_node():
    found = bisected(Paired(12, 1, {"n00003": {0}})).list_suspects()
    assert [(one.kind, one.names) for one in found] == [("node", ("n00003",))]


class SlowStarts(Paired):
    """Node 3 imports torch only after most of the time of its first try is over, and its pairs fail by time-out."""

    def _answer_body(self, name, request):
        part = request["pairs"][name]
        self.requests.append((name, part))
        late = "n00003" in (name, part["peer"]) and part["seconds"] <= PAIR_SECONDS
        result = {"outcome": "failed", "why": "timed out", "ready": 25.0 if name == "n00003" else 1.0, "ended": 27.0}
        return json.dumps(
            {
                "schema": 1,
                "node": name,
                "do": "pair",
                "pair": result if late else {"outcome": "passed", "rate": 1e9, "ready": 25.0},
            }
        )


def test_a_node_that_starts_slowly_is_given_more_time_and_accused_of_nothing():
    transport = SlowStarts(12, 1, {})
    assert bisected(transport).list_suspects() == []
    allowed = {part["seconds"] for name, part in transport.requests if name == "n00003"}
    assert allowed == {PAIR_SECONDS, 2 * PAIR_SECONDS}
    assert {part["seconds"] for name, part in transport.requests if name == "n00001"} <= allowed


class AlwaysLate(SlowStarts):
    """Node 3 is so busy that no time is enough."""

    def _answer_body(self, name, request):
        part = request["pairs"][name]
        body = super()._answer_body(name, {"pairs": {name: {**part, "seconds": 0.0}}})
        return body.replace("25.0", str(part["seconds"] - 5)).replace("27.0", str(part["seconds"] - 3))


def test_a_node_that_is_always_late_is_shown_as_slow_and_not_called_bad():
    search = bisected(AlwaysLate(12, 1, {}))
    assert {pair.outcome for pair in search.pairs if "n00003" in (pair.first, pair.second)} == {"slow"}
    assert [(one.names, one.confirmed) for one in search.list_suspects()] == [(("n00003",), False)]


def ended(ready: float, ended: float) -> dict[str, float]:
    return {"ready": ready, "ended": ended}


@pytest.mark.parametrize(
    "results, arrived, limit, lacked",
    [
        ([ended(1, 27), ended(25, 27)], [100, 100], 30.0, True),
        ([ended(1, 27), ended(11, 27)], [100, 100], 30.0, False),
        ([ended(1, 57), ended(30, 57)], [100, 100], 60.0, True),  # so slow a start needs as long to meet
        ([ended(1, 27), ended(2, 27)], [100, 120], 30.0, True),  # the second one was started 20 s later
        ([ended(1, 2), ended(1, 2)], [100, 100], 30.0, False),  # a failure at once is one
        ([ended(1, 9), ended(6, 9)], [100, 100], 10.0, True),
        ([{}, {}], [100, 100], 30.0, False),
    ],
)
def test_only_a_pair_that_had_time_to_meet_says_anything(results, arrived, limit, lacked):
    assert pair_rounds._lacked_time(results, arrived, limit) is lacked


def test_a_rank_that_never_imported_torch_says_when_it_was_given_up():
    ran = RunResult(("python",), None, seconds=30.0, end="deadline")
    assert fleet_node._parse_pair_output(ran) == {
        "outcome": "slow",
        "why": "torch was not imported within 30 s",
        "ready": 30.0,
        "ended": 30.0,
    }
    begun = RunResult(("python",), None, "\n@ready 4.250\n", seconds=30.0, end="deadline")
    assert fleet_node._parse_pair_output(begun) == {
        "outcome": "slow",
        "why": "the pair was not done within 30 s",
        "ready": 4.25,
        "ended": 30.0,
    }


def test_pairs_on_one_host_have_ports_of_their_own_for_every_gpu():
    nodes = [FleetNode(name, gpus=8, address="127.0.0.1") for name in names(40)]
    pairs = [(nodes[at].name, nodes[at + 1].name) for at in range(0, 40, 2)]
    parts = PairRounds(Paired(2, 8, {}), nodes, "t", backend="nccl").build_pair_requests(1, pairs)
    ports = [parts[one]["port"] + gpu for one, _ in pairs for gpu in range(8)]
    assert len(ports) == len(set(ports)) == 160 and max(ports) < 65536


def test_one_rank_that_finds_its_port_taken_accuses_nobody():
    ranks = [{"outcome": "passed", "rate": 1.0}, {"outcome": "unclear", "why": "port in use"}]
    assert fleet_node._combine_ranks(ranks)["outcome"] == "unclear"


def test_a_node_runs_gpuready_for_itself_and_examines_the_environment_of_the_user(tmp_path):
    """Not that of the Python which the request was sent to, unless it is the user's."""
    (tmp_path / "role.py").write_text(
        "from gpuready.system import LiveHost\n"
        "def answer_node_request(request, node): return LiveHost().get_interpreter()['role']\n"
    )
    orders = {"program": "role", "request": {}, "mark": "@run", "home": {}}
    boot = (
        Path(node_payload.SCRIPTS, "boot.py").read_text() + f"\nrun_node_program({orders!r}, 'n1', {str(tmp_path)!r})\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", boot], capture_output=True, text=True, env={**QUIET, "PYTHONPATH": str(SRC)}
    )
    assert ran.stdout.split() == ["@run", "answer", "n1", "command"], ran.stderr


def test_a_resumed_bisect_runs_no_round_again(tmp_path):
    transport = Paired(12, 1, {"n00003": {0}})
    nodes = [FleetNode(name) for name in transport.names]

    def bisect() -> list[str]:
        run = SimpleNamespace(transport=transport, nodes=nodes, token="t", python="", notes=[], journal=AnswerJournal(str(tmp_path)),
                              task=SimpleNamespace(timeout=0.0), show_progress=lambda *_: None,
                              gather=SimpleNamespace(records={name: SimpleNamespace(gpus=1) for name in transport.names}))  # fmt: skip
        search = fleet_workflow._bisect_nodes(run)
        return [name for one in search.list_suspects() if one.confirmed for name in one.names]

    assert bisect() == ["n00003"] and transport.requests
    transport.requests.clear()
    assert bisect() == ["n00003"] and not transport.requests
