"""Every promise of SECURITY.md names the tests that hold it, and they are there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.every import every
from tests.running import gpuready

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "SECURITY.md").read_text()
PROMISES = re.findall(
    r"^- (.*?)(?=^- |\Z)", TEXT.partition("## What it promises\n")[2].partition("\n## ")[0], re.M | re.S
)


def name_of(promise: str) -> str:
    return promise.partition("**")[2].partition("**")[0][:50]


def test_there_are_promises():
    assert len(PROMISES) >= 14 and all(name_of(one) for one in PROMISES)


@pytest.mark.parametrize("promise", PROMISES, ids=name_of)
def test_a_promise_names_the_tests_that_hold_it(promise):
    tests = re.findall(r"`(tests/[\w./]+)(?:::(\w+))?`", promise)
    assert tests, f"no test holds it: {promise}"
    for path, function in tests:
        assert (ROOT / path).exists(), path
        assert not function or re.search(rf"^def {function}\b", (ROOT / path).read_text(), re.M), (path, function)


@every("path", sorted(set(re.findall(r"`((?:tests|benchmarks|tools|src|requirements)/[\w./-]+)`", TEXT))))
def test_every_file_that_the_page_names_is_there(path):
    assert (ROOT / path).exists()


def test_the_figures_of_the_page_are_those_of_the_last_runs():
    def read(name: str) -> dict[str, Any]:
        return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())

    words = " ".join(TEXT.split())
    assert read("security-battery")["total"]["broke"] == 0 and "security-battery.json`: broke 0" in words
    secrets = read("benchmarks")["score_secrets"]
    assert f"{secrets['secrets']} secrets of {secrets['kinds']} kinds" in words
    assert f"{secrets['further_places']} further places" in words
    assert f"Of {secrets['harmless']:,} harmless values {secrets['hidden']} are hidden" in words
    locks = read("pip-audit")["locks"].values()
    assert not any(lock["vulnerable"] for lock in locks) and sum(len(lock["not_answered"]) for lock in locks) == 1
    assert f"none was found, one of {max(lock['packages'] for lock in locks)} packages unanswered" in words


LOOKING = (
    ("check",),
    ("check", "transformers", "--on", "h100x8"),
    ("probe",),
    ("plan", "transformers", "--on", "h100x8", "--no-resolve"),
    ("fit", "qwen2.5-0.5b", "--on", "h100"),
    ("diagnose", "train.log"),
)


def snapshot(folder: Path) -> list[tuple[str, int, int]]:
    found = [(str(one.relative_to(folder)), one.lstat().st_mode, one.lstat().st_mtime_ns) for one in folder.rglob("*")]
    return sorted(row for row in found if not row[0].startswith(".cache"))


@pytest.mark.parametrize("words", LOOKING, ids=lambda words: words[0])
def test_what_only_looks_changes_nothing(words, tmp_path):
    for name in ("home", "tmp", "project"):
        (tmp_path / name).mkdir()
    (tmp_path / "project" / "train.log").write_text("RuntimeError: CUDA error: out of memory\n")
    (tmp_path / "project" / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    before = snapshot(tmp_path)
    env = {"HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "tmp"), "XDG_CACHE_HOME": str(tmp_path / ".cache")}
    ran = gpuready(*words, cwd=tmp_path / "project", **env)
    assert ran.code in (0, 1, 3), ran.err
    assert snapshot(tmp_path) == before
