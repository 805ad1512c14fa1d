"""The compact form: fresh, small, quick to load, and made by a tool that can be run twice."""

from __future__ import annotations

import ast
import functools
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.running import QUIET, SRC

import gpuready.catalog

REPO = Path(__file__).resolve().parents[2]
TOOL = REPO / "tools" / "compile_catalog.py"
DATA = Path(gpuready.catalog.__file__).parent / "data"
NAMES = ["accelerators", "cuda", "facts", "features", "gpus", "lookalikes", "packages", "systems", "torch"]


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("compile_catalog", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def room(tmp_path):
    """A catalogue of one file, as the tool finds it."""
    (tmp_path / "catalog").mkdir()
    (tmp_path / "contracts").mkdir()
    (tmp_path / "catalog" / "cuda.toml").write_text(
        'schema = 1\nas_of = "2026-01-01"\n[[cuda]]\nversion = "12.8"\nnote = "gone"\nconfirmed = true\n'
        'source = { driver = "notes", date = "gone too" }\n[[rule]]\nid = "a"\nsource = ["first", "second"]\n'
    )
    return tmp_path


def test_nothing_that_the_build_makes_is_committed():
    tracked = subprocess.run(["git", "ls-files", "src"], capture_output=True, text=True, cwd=REPO)
    if tracked.returncode:
        pytest.skip("not a git checkout")
    made = [name for name in tracked.stdout.split() if "/data/" in name and name.endswith(".py")]
    assert {Path(name).name for name in made} == {"__init__.py"}


def test_a_missing_table_is_one_sentence(tmp_path):
    """A tree in which nothing was compiled says what to do; what a build compiles is looked at by tests/supply/test_release.py."""
    source = tmp_path / "src" / "gpuready"
    data = shutil.ignore_patterns("__pycache__", *(path.name for path in DATA.parent.parent.glob("*/data/[!_]*.py")))
    for package in ("catalog", "contracts", "rules", "system"):
        shutil.copytree(SRC / "gpuready" / package / "data", source / package / "data", ignore=data)
    whole = shutil.ignore_patterns(
        "data"
    )  # what is compiled of the modules serves the copies too: they have the same times
    shutil.copytree(SRC / "gpuready", source, ignore=whole, dirs_exist_ok=True)
    env = {**QUIET, "PYTHONPATH": str(tmp_path / "src")}
    argv = [sys.executable, "-m", "gpuready", "contract", "list"]
    without = subprocess.run(argv, env=env, capture_output=True, text=True)
    assert without.returncode == 2 and without.stderr.count("\n") == 1
    assert "is not compiled: run python tools/compile_catalog.py" in without.stderr


def test_it_keeps_what_look_ups_need_and_one_source(tool, room):
    tool.write(room)
    found = data(room / "catalog" / "data" / "cuda.py")
    assert found == {
        "schema": 1,
        "as_of": "2026-01-01",
        "cuda": [{"version": "12.8", "source": {"driver": "notes"}}],
        "rule": [{"id": "a", "source": "first"}],
    }


def test_a_source_without_a_second_one_says_so_wherever_it_is_cited(tool, room):
    path = room / "catalog" / "cuda.toml"
    path.write_text(
        'schema = 1\nas_of = "2026-01-01"\n[[cuda]]\nversion = "12.8"\nconfirmed = false\n'
        'source = { driver = "notes" }\nbuilds = [{ confirmed = false, source = "wheel" }, { source = "page" }]\n'
        '[[rule]]\nid = "a"\nconfirmed = false\nunconfirmed_fields = ["id"]\nsource = ["first", "second"]\n'
    )
    made = ast.literal_eval(tool.outputs(room)[room / "catalog" / "data" / "cuda.py"].partition("DATA = ")[2])
    row, words = made["cuda"][0], " (not confirmed by a second source)"
    assert row["source"] == {"driver": f"notes{words}"}
    assert [one["source"] for one in row["builds"]] == [f"wheel{words}", "page"]
    assert words not in str(made["rule"]), "only one field of it is open, and no look-up needs that"


def test_xids_that_one_source_tells_are_cited_so():
    rows = {row["xid"]: row["source"] for row in gpuready.catalog.load_catalog("xids")["xid"]}
    assert "not confirmed by a second source" in str(rows[158]) and "confirmed" not in str(rows[79])


def test_writing_twice_changes_nothing(tool, room):
    assert tool.write(room) == ["catalog/data/cuda.py"]
    assert tool.write(room) == []


def test_a_changed_toml_is_stale_until_it_is_written(tool, room):
    tool.write(room)
    toml = room / "catalog" / "cuda.toml"
    toml.write_text(toml.read_text().replace("12.8", "12.9"))
    assert tool.stale(room) == ["catalog/data/cuda.py"]
    tool.write(room)
    assert tool.stale(room) == []


def test_an_edited_module_is_stale(tool, room):
    tool.write(room)
    (room / "catalog" / "data" / "cuda.py").write_text("{}\n")
    assert tool.stale(room) == ["catalog/data/cuda.py"]


def test_what_has_lost_its_toml_goes(tool, room):
    tool.write(room)
    left = room / "catalog" / "data" / "old.py"
    left.write_text("{}")
    assert tool.stale(room) == ["catalog/data/old.py"]
    tool.write(room)
    assert not left.exists()


def test_a_broken_toml_is_one_sentence(tool, room):
    (room / "catalog" / "cuda.toml").write_text("version = ")
    with pytest.raises(SystemExit, match=r"cuda\.toml is not TOML"):
        tool.write(room)


CONTRACT = 'framework = "demo"\nversion = "{0}"\ntitle = "Demo"\norigin = "a test"\n'


def test_contracts_are_passed_on_with_an_index(tool, room):
    for version in ("0.10", "0.9"):
        (room / "contracts" / f"demo-{version}.toml").write_text(CONTRACT.format(version))
    tool.write(room)
    index = data(room / "contracts" / "data" / "index.py")
    assert [(r["framework"], r["version"], r["variant"], r["file"]) for r in index] == [
        ("demo", "0.9", "", "demo_0_9"),
        ("demo", "0.10", "", "demo_0_10"),
    ], "in the order of versions, not of text"
    contract = data(room / "contracts" / "data" / "demo_0_9.py")
    assert contract["title"] == "Demo" and contract["version"] == "0.9"


def test_a_contract_that_is_none_is_refused(tool, room):
    (room / "contracts" / "demo.toml").write_text('title = "no framework"\n')
    with pytest.raises(SystemExit, match="demo"):
        tool.write(room)


@pytest.fixture
def rule_folder(room):
    folder = room / "rules" / "gpu"
    folder.mkdir(parents=True)
    (room / "rules" / "__init__.py").write_text('FAMILIES = ("SYS", "GPU")\n')
    (folder / "gpu_lost.py").write_text('CODE = "GPU001"\nREQUIRED_FACTS = ("gpu.count",)\n')
    return folder


def test_the_table_of_rules_is_what_their_modules_state(tool, room, rule_folder):
    (room / "rules" / "sys").mkdir()
    (room / "rules" / "sys" / "clock_wrong.py").write_text('import nowhere\nCODE = "SYS001"\n')
    tool.write(room)
    table = data(room / "rules" / "data" / "codes.py")
    assert list(table["modules"].items()) == [("SYS001", "sys.clock_wrong"), ("GPU001", "gpu.gpu_lost")]
    assert table["required_facts"] == {"GPU001": ("gpu.count",)}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('CODE = "GPU001"\n', "has the code GPU001, which is that of gpu.gpu_lost"),
        ("READS = ()\n", "has no CODE"),
        ('CODE = "G" + N\n', "CODE must be a literal"),
        ('CODE = "XYZ001"\n', "XYZ001 begins with no family"),
    ],
)
def test_a_rule_that_cannot_be_in_the_table_is_refused(tool, room, rule_folder, text, why):
    (rule_folder / "gpu_worn.py").write_text(text)
    with pytest.raises(SystemExit, match=f"gpu_worn.py.*{why}"):
        tool.write(room)


