"""The runner of the benchmarks and the page that is made of their records."""

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
    "agreement_draws", "architecture_sweep", "fit_architectures", "fit_architectures_measure", "fit_convolutions", "fit_exam", "fit_measure", "fit_saved_tensors", "fit_tape_diff", "fit_templates", "hide_log_patterns", "locks", "mutate_logs", "raise_sites",
    "score_fit", "score_log_exam", "score_logs", "score_prebuilt_wheels", "screens", "security_battery", "step_time", "step_time_public",
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
    return runner.argparse.Namespace(quick=False, full=False, target="", minutes=1)


def _script(tmp_path, runner, monkeypatch, text: str) -> object:
    (tmp_path / "one.py").write_text(text)
    monkeypatch.setattr(runner, "HERE", tmp_path)
    monkeypatch.setattr(runner, "BUILD", tmp_path)
    return runner.Job("one", "-o FILE", "one.json", 0.1, "-o FILE")


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
    (tmp_path / "one.json").write_text('{"old": 1}')
    row = runner.run(job, tmp_path, "", asked)
    assert row["ended"] == "failed" and "exit 7" in row["why"]
    assert json.loads((tmp_path / "one.json").read_text()) == {"old": 1}


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


def test_a_shorter_draw_never_replaces_a_full_record(runner):
    for job in runner.JOBS:
        usual, full = job.asked(False, False), job.asked(False, True)
        assert (usual[1] == full[1]) == (not job.full)


def test_what_cannot_run_here_is_skipped_with_a_reason(runner):
    needy = [job for job in runner.JOBS if job.needs == "torch"]
    assert needy and all(runner.skipped(job, "") for job in needy)
    assert not any(runner.skipped(job, "/somewhere") for job in needy)


def test_an_unknown_benchmark_is_refused(runner):
    with pytest.raises(SystemExit, match="there is no benchmark nothing"):
        runner.chosen("nothing")


def test_every_table_is_made_of_its_record():
    tables = _module(ROOT / "tools" / "benchmark_tables.py")
    for title, names, rows in tables.TABLES:
        for name in filter(tables.here, names):
            found = rows(tables.read(name))
            assert len(found) > 1 and len({len(row) for row in found}) == 1, title


def test_every_table_says_when_and_how_its_record_was_made():
    tables = _module(ROOT / "tools" / "benchmark_tables.py")
    for _, names, _ in tables.TABLES:
        for name in filter(tables.here, names):
            record = tables.read(name)
            said = record.get("about", record)
            assert said.get("date") and said.get("command"), name


def test_a_peak_is_that_of_the_command_and_not_of_who_asks():
    """A new process counts what its parent held until then, and this one holds much."""
    speed = _module(ROOT / "benchmarks" / "check_speed.py")
    ballast = bytearray(64 << 20)
    assert 1 << 20 < speed.peak([sys.executable, "-c", "pass"]) < len(ballast)
    assert speed.peak([sys.executable, "-c", "x = bytearray(96 << 20)"]) > 96 << 20


def test_a_cell_breaks_no_table():
    tables = _module(ROOT / "tools" / "benchmark_tables.py")
    assert tables.cell("a|b") == "a\\|b" and tables.cell([]) == "none" and tables.cell(12345.6) == "12,346"


def test_the_messages_that_a_package_can_raise_are_read_from_its_source(tmp_path):
    folder = tmp_path / "mesh"
    folder.mkdir()
    text = "def f(x):\n    assert x, f'{x.dtype} is not supported'\n    raise ValueError('a ' + 'b')\n    raise KeyError(x)\n"
    (folder / "one.py").write_text(text)
    (folder / "broken.py").write_text("def")
    found = _module(ROOT / "benchmarks" / "raise_sites.py").find_messages(folder)
    assert list(found) == ["AssertionError: torch.float16 is not supported", "ValueError: a b"]
    assert found["ValueError: a b"].endswith('mesh/one.py", line 3, in check\n    raise ValueError(\nValueError: a b\n')
