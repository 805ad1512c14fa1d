"""A fleet on eighty columns: grouped, node sets never cut, hostile names shown and not sent."""

from __future__ import annotations

from benchmarks.simulated_fleet import SimulatedTransport
from tests.fleet.worlds import judge_all, machine, names

from gpuready.model.fleet import Drift, FleetReport, FleetSuspect, NodeGroup
from gpuready.model.node_names import fold_node_names
from gpuready.model.report import Finding
from gpuready.render import fleet as render
from gpuready.render.layout import Screen


def test_every_line_fits_and_every_difference_is_there():
    every = names(600)
    deviating = {name: {"driver.version": "550.54.15"} for name in every[3::40]} | {every[8]: {"gpu.count": 7}}
    text = render.render_fleet_screen(
        judge_all(SimulatedTransport(every, machine(), deviating, dead=every[::30])), Screen(80)
    )
    assert all(len(line) <= 80 for line in text.splitlines())
    assert (
        "550.54.15" in text
        and "No route to host" in text
        and text.startswith("not ready: 36 of 600 nodes with problems, 564 alike ")
    )
    for name in every[3::40]:
        assert name[1:] in text


def test_a_difference_is_listed_once_and_leaves_room_for_the_others():
    drift = [Drift("driver", f"driver.fact_{at}", "2", (NodeGroup("1", f"n{at}", 1),), 16) for at in range(12)]
    told = [
        Finding(f"FLT00{at}", "warning", f"driver.fact_{at} 1 instead of 2: 1 of 16 nodes differs: n{at}")
        for at in range(2)
    ]
    report = FleetReport("check", "simulated", 16, drift=tuple(drift), findings=tuple(told), states={"answered": "n1"})
    text = render.render_fleet_screen(report, Screen(80))
    assert all(text.count(f"driver.fact_{at} 1 instead of 2") == 1 for at in range(12)), text
    assert "more difference" not in text
    report = report.replace(findings=tuple(told[:1]))
    assert "and 1 more difference: -v" in render.render_fleet_screen(report, Screen(80))


def test_a_long_set_of_nodes_says_that_there_are_more():
    many = [f"n{at}" for at in range(0, 4000, 2)]
    drift = Drift("driver", "driver.version", "2", (NodeGroup("1", fold_node_names(many), len(many)),), 4000)
    report = FleetReport(
        "drift", "simulated", 4000, drift=(drift,), exclude=fold_node_names(many), states={"answered": "n1"}
    )
    text = render.render_fleet_screen(report, Screen(80))
    assert "and more: --json has all of them" in text and "--exclude prints the list" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    assert render.render_exclude_list(report).strip() == fold_node_names(many)


def test_one_node_is_one_node():
    one = FleetReport("check", "simulated", 1, states={"answered": "n1"})
    assert "fleet of 1 node: " in render.format_fleet_line(one) and "1 node " in render.render_fleet_screen(
        one, Screen(80)
    )
    assert "fleet of 1,000 nodes: " in render.format_fleet_line(one.replace(nodes=1000))


def test_names_that_would_move_the_cursor_are_shown():
    drift = Drift("driver", "driver.version", "2", (NodeGroup("\x1b[2J1", "n\x1b[1", 1),), 4)
    report = FleetReport("drift", "simulated", 4, drift=(drift,), exclude="n\x1b1", states={"answered": "n1"})
    assert "\x1b" not in render.render_fleet_screen(report, Screen(80)) + render.render_exclude_list(report)


def test_ray_takes_labels_and_slurm_a_list():
    every = names(6)
    labels = {name: {"ray.io/node-id": f"id{at}"} for at, name in enumerate(every)}
    report = judge_all(SimulatedTransport(every, machine(), dead=every[1:3], labels=labels))
    assert render.render_exclude_list(report) == "ray.io/node-id=!in(id1,id2)\n"
    assert render.render_exclude_list(report.replace(selector={})) == "n[00002-00003]\n"
    lines = render.render_fleet_screen(report, Screen(80)).splitlines()
    assert "  Slurm: --exclude=n[00002-00003]" in lines
    assert "  Ray:   label_selector={'ray.io/node-id': '!in(id1,id2)'}" in lines
    narrow = render.render_fleet_screen(report, Screen(50))
    assert "--exclude prints the list and Ray's label selector" in " ".join(narrow.split())
    healthy = render.render_fleet_screen(judge_all(SimulatedTransport(every, machine(), labels=labels)), Screen(80))
    assert "keep jobs off" not in healthy


def test_a_bench_shows_what_nodes_reach():
    report = FleetReport(
        "bench", "ssh", 2, figures={"cpu-memory": {"a": (10.0,), "b": (12.5,)}}, verdicts={"clear": "a,b"}
    )
    assert (
        "  cpu-memory: median 12.5, 10 to 12.5, 2 nodes" in render.render_fleet_screen(report, Screen(80)).splitlines()
    )


def test_a_bad_gpu_is_named_with_its_node():
    bad = FleetSuspect("gpu", ("n7",), 5, 0, True, ("failed in 5 of 5 pairs",), 3)
    text = render.render_fleet_screen(
        FleetReport("bisect", "ssh", 8, suspects=(bad,), states={"answered": "n7"}), Screen(80)
    )
    assert "GPU 3 of n7: bad, 5 pairs failed and 0 passed" in text


def test_the_table_of_nodes_has_the_meaning_beside_each_code():
    report = FleetReport(
        "check", "ssh", 9, verdicts={"not-ready": "n[1-2]", "clear": "n[3-6]"}, codes={"DRV001": "n[1-2]", "SYS001": "n2"},
        meanings={"DRV001": "The driver is older than the torch wheel needs", "SYS001": ""},
        states={"answered": "n[1-6]", "slow": "n7", "drained": "n8", "dead": "n9"}, reasons={"dead: No route to host": "n9"},
    )  # fmt: skip
    rows = [
        "  n1      not ready          DRV001 the driver is older than the torch wheel",
        "                             needs",
        "  n2      not ready          DRV001 the driver is older than the torch wheel",
        "                             needs; SYS001",
        "  n9      no answer          dead: No route to host",
        "  n7      no answer          slow",
        "  n8      not asked          drained",
        "  n[3-6]  no problems found",
    ]
    text = render.render_fleet_screen(report, Screen(80))
    assert "\n".join(rows) in text and text.startswith("not ready: 4 of 9 nodes with problems, 4 alike ")
