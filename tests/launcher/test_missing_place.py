"""Where the module or the file is that one rank has not found."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuready.launcher.missing_place import explain_missing
from gpuready.model.run import RankEnd

MODULE = "ModuleNotFoundError: No module named 'tokens.bpe'"
NAME = "ImportError: cannot import name 'split' from 'tokens' ({}/tokens.py)"
ATTRIBUTE = "AttributeError: module 'tokens' has no attribute 'split'"
FILE = "FileNotFoundError: [Errno 2] No such file or directory: 'tokens.py'"


@pytest.fixture
def here(tmp_path: Path) -> str:
    (tmp_path / "tokens.py").write_text("")
    return str(tmp_path)


def said(error: str, *paths: list[list[str]]) -> str:
    return explain_missing(RankEnd(1, last=(error,)), dict(enumerate(paths)))[0]


def test_what_another_rank_finds_is_not_missing(here):
    here_and_not = said(MODULE, [["/a", here], ["/a"], ["/"]], [["/a"], ["/a"], ["/"]])
    assert here_and_not.startswith(f"tokens is in {here}: the sys.path of rank 0, and not in that")
    assert "with which it started" in said(MODULE, [["/a"], ["/a"], ["/"]], [["/a"], [here], ["/"]])
    assert said(MODULE, [["/a"], ["/a"], ["/"]], [["/a"], ["/a"], ["/"]]) == ""
    of_a_package_that_is_there = said(MODULE, [["/a", here], ["/a"], ["/"]], [["/a", here], ["/a"], ["/"]])
    assert of_a_package_that_is_there == ""
    assert "the working folder of rank 0" in said(FILE, [["/a"], ["/a"], [here]], [["/a"], ["/a"], ["/"]])


def test_a_file_that_came_too_late_is_there_now(here):
    both = [[["/a"], ["/a"], [here]]] * 2
    assert said(FILE, *both) == f"{here}/tokens.py is there now: it came after rank 1 had looked for it"
    assert "is there now" in said(FILE.replace("tokens.py", f"{here}/tokens.py"), *[[["/a"], ["/a"], ["/"]]] * 2)
    assert said(FILE.replace("tokens.py", f"{here}/words.py"), *both) == "", "a file that nobody has"


@pytest.mark.parametrize("error", [NAME, ATTRIBUTE])
def test_a_rank_that_has_another_copy_of_a_module(here, tmp_path, error):
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "tokens.py").write_text("")
    old, error = f"{here}/old", error.format(f"{here}/old")
    other = said(error, [[here], [here], ["/"]], [[old, here], [here], ["/"]], [[here], [here], ["/"]])
    assert other == f"tokens is {old}/tokens.py on rank 1, and {here}/tokens.py on rank 0, 2"
    assert said(error, [[old], [old], ["/"]], [[old, here], [here], ["/"]]) == "", "the same one"
