"""Measuring for real: every measure that a CPU has, and scripts that crash, hang or lie."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from gpuready import system
from gpuready.catalog import bands
from gpuready.prove import bench as measuring
from gpuready.prove.bench import BenchTask
from gpuready.prove.runner import SCRIPTS_FOLDER
from gpuready.render import bench as render
from gpuready.render import json_document as written
from gpuready.render.layout import Screen
from gpuready.workflow import Refused, bench
from tests import target_environment

TINY = {
    "quick": True,
    "size": 16 << 20,
    "sizes": [1 << 16, 1 << 20],
    "turns": 3,
    "pace": {"search": 0.05, "pass": 0.02, "warm": 0.0},
}
GPU = [kind.name for kind in bands.list_measures() if kind.device == "cuda"]
HOST = [kind.name for kind in bands.list_measures() if kind.device != "cuda" and kind.group != "collective"]
RANKS = [kind.name for kind in bands.list_measures() if kind.device != "cuda" and kind.group == "collective"]
HAS_GPU = os.path.exists("/dev/nvidia0")
no_gpu = pytest.mark.skipif(HAS_GPU, reason="A GPU IS HERE: what a machine without one says is not seen")


def measure(names, folder, reported):
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("OMP_NUM_THREADS", "1")  # threads that wait spin
        return bench.measure_machine(
            python=target_environment.python(),
            only=",".join(names),
            folder=str(folder),
            show_progress=lambda *state: reported.append(state),
            options=TINY,
        )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """One whole run of a machine without GPU, with the torch of the target environment; without ranks, see below."""
    folder = tmp_path_factory.mktemp("disk")
    result: list[str] = []
    return measure([*GPU, *HOST], folder, result), folder, result


@no_gpu
def test_every_measure_of_a_cpu_is_measured(run):
    rows = {m.name: m for m in run[0].measures}
    assert set(rows) == {*GPU, *HOST}
    for name in HOST:
        one = rows[name]
        assert one.verdict in ("measured", "noisy"), one
        assert one.value > 0 and len(one.passes) == 2 and one.best >= max(one.passes) * 0.999
        assert one.device == "cpu" and one.at and one.seconds > 0 and one.expected is None


@no_gpu
def test_the_numbers_are_of_this_world(run):
    rows = {m.name: m.value for m in run[0].measures}
    assert 1e8 < rows["cpu-matmul"] < 1e14
    assert 1e8 < rows["cpu-memory"] < 1e13
    assert all(1e5 < rows[name] < 1e13 for name in ("disk-read", "disk-write", "shared-memory"))


@no_gpu
def test_gpu_lines_are_absent_and_not_passed(run):
    found = run[0]
    assert {m.verdict for m in found.measures if m.name in GPU} == {"absent"}
    assert all(m.value is None and "GPU" in m.why for m in found.measures if m.name in GPU)
    assert (found.verdict, found.exit) == ("undecided", 3)


@no_gpu
@pytest.mark.faults
def test_collectives_are_measured_by_size(tmp_path):
    """Two ranks import torch, for seconds. That ranks of a proof talk is tested in every run: test_real.py."""
    measures = measure(RANKS, tmp_path, []).measures
    assert {m.name for m in measures} == set(RANKS) and {m.verdict for m in measures} <= {"measured", "noisy"}
    assert all(1e5 < m.value < 1e13 for m in measures)
    sizes = [m.at for m in measures if m.name == "all-reduce"]
    assert sizes == ["64 KiB, 2 ranks", "1 MiB, 2 ranks"]


def test_nothing_is_left_on_the_disk(run):
    assert list(run[1].iterdir()) == []


def test_somebody_who_watches_sees_what_is_measured(run):
    counted = [state for state in run[2] if "@cpu" in state[0]]
    assert counted and all(what.startswith("measuring ") and 0 <= done < total for what, done, total in counted)


@no_gpu
@pytest.mark.parametrize("verbose", [False, True])
@pytest.mark.parametrize("screen", [Screen(), Screen(ascii=True), Screen(width=60)], ids=["wide", "ascii", "narrow"])
def test_the_page(run, screen, verbose):
    page = render.render_bench_screen(run[0], screen, verbose)
    assert all(len(line) <= screen.width for line in page.splitlines()), page
    assert page.isascii() or not screen.ascii
    for words in ("absent: matmul-fp32", "cpu-memory", "can't tell: "):
        assert words in page
    assert "as expected" not in page


@no_gpu
def test_the_json_has_all_of_it(run):
    document = json.loads(written.format_json_document(render.bench_json_fields(run[0])))
    assert (document["kind"], document["verdict"], document["exit"]) == ("bench", "undecided", 3)
    assert {m["name"] for m in document["measures"]} == {*GPU, *HOST}
    assert document["versions"]["torch"] and document["made"] and document["report"]["undecided"]
    assert render.format_bench_line(run[0]) == "bench: can't tell\n"


def test_a_long_run_counts_what_comes_after_the_first_half():
    """A GPU that meets its power limit after a while: 8 turns at full speed, and 2.5 times as long ones from then on."""
    sys.path.append(SCRIPTS_FOLDER)
    try:
        from bench_clock import BenchClock
    finally:
        sys.path.remove(SCRIPTS_FOLDER)
    clock = BenchClock(None, SimpleNamespace(type="cpu"))
    clock.time_turns = lambda work, count: [0.01 if turn < 8 else 0.025 for turn in range(count)]
    assert clock.measure_sustained(None, 0.4) == (pytest.approx(0.025), 0.01)


@pytest.mark.faults
def test_the_rate_without_rests_is_of_the_shape_of_the_bursts(tmp_path):
    """On a CPU, where the catalogue does not ask for it: what counts is that it takes the shape that was found."""
    words = ("matmul-fp32@cpu", "matmul-fp32-held@cpu")
    options = {"quick": True, "repeat": 1, "shapes": {"matmul-fp32": [256, 256, 256]}, "pace": {"held": 0.05}}
    found = measuring.run_benchmarks(
        (BenchTask(words, options),), target_environment.python(), dict(os.environ), system.LiveHost()
    )
    burst, held = found.rows
    assert (burst["raw"], held["raw"]) == ("measured", "measured"), found.rows
    assert burst["at"] == held["at"] == "256 x 256 x 256"
    assert 0.02 < held["passes"][0] / burst["best"] <= 1.5 and held["best"] >= held["passes"][0]


# -- scripts that do not behave ------------------------------------------------------------------------------------------

BEGIN = """
import json, os, sys, time
sys.path.append(os.environ["GPUREADY_PROOF_SCRIPTS"])
import proof
p = proof.ProofRun(sys.argv[1:])
asked = json.loads(p.arguments[0])["measures"]
rows = p.record["measures"] = []
def row(word, verdict="measured", passes=(5.0, 5.0), **more):
    name, _, device = word.partition("@")
    p.begin_step(word)
    rows.append(dict(name=name, device=device, verdict=verdict, passes=list(passes), best=5.0, at="", why="", spans=[[1, 2]], **more))
    p.write()