def test_no_contracts_no_index(tool, room):
    tool.write(room)
    assert not (room / "contracts" / "data").exists()


def test_the_command_says_what_is_stale(tool, room, monkeypatch, capsys):
    monkeypatch.setattr(tool, "stale", functools.partial(tool.stale, room))
    monkeypatch.setattr(sys, "argv", [str(TOOL), "--check"])
    assert (tool.main(), capsys.readouterr().out) == (1, "stale: catalog/data/cuda.py\n")
    tool.write(room)
    assert (tool.main(), capsys.readouterr().out) == (0, "fresh\n")


@pytest.mark.parametrize("name", NAMES)
def test_a_module_is_one_literal_and_small(name):
    text = (DATA / f"{name}.py").read_text(encoding="utf-8")
    assert data(DATA / f"{name}.py") == gpuready.catalog.load_catalog(name)
    assert len(text) < 80 * 1024


def data(path: Path):
    """The literal of a generated module, read without running it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return ast.literal_eval(tree.body[-1].value)


def _write_cause(room, name, patterns):
    folder = room / "catalog" / "causes"
    (folder / "phrases").mkdir(parents=True, exist_ok=True)
    (folder / "phrases" / "shared.toml").write_text("")
    head = 'codes = ["SYS001"]\nsays = "a"\nso = "b"\nfix = []\nsource = "c"\n'
    (folder / f"{name}.toml").write_text(f"{head}patterns = [{patterns}]\n")


def test_a_pattern_that_another_cause_claims_is_refused_with_both_names(tool, room):
    _write_cause(room, "first", '"the disk is full"')
    _write_cause(room, "second", '{ says = "The disk  is full", as = "clue" }')
    with pytest.raises(SystemExit, match="first and second both claim the pattern 'the disk is full'"):
        tool.read_cause_files(room)


def test_a_condition_tells_two_causes_with_the_same_text_apart(tool, room):
    _write_cause(room, "first", '{ says = "the disk is full", without = ["/dev/shm"] }')
    _write_cause(room, "second", '{ says = "the disk is full", with = ["/dev/shm"] }')
    assert [data["slug"] for data in tool.read_cause_files(room)] == ["first", "second"]
