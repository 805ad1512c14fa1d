"""The runner of the benchmarks, and their records."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLAYED = {
    "fit_architecture_inputs",
    "simulated_fleet",
    "fit_memtracker",
    "fit_play",
    "fit_sharded_recorder",
    "fit_tape_setups",
    "soak_loads",
    "step_time_cases",
}
"""Modules of other scripts."""
BY_HAND = {
    "agreement_draws", "architecture_sweep", "fit_architectures", "fit_architectures_measure", "fit_convolutions", "fit_exam", "fit_measure", "fit_tape_diff", "locks", "mutate_logs", "score_fit", "score_log_exam", "score_logs", "screen_words", "security_battery", "step_time",
    "step_time_public",
}  # fmt: skip
"""Scripts that take files of measured runs or logs, or longer than all others together."""


def _module(path: Path):
    sys.path[:0] = [str(path.parent)]
    spec = importlib.util.spec_from_file_location(f"benchmark_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    sys.path.remove(str(path.parent))
    return module


@pytest.fixture(scope="module")
def runner():
    return _module(ROOT / "benchmarks" / "all.py")


@pytest.fixture
def asked(runner):
    return runner.argparse.Namespace(quick=False, target="", minutes=1)


def _script(tmp_path, runner, monkeypatch, text: str) -> object:
    (tmp_path / "one.py").write_text(text)
    monkeypatch.setattr(runner, "HERE", tmp_path)
    monkeypatch.setattr(runner, "BUILD", tmp_path)
    return runner.Job("one", "-o FILE", 0.1, "-o FILE")


def test_every_script_is_run_or_said_to_need_more(runner):
    """A new benchmark joins JOBS, or ELSEWHERE says why it cannot be rerun on any machine."""
    scripts = {path.stem for path in (ROOT / "benchmarks").glob("*.py")} - {"all"} - PLAYED - BY_HAND
    run, elsewhere = {job.name for job in runner.JOBS}, " ".join(runner.ELSEWHERE.values())
    assert run <= scripts
    missing = {name for name in scripts - run if f"{name}.py" not in elsewhere and not name.endswith("_h200")}
    assert not missing


def test_it_is_done_in_25_minutes(runner):
    assert sum(job.minutes for job in runner.JOBS) <= 25


def test_a_kept_record_is_named_only_where_there_is_one(runner):
    kept = [name for name in runner.ELSEWHERE if name != "soak.json"]
    assert all((runner.RESULTS / name).exists() for name in kept)


def test_a_record_says_when_where_and_how_and_no_path_of_this_machine(tmp_path, runner, asked, monkeypatch):
    text = 'import json, sys; open(sys.argv[2], "w").write(json.dumps({"rows": [1], "at": sys.argv[0]}))'
    job = _script(tmp_path, runner, monkeypatch, text)
    monkeypatch.setattr(runner, "ROOT", tmp_path)
    row = runner.run(job, tmp_path, "", asked)
    assert row["ended"] == "ran"
    document = json.loads((tmp_path / "one.json").read_text())
    assert document["rows"] == [1] and document["at"] == "one.py"
    assert document["command"] == "python benchmarks/one.py -o FILE" and {"date", "hardware"} <= set(document)


def test_a_failure_is_told_and_the_old_record_stays(tmp_path, runner, asked, monkeypatch):
    job = _script(tmp_path, runner, monkeypatch, "raise SystemExit(7)")
    row = runner.run(job, tmp_path, "", asked)
    assert row["ended"] == "failed" and "exit 7" in row["why"]
    (tmp_path / "benchmarks.json").write_text('{"one": {"old": 1}}')
    runner.keep(row, tmp_path / "one.json", tmp_path)
    assert runner.kept(tmp_path) == {"one": {"old": 1}}


def test_what_a_script_finds_replaces_its_own_record_alone(tmp_path, runner):
    (tmp_path / "benchmarks.json").write_text('{"one": {"old": 1}, "two": {"old": 2}}')
    (tmp_path / "one.json").write_text('{"new": 3}')
    runner.keep({"benchmark": "one", "ended": "ran"}, tmp_path / "one.json", tmp_path)
    assert runner.kept(tmp_path) == {"one": {"new": 3}, "two": {"old": 2}}


def test_the_list_names_every_benchmark_with_the_day_of_its_record(runner):
    said = runner.listed()
    assert all(job.name in said for job in runner.JOBS) and all(name in said for name in runner.ELSEWHERE)
    assert "no record" not in said


def test_a_script_that_hangs_is_ended_with_its_children(tmp_path, runner, monkeypatch):
    text = "import subprocess, time, pathlib\np = subprocess.Popen(['sleep', '100'])\npathlib.Path('pid').write_text(str(p.pid))\ntime.sleep(100)"
    _script(tmp_path, runner, monkeypatch, text)
    monkeypatch.setattr(runner, "ROOT", tmp_path)
    monkeypatch.setattr(runner, "LEAST", 1.0)
    assert runner.waited([sys.executable, str(tmp_path / "one.py")], "one", 0.1) == 124
    state, until = Path(f"/proc/{(tmp_path / 'pid').read_text()}/stat"), time.monotonic() + 10
    while _runs(state) and time.monotonic() < until:  # a process that was killed takes a moment to die
        time.sleep(0.02)
    assert not _runs(state)


def _runs(state: Path) -> bool:
    try:
        return state.read_text().split()[2] != "Z"
    except OSError:
        return False


def test_what_cannot_run_here_is_skipped_with_a_reason(runner):
    needy = [job for job in runner.JOBS if job.needs == "torch"]
    assert needy and all(runner.skipped(job, "") for job in needy)
    assert not any(runner.skipped(job, "/somewhere") for job in needy)


def test_an_unknown_benchmark_is_refused(runner):
    with pytest.raises(SystemExit, match="there is no benchmark nothing"):
        runner.chosen("nothing")


def test_a_peak_is_that_of_the_command_and_not_of_who_asks():
    """A new process counts what its parent held until then, and this one holds much."""
    speed = _module(ROOT / "benchmarks" / "check_speed.py")
    ballast = bytearray(64 << 20)
    assert 1 << 20 < speed.peak([sys.executable, "-c", "pass"]) < len(ballast)
    assert speed.peak([sys.executable, "-c", "x = bytearray(96 << 20)"]) > 96 << 20
