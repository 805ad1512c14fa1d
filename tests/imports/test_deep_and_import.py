"""``check --deep`` compares contents, ``check --import`` imports in any case: what the plain look cannot know."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuready.model import Fact
from gpuready.system.imports.hidden_modules import SearchedEnvironment
from gpuready.system.imports.unjudged import LIBRARY_MODULES, list_reasons
from gpuready.workflow.machine_facts import add_import_result, start_probing
from gpuready.workflow.refusal import Refused
from tests.imports.copies import LONG_AGO, EnvironmentCopy


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> EnvironmentCopy:
    return EnvironmentCopy(tmp_path_factory.mktemp("deep") / "whole").make()


@pytest.fixture
def copy(whole: EnvironmentCopy, tmp_path: Path) -> EnvironmentCopy:
    return whole.clone(tmp_path / "copy")


def test_contents_of_the_same_size_and_age_are_only_seen_by_deep(copy: EnvironmentCopy) -> None:
    copy.rewrite("yaml/reader.py", lambda data: data.replace(b"# This module", b"# That module", 1))
    copy.age()
    assert not copy.judge() and not copy.facts.value("import.looked")["unjudged"]
    assert copy.judge(deep=True) == {"PKG043": "warning"}
    assert [row["kind"] for row in copy.facts.value("import.damage")] == ["changed"]
    assert copy.facts.value("import.looked")["deep"] is True


def test_deep_sees_nothing_in_a_whole_environment(copy: EnvironmentCopy) -> None:
    assert not copy.judge(deep=True)
    assert not copy.facts.value("import.damage") and "import.result" not in copy.facts


def test_data_that_differs_starts_no_import(copy: EnvironmentCopy) -> None:
    files = {"huggingface_hub/__init__.py": "x = 1\n", "huggingface_hub/roots.pem": "a certificate\n"}
    copy.delete("huggingface_hub*")
    copy.install("huggingface_hub", "2.0", files)
    copy.rewrite("huggingface_hub/roots.pem", lambda data: data + b"that of the company\n")
    assert not copy.judge() and not copy.facts.value("import.looked")["unjudged"]
    assert "import.result" not in copy.facts
    copy.rewrite("huggingface_hub/roots.pem", lambda data: b"a cert")
    assert not copy.judge() and not copy.facts.value("import.looked")["unjudged"]


def test_a_file_that_another_distribution_wrote_shorter_is_whole(copy: EnvironmentCopy) -> None:
    copy.delete("huggingface_hub*")
    copy.install("huggingface_hub", "2.0", {"huggingface_hub/__init__.py": "x = 1\n" * 9})
    copy.install("demo-old", "1.0", {"huggingface_hub/__init__.py": "x = 1\n"})
    assert not copy.judge() and not copy.facts.value("import.damage") and "import.result" not in copy.facts


def test_a_library_of_another_size_is_tried_unless_it_was_shipped_so(copy: EnvironmentCopy) -> None:
    library = "tokenizers/tokenizers*.so"
    copy.rewrite(library, lambda data: data + b" ")
    os.utime(copy.path(library), (LONG_AGO, LONG_AGO))
    assert not copy.judge() and "import.result" not in copy.facts
    copy.rewrite(library, lambda data: data[:4096] + b"\0" * len(data))
    copy.judge()
    assert copy.facts.value("import.looked")["unjudged"] or copy.facts.value("import.damage")
    assert copy.facts.value("import.result")["demo"]["error"]


def test_what_torch_imports_by_itself_is_tried(copy: EnvironmentCopy) -> None:
    files = {"demo_npu/__init__.py": "x = 1\n"}
    copy.install("demo-npu", "1.0", files)
    assert not copy.judge() and "import.result" not in copy.facts
    (copy.site / "demo-npu-1.0.dist-info" / "entry_points.txt").write_text("[torch.backends]\nnpu = demo_npu:load\n")
    assert not copy.judge() and copy.facts.value("import.looked")["unjudged"] == ("demo-npu: torch imports it",)
    assert copy.facts.value("import.result")


def test_a_library_that_hides_one_of_torch_is_tried(copy: EnvironmentCopy) -> None:
    copy.judge()
    facts = copy.facts.with_facts(Fact("library.shadowed", {"libcudnn.so.9": {}}, "the test"))
    assert "import.result" in add_import_result(facts, str(copy.root), "needed")
    assert "import.result" not in add_import_result(facts, str(copy.root), "never")


def test_a_python_without_a_module_of_the_system_is_tried(tmp_path: Path) -> None:
    folder = tmp_path / "lib-dynload"
    folder.mkdir()
    survey = SearchedEnvironment({"python": "3.11.7", "sites": [], "stdlib": str(tmp_path)})
    assert list_reasons(survey, []) == []
    for name in (*LIBRARY_MODULES, "math"):
        (folder / f"{name}.cpython-311-x86_64-linux-gnu.so").touch()
    survey = SearchedEnvironment(survey.request)
    assert list_reasons(survey, []) == []
    (folder / "_ctypes.cpython-311-x86_64-linux-gnu.so").unlink()
    survey = SearchedEnvironment(survey.request)
    assert list_reasons(survey, []) == [f"{folder}/_ctypes: Python was built without it"]


@pytest.mark.parametrize(
    ("source", "error", "line"),
    [
        ("x = 1\n", "", 0),
        ("raise RuntimeError('only running tells')\n", "RuntimeError: only running tells", 1),
        ("try:\n    import left_pad\nexcept ImportError as e:\n    raise OSError from e\n", "ModuleNotFoundError: No module named 'left_pad'", 2),
        ("x = (\n", "SyntaxError: '(' was never closed", 1),
        ("input()\n", "EOFError: EOF when reading a line", 1),
        ("import sys\nsys.exit('no')\n", "SystemExit: no", 2),
        ("import os\nos._exit(3)\n", "the process ended with exit status 3", 0),
        ("import os\nif not os.environ.get('HF_HUB_OFFLINE') or os.environ.get('CUDA_VISIBLE_DEVICES') != '':\n    raise OSError\n", "", 0),
    ],
)  # fmt: skip
def test_a_real_import_says_what_files_do_not(copy: EnvironmentCopy, source: str, error: str, line: int) -> None:
    copy.use("import demo_late")
    copy.install("demo-late", "1.0", {"demo_late.py": source})
    assert not copy.judge(), "the files are as they were installed"
    assert copy.judge(imports="asked") == ({"PKG042": "error"} if error else {})
    result = copy.facts.value("import.result")["demo"]
    assert (result["error"], result["line"]) == (error, line)
    assert not line or result["file"] == str(copy.site / "demo_late.py")


def test_a_crash_is_told_with_its_place(copy: EnvironmentCopy) -> None:
    copy.use("import demo_late")
    copy.install("demo-late", "1.0", {"demo_late.py": "import os\nos.abort()\n"})
    assert copy.judge(imports="asked") == {"PKG042": "error"}
    result = copy.facts.value("import.result")["demo"]
    assert "signal ABRT" in result["error"] and result["line"] == 2 and "Fatal Python error" in result["output"]


def test_an_import_that_takes_too_long_is_no_failure(copy: EnvironmentCopy, monkeypatch: pytest.MonkeyPatch) -> None:
    copy.use("import demo_late")
    copy.install("demo-late", "1.0", {"demo_late.py": "import time\ntime.sleep(99)\n"})
    monkeypatch.setenv("GPUREADY_IMPORT_DEADLINE", "0.5")
    assert copy.judge(imports="asked") == {"PKG042": "undecided"}
    assert "did not end within" in str(copy.report.undecided[0])


def test_nothing_to_import_is_told_beside_what_is_missing(copy: EnvironmentCopy) -> None:
    copy.delete("demo*")
    assert copy.judge(imports="asked")["PKG042"] == "undecided"
    assert "neither torch nor" in str(copy.report.undecided)


@pytest.mark.parametrize("flag", [{"deep": True}, {"imports": "asked"}])
def test_another_machine_has_no_environment_to_look_at(flag: dict[str, bool | str]) -> None:
    with pytest.raises(Refused, match="--on names another machine"):
        start_probing("h100", None, {}, None, **flag)
