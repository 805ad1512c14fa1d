"""Every way to break an environment: gpuready's answer, from files alone, against what a real import does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.imports.breakages import WAYS
from tests.imports.copies import EnvironmentCopy


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> EnvironmentCopy:
    return EnvironmentCopy(tmp_path_factory.mktemp("imports") / "whole").make()


@pytest.mark.parametrize("name", WAYS)
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


def test_there_are_more_than_forty_ways() -> None:
    assert len(WAYS) >= 60