"""


@pytest.fixture
def reported(tmp_path):
    """Run a script of the test's own that is asked for three measures."""

    def call(body, words=("cpu-matmul@cpu", "cpu-memory@cpu", "disk-read@cpu"), **options):
        script = tmp_path / "script.py"
        script.write_text(BEGIN + body)
        task = BenchTask(words, {}, str(script), deadline=options.pop("deadline", 30.0))
        host = options.pop("host", system.LiveHost())
        found = measuring.run_benchmarks((task,), sys.executable, dict(os.environ), host, **options)
        return {row["name"]: row for row in found.rows}, found

    return call


def test_a_crash_costs_one_measure(reported):
    rows, _ = reported(
        """
for word in asked:
    if word.startswith("cpu-memory"):
        row(word, "", ())
        import ctypes; ctypes.string_at(0)
    row(word)
p.write_verdict("passed")
"""
    )
    assert [rows[name]["raw"] for name in ("cpu-matmul", "cpu-memory", "disk-read")] == [
        "measured",
        "crashed",
        "measured",
    ]
    assert "SIGSEGV" in rows["cpu-memory"]["why"]


def test_a_hang_costs_one_measure(reported):
    rows, _ = reported(
        """
for word in asked:
    if word.startswith("cpu-matmul"):
        row(word, "", ())
        time.sleep(600)
    row(word)
p.write_verdict("passed")
""",
        patience=3.0,
    )
    assert [rows[name]["raw"] for name in ("cpu-matmul", "cpu-memory", "disk-read")] == ["hung", "measured", "measured"]


