"""Who is blamed: a node that let nobody in is not called bad, a slow one is not called clear, a shared disk is no slow node."""

from __future__ import annotations

import json
import signal
import sys
from types import SimpleNamespace

import pytest
from tests.fleet.faked import SSH
from tests.fleet.test_command import FakeService

from gpuready.fleet import outliers
from gpuready.fleet.pair_search import PairSearch
from gpuready.fleet.slurm import classify_srun_failure
from gpuready.fleet.ssh_hosts import SshTransport, classify_ssh_failure
from gpuready.model.bench import BenchMeasure
from gpuready.model.fleet import PASSED, SLOW, FleetReport, NodePair
from gpuready.render.fleet import render_fleet_screen
from gpuready.render.layout import Screen
from gpuready.system.process.parallel_programs import ProgramEnd
from gpuready.workflow import fleet_node
from gpuready.workflow.fleet import figure_unit


@pytest.fixture
def service(tmp_path):
    return FakeService(tmp_path)


# -- nodes that do not answer now ------------------------------------------------------------------------------

HANGS_UP = """
mark = os.environ["SSH_LOG"] + "." + host
count = os.path.getsize(mark) if os.path.exists(mark) else 0
open(mark, "a").write("x")
if count < int(os.environ.get("HANG_UPS", "1")):
    sys.stderr.write("kex_exchange_identification: read: Connection reset by peer\\n")
    sys.exit(255)
"""


def test_hosts_whose_server_hangs_up_are_asked_again_and_are_healthy(service):
    """sshd's MaxStartups drops connections at random: 61 healthy hosts were excluded so."""
    service.bin.put("ssh", SSH.replace('os.execvp("sh"', HANGS_UP + 'os.execvp("sh"'))
    found = service.json("drift", "--hosts", "good[1-3]", "--python", sys.executable, "--retries", "1")
    assert found["states"] == {"answered": "good[1-3]"} and found["exclude"] == ""


def test_a_host_that_hangs_up_every_time_is_unknown_and_not_excluded(service):
    service.bin.put(
        "ssh",
        SSH.replace('os.execvp("sh"', 'if host == "good3":' + HANGS_UP.replace("\n", "\n    ") + '\nos.execvp("sh"'),
    )
    words = ("drift", "--hosts", "good[1-3]", "--python", sys.executable, "--retries", "0")
    found = service.json(*words)
    assert found["states"] == {"answered": "good[1-2]", "busy": "good3"}
    assert (found["verdict"], found["exit"], found["exclude"], found["blames"]) == ("undecided", 3, "", {})
    (finding,) = (one for one in found["findings"] if one["code"] == "FLT001")
    assert finding["severity"] == "warning"


@pytest.mark.parametrize(
    ("err", "kind"),
    [
        ("ssh_exchange_identification: Connection closed by remote host", "busy"),
        ("Exceeded MaxStartups", "busy"),
        ("Permission denied (publickey).", "refused"),
        ("ssh: connect to host n1 port 22: No route to host", "dead"),
        ("ssh: Could not resolve hostname n1: Temporary failure in name resolution", "dead"),
    ],
)
def test_what_ssh_says(err, kind):
    assert classify_ssh_failure(ProgramEnd("n1", 255, err, 1.0), False, "python3")[0] == kind


@pytest.mark.parametrize(
    ("ended", "begun", "again"),
    [
        (ProgramEnd("n1", 255, "Exceeded MaxStartups", 1.0), False, True),
        (ProgramEnd("n1", 255, "client_loop: send disconnect: Broken pipe", 1.0), False, True),
        (ProgramEnd("n1", 255, "ssh: connect to host n1 port 22: No route to host", 1.0), False, False),
        (ProgramEnd("n1", 255, "ssh: connect to host n1 port 22: Connection refused", 1.0), False, False),
        (ProgramEnd("n1", 255, "ssh: connect to host n1 port 22: Connection timed out", 10.0), False, False),
        (ProgramEnd("n1", None, "", 30.0, end="deadline"), False, False),
        (ProgramEnd("n1", None, "", 30.0, end="deadline"), True, False),
        (ProgramEnd("n1", 255, "Permission denied (publickey).", 1.0), False, False),
    ],
)
def test_a_host_that_used_its_deadline_is_not_asked_again(ended, begun, again):
    """--timeout holds with --retries: only what failed at once is asked again."""
    result = []
    tracker = SimpleNamespace(
        needing_gpuready=set(), has_begun=lambda name: begun, report_answer=lambda *words, **more: result.append(more)
    )
    SshTransport([], "t")._handle_ssh_end(ended, tracker, None, {})
    assert [one["for_now"] for one in result] == [again]


