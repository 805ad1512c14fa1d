"""A contract drafted from a checkout, a wheel or the index, and judged by `contract check`."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from gpuready.cli import run_command_line as run
from gpuready.contracts import contract_file
from gpuready.model import Contract
from gpuready.workflow.contract_draft import check_contract_file, draft_contract
from gpuready.workflow.refusal import Refused
from tests.apply.wheels import wheel
from tests.contracts import guide_example

PROJECT = """
[project]
name = "Kite-ML"
version = "1.2.3"
requires-python = ">=3.10"
dependencies = ["torch>=2.8,<2.15", "numpy<2; platform_machine != 'aarch64'"]
[project.optional-dependencies]
fast = ["flash-attn>=2.7"]
"""
METADATA = "Metadata-Version: 2.1\nName: kite-ml\nVersion: 1.2.3\nRequires-Dist: torch>=2.8\n"
SOUND = 'framework = "kite"\nversion = "1.2"\norigin = "its README"\n'


@pytest.fixture
def checkout(tmp_path) -> Path:
    folder = tmp_path / "kite"
    (folder / "kite_ml").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "kite_ml" / "__init__.py").write_text("import os\nLINE = os.environ.get('KITE_STRING', 'long')\n")
    return folder


def test_a_checkout_is_read_from_its_project_table(checkout, tmp_path, capsys):
    made = str(tmp_path / "kite.toml")
    assert run(["contract", "new", "kite", str(checkout), "-o", made]) == 0
    assert f"gpuready contract check {made}" in capsys.readouterr().out
    contract = Contract.from_json(contract_file.read_contract_data(made))
    assert (contract.framework, contract.distribution, contract.version) == ("kite", "kite-ml", "1.2")
    wants = {need.key: (need.want, need.when) for need in contract.needs}
    assert wants["package.torch"] == (">=2.8,<2.15", "") and wants["python.version"] == (">=3.10", "")
    assert wants["package.numpy"] == ("<2", "arch!=aarch64")
    assert any("KITE_STRING" in row for row in contract.other_variables)
    assert run(["contract", "check", made]) == 0 and "no faults found" in capsys.readouterr().out


def test_a_draft_replaces_no_file(checkout, tmp_path, capsys):
    kept = tmp_path / "kite.toml"
    kept.write_text("mine")
    assert run(["contract", "new", "kite", str(checkout), "-o", str(kept)]) == 2
    assert "is there already" in capsys.readouterr().err and kept.read_text() == "mine"


def test_a_wheel_is_read_from_its_metadata(tmp_path, capsys):
    wheel = tmp_path / "kite_ml-1.2.3-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("kite_ml/__init__.py", "import os\nos.environ['KITE_LINES'] = '2'\n")
        archive.writestr("kite_ml-1.2.3.dist-info/METADATA", METADATA)
    assert run(["contract", "new", "kite", str(wheel)]) == 0
    (tmp_path / "kite.toml").write_text(capsys.readouterr().out)
    checked = check_contract_file(str(tmp_path / "kite.toml"))
    assert not checked.faults and checked.contract == draft_contract("kite", str(wheel))
    assert checked.contract.origin.startswith("kite-ml 1.2.3 (kite_ml-1.2.3-py3-none-any.whl, sha256 ")
    assert checked.contract.other_variables == ("KITE_LINES set kite_ml/__init__.py:2",)


def test_what_a_build_works_out_is_asked_for(checkout):
    (checkout / "pyproject.toml").write_text('[project]\nname = "kite"\ndynamic = ["version"]\n')
    with pytest.raises(Refused, match=f"gpuready contract new kite==VERSION {checkout}"):
        draft_contract("kite", str(checkout))
    assert draft_contract("kite==1.0.2", str(checkout)).version == "1.0"


@pytest.mark.parametrize(
    ("spec", "source", "says"),
    [
        ("kite==2.0", ".", "is of version 1.2.3, not 2.0"),
        ("../kite", ".", "is not a plain name"),
        ("kite", "pyproject.toml", "is no wheel, source archive or folder of a checkout"),
        ("kite", "nothing", "is no wheel, source archive or folder of a checkout"),
    ],
)
def test_what_cannot_be_drafted_is_one_sentence(checkout, spec, source, says):
    with pytest.raises(Refused, match=says) as refused:
        draft_contract(spec, str(checkout / source))
    assert "\n" not in str(refused.value)


def test_a_release_of_the_index(tmp_path, monkeypatch):
    wheel(tmp_path / "wheels", "kite-ml", "1.4.0", needs=("torch>=2.8",))
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = draft_contract("kite-ml")
    assert found.version == "1.4" and found.requirements_for("package.torch")[0].want == ">=2.8"
    with pytest.raises(Refused, match=r"no index knows kite-ml==9\.9: name a wheel or a checkout after it"):
        draft_contract("kite-ml==9.9")


def faults(tmp_path: Path, text: str) -> tuple[str, ...]:
    (tmp_path / "k.toml").write_text(text)
    return check_contract_file(str(tmp_path / "k.toml")).faults


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ("need = []", "k.toml: the key 'need' is not known: did you mean needs?"),
        ("needs = [", "k.toml is not TOML"),
        ('extends = "nothing-1.0"', "nothing-1.0"),
        ('needs = [{ key = "gpu.count", want = ">=1" }]', '[[needs]] 1 has no source: add cite = "FILE:LINE"'),
        ('steps = [{ does = "a" }]', '[[steps]] 1 has no source: add note = "FILE:LINE"'),
        ('capabilities = [{ name = "cuda", cite = "a" }, { name = "cuda", cite = "b" }]', "names cuda again"),
        (
            'needs = [{ key = "package.torch", want = ">=2.9", cite = "a" }, { key = "package.torch", want = "<2.8", cite = "b" }]',
            "package.torch is required as >=2.9 (a) and as <2.8 (b), which no version meets",
        ),
        (
            'errors = [{ message = "a", cause = "b", fix = "c", code = "XYZ999", cite = "d" }]',
            "has the code XYZ999, which no rule has",
        ),
    ],
)
def test_each_fault_is_a_sentence(tmp_path, rows, fault):
    (found,) = faults(tmp_path, SOUND + rows)
    assert fault in found and found.startswith("k.toml") and "\n" not in found


def test_a_sound_contract_has_no_faults(tmp_path, capsys):
    assert not faults(tmp_path, SOUND)
    assert not faults(tmp_path, guide_example.read_guide_text())
    conditional = '{{ key = "package.torch", want = "{}", when = "{}", cite = "a" }}'
    rows = f"needs = [{conditional.format('>=2.9', 'build')}, {conditional.format('<2.8', 'wants=fp8')}]"
    assert not faults(tmp_path, SOUND + rows), "conditions that may exclude each other are no contradiction"
    assert "origin is missing" in faults(tmp_path, SOUND.replace("origin", "title"))[0]
    assert run(["contract", "check", str(tmp_path / "gone.toml")]) == 2