def test_a_crash_in_the_second_sweep_leaves_the_first(reported):
    rows, _ = reported(
        """
for word in asked: row(word, "", (5.0,))
p.begin_step(asked[1] + " again")
os.kill(os.getpid(), 9)
"""
    )
    assert [rows[name]["raw"] for name in ("cpu-matmul", "cpu-memory", "disk-read")] == [
        "measured",
        "crashed",
        "measured",
    ]


@pytest.mark.parametrize(
    "body",
    [
        "sys.exit(0)",
        "sys.exit(3)",
        "raise RuntimeError('broken package')",
        "open(os.environ['GPUREADY_PROOF'], 'w').write('{not json')",
        "open(os.environ['GPUREADY_PROOF'], 'w').write('[' * 100000)",
        "open(os.environ['GPUREADY_PROOF'], 'w').write(json.dumps({'schema': 1, 'measures': 7}))",
        "print('x' * (20 << 20)); sys.exit(1)",
    ],
)
def test_a_script_without_a_result_measures_nothing(reported, body):
    rows, _ = reported(body)
    assert [rows[name]["raw"] for name in ("cpu-matmul", "cpu-memory", "disk-read")] == ["failed"] * 3


@pytest.mark.parametrize(
    "passes",
    [
        "[float('nan')]",
        "[float('inf')]",
        "[-1.0]",
        "[0]",
        "['5']",
        "[True]",
        "'5'",
        "[]",
        "[None, 5.0]",
        "[[5.0]]",
        "[1e300]",
    ],
)
def test_numbers_that_are_none_are_refused(reported, passes):
    rows, _ = reported(f"for word in asked: row(word, passes=list({passes}))\np.write_verdict('passed')")
    assert {row["raw"] for row in rows.values()} == {"failed"}
    assert all(row["passes"] == () or min(row["passes"]) > 0 for row in rows.values())


def test_what_was_not_asked_for_is_not_taken(reported):
    rows, _ = reported("row('matmul-bf16@cuda:0')\nfor word in asked: row(word)\np.write_verdict('passed')")
    assert set(rows) == {"cpu-matmul", "cpu-memory", "disk-read"}


def test_hostile_words_stay_short_and_secrets_out(reported):
    body = "token = 'hf_' + 'aB3' * 12\nfor word in asked: row(word, 'failed', ())\nrows[0]['why'] = token + chr(27) + 'x' * 5000\np.write(); p.write_verdict('passed')"
    rows, _ = reported(body)
    assert len(rows["cpu-matmul"]["why"]) <= 300 and "aB3aB3" not in rows["cpu-matmul"]["why"]


def test_the_slowest_rank_speaks():
    fast = {"name": "all-reduce", "raw": "measured", "passes": (9.0, 9.0)}
    slow = fast | {"passes": (4.0, 4.0)}
    broken = fast | {"raw": "failed", "passes": ()}
    assert measuring._slowest_rank_rows([[fast], [slow]]) == [slow]
    assert measuring._slowest_rank_rows([[fast], [broken]]) == [broken]
    assert measuring._slowest_rank_rows([[fast], []]) == [fast]


class Driver(system.LiveHost):
    """This machine, with a driver that answers what it is told to."""

    answer: dict[str, object]

    def _answer_nvml(self, deadline: float = 20.0) -> dict[str, object]:
        return self.answer