@pytest.mark.parametrize(
    "err",
    [
        "srun: error: Unable to allocate resources: Requested nodes are busy",
        "srun: error: Unable to create step for job 7: Job/step already completing or completed",
        "srun: error: slurm_receive_msgs: Socket timed out on send/recv operation",
    ],
)
def test_a_node_that_slurm_does_not_give_now_is_busy(err):
    assert classify_srun_failure(ProgramEnd("0", 1, err, 1.0), False)[0] == "busy"
    assert classify_srun_failure(ProgramEnd("0", None, "", 30.0, "deadline"), False)[0] == "busy"
    assert classify_srun_failure(ProgramEnd("0", None, "", 30.0, "deadline"), True)[0] == "slow"


def test_the_folder_to_resume_from_is_told_before_any_node_is_asked(service):
    service.bin.put("ssh", "#!/bin/sh\nexec sleep 60\n")
    process = service.start("drift", "--hosts", "a,b", "--timeout", "30")
    try:
        line = process.stderr.readline()
    finally:
        process.kill()
        process.communicate()
    folder = line.split("answers are kept in ")[1].partition(";")[0]
    assert f"--resume {folder}" in line and folder.startswith(str(service.cache))


def test_what_is_printed_after_an_interrupt_resumes_the_run(service, tmp_path):
    (tmp_path / "hosts").write_text("good1\nlost1\n")
    service.bin.put("ssh", "#!/bin/sh\nexec sleep 60\n")
    process = service.start("check", "--hostfile", str(tmp_path / "hosts"), "--hardware", "--timeout", "30")
    process.stderr.readline()
    process.send_signal(signal.SIGINT)
    told = process.communicate()[1]
    assert "0 of 2 nodes had answered" in told, told
    command = told.split("gpuready fleet ")[-1].split(" asks ")[0].split()
    (tmp_path / "hosts").unlink()
    service.bin.put("ssh", "#!/bin/sh\necho 'ssh: connect to host x port 22: Connection refused' >&2\nexit 255\n")
    found = service.json(*command)
    assert found["states"] == {"refused": "good1,lost1"} and found["environment"] == "no environment"


def test_every_group_of_missing_nodes_is_listed_with_its_reason():
    reasons = {f"dead: reason {n}": f"n{n:02}" for n in range(30)}
    report = FleetReport("check", "ssh", 30, states={"dead": "n[00-29]"}, reasons=reasons)
    text = render_fleet_screen(report, Screen())
    assert all(f"reason {n}" in text for n in range(30)) and "more groups" not in text


# -- figures ---------------------------------------------------------------------------------------------------


def tries(figure: str, **rows: list[float]) -> dict:
    return {figure: {(node, None): dict(enumerate(row, 1)) for node, row in rows.items()}}


@pytest.mark.parametrize("count", [2, 3])
def test_a_node_far_below_its_few_equals_is_not_clear(count):
    """-72 % of two or three nodes was called clear, since three are too few for a median."""
    rows = {f"n{at}": [100.0 + at] for at in range(count - 1)} | {"slow": [28.0]}
    peers = dict.fromkeys(rows, "all")
    first = outliers.find_outliers(tries("matmul-bf16", **rows), peers)
    assert "slow" in first.measure_again and not first.outliers
    again = {name: row * 4 for name, row in rows.items()}
    found = outliers.find_outliers(tries("matmul-bf16", **again), peers)
    assert [(one.node, one.confirmed) for one in found.outliers] == [("slow", True)]
    assert found.outliers[0].share == pytest.approx(-0.72, abs=0.02)


def test_few_nodes_that_differ_a_little_or_once_accuse_nobody():
    peers = dict.fromkeys(("a", "b", "c"), "all")
    little = outliers.find_outliers(tries("matmul-bf16", a=[100.0] * 4, b=[90.0] * 4, c=[82.0] * 4), peers)
    assert not little.outliers and not little.unclear and not little.measure_again
    once = outliers.find_outliers(tries("matmul-bf16", a=[100.0] * 4, b=[99.0] * 4, c=[40.0, 98.0, 99.0, 97.0]), peers)
    assert not once.outliers and not once.unclear


def test_less_is_better_among_few_too():
    peers = dict.fromkeys(("a", "b"), "all")
    found = outliers.find_outliers(tries("kernel-launch_latency", a=[5e-6] * 4, b=[20e-6] * 4), peers)
    assert [one.node for one in found.outliers] == ["b"]


