"""Environments of a stranger that are small and would keep a survey busy: rows, bytes and processor time are bounded, and what was left out is told."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from gpuready.probe.environment_choice import choose_environment
from gpuready.system import ReadOnlyHost
from gpuready.system.host_access import MAX_PTH_LINES
from gpuready.system.imports import damage, hidden_modules
from gpuready.system.imports.damage import Survey

MANY = 30_000


@pytest.fixture
def site(tmp_path: Path) -> Path:
    found = tmp_path / ".venv/lib/python3.11/site-packages"
    found.mkdir(parents=True)
    (tmp_path / ".venv/bin").mkdir()
    (tmp_path / ".venv/bin/python").symlink_to("/usr/bin/env")
    (tmp_path / ".venv/pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.7\n")
    lay(found, "torch", ["torch/__init__.py,,"])
    (found / "torch").mkdir()
    (found / "torch/__init__.py").write_text("")
    return found


def lay(site: Path, name: str, record: list[str], requires: str = "") -> None:
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n{requires}")
    (info / "RECORD").write_text("\n".join([*record, ""]))


def survey(site: Path, deep: bool = True, roots: tuple[str, ...] = ("torch",)) -> tuple[dict[str, Any], float]:
    """The answer, and the seconds of processor time that it took."""
    started = time.process_time()
    request = {"python": "3.11.7", "sites": [str(site)], "roots": list(roots), "deep": deep}
    return Survey(request).run(), time.process_time() - started


def test_rows_of_absent_files_cost_time_in_proportion(site: Path):
    lay(site, "torch", [f"torch/x{number}.py,," for number in range(MANY)])
    os.utime(
        site / "torch-1.0.dist-info/RECORD", (1, 1)
    )  # older than the folder: they are missing, and not left out by the package
    answer, seconds = survey(site)
    assert answer["files"] == MANY and seconds < 12, seconds
    lay(site, "torch", [f"torch/x{number}.py,," for number in range(MANY)])
    assert survey(site, deep=False)[1] < 12


def test_files_that_another_package_has_too_cost_time_in_proportion(site: Path):
    names = [f"torch/{number}.py" for number in range(300)]
    for name in names:
        (site / name).write_text("12")
    lay(site, "torch", [f"{name},,9" for name in names])
    lay(site, "numpy", [f"numpy/x{number}.py,,1" for number in range(MANY)])
    assert survey(site)[1] < 6


def test_requirements_that_are_not_met_cost_time_in_proportion(site: Path):
    for owner in range(4):
        needs = "".join(f"Requires-Dist: a{owner}x{number}\n" for number in range(8000))
        lay(site, f"kite{owner}", [f"kite{owner}.py,,"], needs + "Requires-Dist: torch\n")
    lay(site, "torch", ["torch/__init__.py,,"], "".join(f"Requires-Dist: kite{owner}\n" for owner in range(4)))
    assert survey(site)[1] < 12


def test_more_rows_or_bytes_than_are_looked_at_are_counted(site: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(damage, "MAX_DEEP_FILES", 100)
    lay(site, "torch", [f"torch/x{number}.py,," for number in range(300)])
    answer, _ = survey(site)
    assert (answer["files"], answer["skipped"]) == (100, 200)
    with open(site / "torch/holes.so", "wb") as file:
        file.truncate(1 << 40)
    lay(site, "torch", ["torch/__init__.py,,", *[f"torch/holes.so,sha256=AAAA,{1 << 40}"] * 3])
    answer, seconds = survey(site)
    assert (answer["files"], answer["skipped"]) == (1, 3) and seconds < 5


def test_what_no_time_was_left_for_is_named(site: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hidden_modules, "MAX_SECONDS", -1.0)
    assert "processor time" in survey(site)[0]["unchecked"]["torch"]


def test_a_record_without_end_and_metadata_without_number(site: Path):
    with open(site / "torch-1.0.dist-info/RECORD", "ab") as file:
        file.truncate(1 << 40)
    for number in range(300):
        (site / f"torch-2.{number}.dist-info").symlink_to(site / "torch-1.0.dist-info")
    answer, seconds = survey(site)
    assert "16 MiB" in answer["unchecked"]["torch"] and seconds < 30


def test_lines_of_start_files_are_bounded(site: Path):
    for number in range(20):
        (site / f"z{number}.pth").write_text("import os; os.getcwd()\n" * 2500)
    (site / "zz.pth").write_text("/proc\n" * 20000)
    answer, seconds = survey(site)
    assert (
        seconds < 5 and f"{site}/z9.pth: not read beyond {MAX_PTH_LINES} lines of all .pth files" in answer["unjudged"]
    )


def test_folders_of_start_files_are_bounded_when_an_environment_is_chosen(site: Path):
    for number in range(20):
        (site / f"a{number}.pth").write_text("\n".join(f"../{number}{one}" for one in range(6000)))
    started = time.process_time()
    assert str(site) in choose_environment(ReadOnlyHost(), str(site.parents[2])).site
    assert time.process_time() - started < 5
