"""Every way to break an environment: gpuready's answer, from files alone, against what a real import does.

Ways that only differ in the package or the file that they break are tried with FUZZ=1.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.imports import broken_layouts as broken_layouts  # adds its ways
from tests.imports import user_breakages as user_breakages
from tests.imports.breakages import ALIKE, WAYS
from tests.imports.copies import EnvironmentCopy
from tests.sampling import FUZZ

TRIED = [name for name in WAYS if FUZZ or name not in ALIKE]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> EnvironmentCopy:
    return EnvironmentCopy(tmp_path_factory.mktemp("imports") / "whole").make()


@pytest.mark.parametrize("name", TRIED)
def test_a_broken_environment_is_judged_as_python_judges_it(whole: EnvironmentCopy, tmp_path: Path, name: str) -> None:
    copy = whole.clone(tmp_path / "copy")
    WAYS[name](copy)
    found = copy.judge()
    assert "undecided" not in found.values(), found
    assert ("error" in found.values()) is not copy.really_imports(), found


@pytest.mark.parametrize(("start", "severity"), [("demo.train", "error"), ("demo.elsewhere", "warning")])
def test_what_a_command_imports_after_its_start_counts(
    whole: EnvironmentCopy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str, severity: str
) -> None:
    """A file that only the trainer imports is missing; a start that this release does not have says nothing."""
    monkeypatch.setattr("gpuready.catalog.proofs.list_start_modules", lambda: {"demo": (start,)})
    copy = whole.clone(tmp_path / "copy")
    (copy.site / "demo/train.py").write_text("from demo.extra import VALUE\n")
    (copy.site / "demo/extra.py").unlink()
    assert copy.really_imports()
    assert set(copy.judge().values()) == {severity}


def test_code_of_a_pth_file_that_may_provide_a_module_leaves_it_open(whole: EnvironmentCopy, tmp_path: Path) -> None:
    copy = whole.clone(tmp_path / "copy")
    broken_layouts._move_yaml(copy)
    (copy.site / "more.pth").write_text("import sys, os; sys.path.append(os.path.join(sys.prefix, 'more'))\n")
    assert copy.really_imports()
    found = copy.judge()
    assert found.get("PKG042") == "undecided", found
    assert "error" not in found.values()


def test_there_are_more_than_forty_ways() -> None:
    assert len(WAYS) >= 60


def test_what_stands_for_another_way_is_tried() -> None:
    assert set(ALIKE) <= set(WAYS)
    assert set(ALIKE.values()) <= set(TRIED)