def test_a_fleet_with_a_slow_node_that_was_not_confirmed_is_not_clear():
    one = outliers._make_outlier(("n1", None), "matmul-bf16", [28.0], 100.0, -0.72, -9.0, "all", False)
    report = FleetReport(
        "bench", "ssh", 4, verdicts={"clear": "n[0-3]"}, states={"answered": "n[0-3]"}, outliers=(one,)
    )
    assert (report.verdict, report.exit) == ("undecided", 3)
    assert (
        FleetReport("bench", "ssh", 4, verdicts={"clear": "n[0-3]"}, states={"answered": "n[0-3]"}).verdict == "clear"
    )


def test_eight_slow_disks_at_once_are_one_disk():
    rows = {f"n{at:02}": [1.0e9 * (1 + at % 3 * 0.01)] * 8 for at in range(24)}
    rows |= {f"slow{at}": [1.0e8] * 8 for at in range(8)}
    found = outliers.find_outliers(tries("disk-read", **rows), dict.fromkeys(rows, "all"))
    assert not found.outliers and not found.unclear
    assert found.shared == {"disk-read": {f"slow{at}" for at in range(8)}}
    worse = rows | {"broken": [1.0e9 / 30] * 8}
    assert [
        one.node for one in outliers.find_outliers(tries("disk-read", **worse), dict.fromkeys(worse, "all")).outliers
    ] == ["broken"]
    computing = outliers.find_outliers(tries("matmul-bf16", **rows), dict.fromkeys(rows, "all"))
    assert {one.node for one in computing.outliers} == {f"slow{at}" for at in range(8)}, "GPUs are not shared"


class Measured:
    measures = (BenchMeasure("disk-read", "measured", "cpu", 2.0e9, "B/s"),)


@pytest.mark.parametrize(
    ("kind", "name"), [("nfs4", "shared-disk-read"), ("lustre", "shared-disk-read"), ("ext4", "disk-read")]
)
def test_the_disk_of_a_network_file_system_is_no_figure_of_a_node(kind, name):
    assert list(fleet_node.bench_figures(Measured, kind)) == [name]
    rows = {f"n{at}": [1e9] * 8 for at in range(8)} | {"slow": [1e8] * 8}
    found = outliers.find_outliers(tries(name, **rows), dict.fromkeys(rows, "all"))
    assert [one.node for one in found.outliers] == ([] if kind != "ext4" else ["slow"])
    grave = rows | {"slow": [1e9 / 30] * 8}
    found = outliers.find_outliers(tries(name, **grave), dict.fromkeys(grave, "all"))
    assert [one.node for one in found.outliers] == ["slow"], "thirty times is told of any disk"
    once = outliers.find_outliers(
        tries(name, **{node: row[:1] for node, row in grave.items()}), dict.fromkeys(grave, "all")
    )
    assert once.measure_again == {"slow"} and not once.outliers


def test_figures_have_units():
    one = outliers._make_outlier(("n1", 3), "matmul-bf16", [2.8e14], 7.1e14, -0.61, -9.0, "all", True)
    figures = {
        "matmul-bf16": {"n1": (2.8e14,), "n2": (7.1e14,)},
        "kernel-launch_latency": {"n1": (5e-6,), "n2": (6e-6,)},
    }
    units = {figure: figure_unit(figure) for figure in figures}
    text = render_fleet_screen(FleetReport("bench", "ssh", 2, outliers=(one,), figures=figures, units=units), Screen())
    assert "matmul-bf16 280 TFLOP/s, -61% against the usual 710 TFLOP/s" in text, text
    assert "kernel-launch_latency: median 6.00 µs, 5.00 µs to 6.00 µs, 2 nodes" in text
    assert figure_unit("shared-disk-read") == "B/s" and figure_unit("of-a-newer-gpuready") == ""


# -- bisect ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [3, 4, 6, 8])
def test_a_slow_node_of_a_small_fleet_is_named_and_not_called_bad(count):
    names = [f"n{at}" for at in range(count)]
    search = PairSearch(names, slow_share=0.35)
    while pairs := search.next_round():
        for first, second in pairs:
            rate = 1e9 if "n1" in (first, second) else 9e9 + 1e8 * len(search.pairs)
            search.add_outcome(NodePair(first, second, search.round_number, PASSED, 1.0, rate))
    named = search.list_suspects()
    assert [(one.kind, one.names, one.confirmed) for one in named] == [("node", ("n1",), False)], named
    marked = search.mark_slow_pairs()
    assert all(pair.outcome == (SLOW if "n1" in (pair.first, pair.second) else PASSED) for pair in marked)
    assert json.dumps([one.to_json() for one in named])