def test_the_driver_is_asked_while_a_gpu_is_measured(reported):
    host = Driver()
    host.answer = {
        "gpus": [{"index": 0, "clock_sm": 345, "power_draw": {"gap": "Not Supported"}, "throttle": ["idle"]}]
    }
    slowly = "for word in asked:\n    row(word)\n    time.sleep(0.6)\np.write_verdict('passed')"
    _, found = reported(slowly, ("matmul-bf16@cuda:0",), host=host)
    assert found.samples and {s["gpu"] for s in found.samples} == {0}
    assert found.samples[0]["clock_sm"] == 345 and "power_draw" not in found.samples[0]
    _, found = reported(slowly, ("cpu-memory@cpu",), host=host)
    assert found.samples == ()


@pytest.mark.parametrize("answer", [{}, {"error": 9, "says": "no"}, {"gpus": None}, {"gpus": ["x"]}])
def test_a_driver_that_does_not_answer_is_no_sample(answer):
    host = Driver()
    host.answer = answer
    assert measuring.sample_gpus(host) == []


# -- the command line ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requested", "sentence"),
    [
        ({"only": "matmull"}, "--only matmull: nothing is measured under that name"),
        ({"only": " , "}, "--only names no measure"),
        ({"only": "disk", "folder": "/nowhere/at/all"}, "--folder /nowhere/at/all: there is no such folder"),
        ({"gpu": 7}, "--gpu 7: CUDA shows no such GPU here"),
        ({"python": "/nowhere/python"}, "--python /nowhere/python"),
    ],
)
def test_bad_words_are_refused_in_one_sentence(requested, sentence):
    with pytest.raises(Refused) as refused:
        bench.measure_machine(**requested)
    assert sentence in str(refused.value) and "\n" not in str(refused.value)


def test_only_takes_names_beginnings_and_groups():
    assert [k.name for k in bench.choose_measures("disk", False)] == ["disk-write", "disk-read"]
    assert [k.name for k in bench.choose_measures("matmul-fp8,transfer", False)] == [
        "matmul-fp8",
        "host-to-device",
        "device-to-host",
    ]
    assert len(bench.choose_measures("matmul", False)) == 7
    assert "held" in {k.group for k in bench.choose_measures(None, False)}
    assert "held" not in {k.group for k in bench.choose_measures(None, True)}
    assert not {"peers", "collective"} & {k.group for k in bench.choose_measures(None, True)}
    assert {"peers", "collective"} <= {k.group for k in bench.choose_measures(None, False)}


def gpuready(*words):
    return subprocess.run([sys.executable, "-m", "gpuready", "bench", *words], capture_output=True, text=True)


def test_the_list():
    result = gpuready("--list")
    assert result.returncode == 0 and "memory-copy" in result.stdout and "not tested" in result.stdout
    assert len(json.loads(gpuready("--list", "--json").stdout)["measures"]) == len(bands.list_measures())


@pytest.mark.parametrize(
    "words", [("--repeat", "0"), ("--repeat", "x"), ("--gpu", "-1"), ("-q", "-v"), ("--only", "zzz")]
)
def test_bad_flags_are_one_sentence_and_exit_2(words):
    result = gpuready(*words)
    assert result.returncode == 2 and result.stderr.count("\n") == 1 and result.stdout == ""


def test_a_python_without_torch_measures_what_needs_none(tmp_path):
    """The disk needs no torch; what does is absent, and says so."""
    out = tmp_path / "bench.json"
    result = gpuready(
        "--python", "/usr/bin/python3", "--only", "cpu-memory,shared-memory", "--quick", "-o", str(out), "-q"
    )
    looked = subprocess.run(
        ["/usr/bin/python3", "-c", "import importlib.util as u, sys; sys.exit(not u.find_spec('torch'))"]
    )
    if looked.returncode == 0:
        pytest.skip("THE SYSTEM'S PYTHON HAS TORCH")
    assert result.returncode == 0, result.stderr
    rows = {row["name"]: row for row in json.loads(out.read_text())["measures"]}
    assert rows["cpu-memory"]["verdict"] == "absent" and "torch is not installed" in rows["cpu-memory"]["why"]
    assert rows["shared-memory"]["value"] > 0
