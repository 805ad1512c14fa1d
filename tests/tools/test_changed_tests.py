"""The tests of a change, chosen by the imports of a small tree."""

from __future__ import annotations

import subprocess

import pytest

from tools import changed_tests

TREE = {
    "src/gpuready/fit/__init__.py": "from gpuready.fit import tape",
    "src/gpuready/fit/tape.py": "",
    "src/gpuready/rules/gpu/gpu_lost.py": "",
    "src/gpuready/model/facts.py": "",
    "tests/fit/test_engine.py": "from gpuready.fit import predict\nfrom gpuready.model import facts",
    "tests/fit/cases.py": "",
    "tests/fit/test_cases.py": "def test(): from tests.fit.cases import CASES",
    "tests/rules/test_shipped.py": "",
    "tests/model/test_facts.py": "",
    **{f"tests/cli/test_{n}.py": "from gpuready.model.facts import Fact" for n in range(changed_tests.MANY)},
}


@pytest.fixture
def tree(tmp_path):
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("path", "tests"),
    [
        ("src/gpuready/fit/__init__.py", {"tests/fit/test_engine.py"}),
        ("src/gpuready/fit/tape.py", {"tests/fit/test_engine.py"}),  # through fit/__init__
        ("src/gpuready/rules/gpu/gpu_lost.py", {"tests/rules/test_shipped.py"}),  # loaded by its code: the folder
        ("src/gpuready/model/facts.py", {"tests/model/test_facts.py"}),  # too many import it: those of its folder
        ("tests/fit/cases.py", {"tests/fit/test_cases.py"}),
        ("tests/fit/test_cases.py", {"tests/fit/test_cases.py"}),
        ("tests/fit/test_deleted.py", set()),
        ("README.md", set()),
    ],
)
def test_the_nearest_tests_of_a_file(tree, path, tests):
    assert changed_tests.nearest_tests(tree, path, changed_tests.read_importers(tree)) == tests


def test_what_is_left_out_is_what_reaches_it_from_farther(tree):
    first, *farther = changed_tests.list_layers("src/gpuready/model/facts.py", changed_tests.read_importers(tree))
    assert len(first) == changed_tests.MANY + 1 and not farther


def test_files_that_git_does_not_know_yet_are_changed_too(tree):
    for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a", "commit", "-qm", "x"]):
        subprocess.run(["git", *words], cwd=tree, check=True)
    (tree / "src/gpuready/fit/tape.py").write_text("x = 1")
    (tree / "tests/fit/test_new.py").write_text("")
    assert changed_tests.list_changed_files(tree, "HEAD") == ["src/gpuready/fit/tape.py", "tests/fit/test_new.py"]
    with pytest.raises(SystemExit, match="git cannot say what changed against nowhere"):
        changed_tests.list_changed_files(tree, "nowhere")
