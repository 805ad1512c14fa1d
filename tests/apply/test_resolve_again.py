"""Resolutions from the framework's own sources, and those that are asked again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuready.apply.resolve import resolve_plan
from gpuready.model import Contract, Fact, Facts
from gpuready.workflow.judge import make_fault_finder
from tests.apply.asking import contract, need, plan, row

# -- the framework's own sources ------------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "checkout"
    folder.mkdir()
    (folder / "requirements_x.txt").write_text("-r common.txt\nkestrel[fast]>=1 ; python_version >= '3.9'\n./mine\n")
    (folder / "common.txt").write_text("# shared\nwren==2.0  # why\nkestrel<3\nold ; python_version < '3'\n")
    (folder / "setup.py").write_text("raise SystemExit('it was run')")
    return folder


def roll(**fields) -> Contract:
    from gpuready.model import FixStep

    step = FixStep("install", ("pip", "install", "-r", "requirements_x.txt"))
    return Contract("roll", "0.3.0", distribution="roll", steps=(step,), **fields)


def test_the_requirement_files_of_a_checkout_are_read_and_never_run(world, index, checkout):
    for version in ("1.0", "2.5", "3.5"):
        index.add("kestrel", version)
    index.add("wren", "2.0")
    found = resolve_plan(world, plan().replace(framework="roll"), roll(), source=str(checkout))
    assert {(one.name, one.version) for one in found.lock} >= {("kestrel", "2.5"), ("wren", "2.0")}
    assert not [one for one in found.lock if one.name in ("roll", "old")]
    assert any("./mine" in note for note in found.notes)
    assert any("roll itself is not resolved here" in note for note in found.notes)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("requirements_x.txt", "-r ../secret.txt\n"),
        ("requirements_x.txt", "-r requirements_x.txt\n"),
        ("requirements_x.txt", "not a requirement !!\n"),
    ],
)
def test_requirement_files_that_lead_astray_are_refused(world, checkout, file, text):
    (checkout / file).write_text(text)
    (checkout.parent / "secret.txt").write_text("wren\n")
    with pytest.raises(ValueError, match=r"requirements_x|secret"):
        resolve_plan(world, plan(), roll(), source=str(checkout))


def test_a_folder_without_requirements_is_refused(world, tmp_path):
    with pytest.raises(ValueError, match=r"requirements_x\.txt"):
        resolve_plan(world, plan(), roll(), source=str(tmp_path / "home"))


# -- the same again -------------------------------------------------------------------------------------------


def test_the_same_question_is_answered_from_the_cache_and_gives_the_same_rows(world, index):
    first = resolve_plan(world, plan(), contract())
    asked = len(index.asked)
    assert resolve_plan(world, plan(), contract()).lock == first.lock
    assert len(index.asked) == asked


def test_another_question_is_another_answer(world, index, tmp_path):
    resolve_plan(world, plan(), contract())
    asked = len(index.asked)
    index.add("kestrel", "1.0")
    assert row(resolve_plan(world, plan(), contract(need("kestrel", "*"))), "kestrel")
    assert len(index.asked) > asked


def answers(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "home/.cache/gpuready/answers").glob("*.json"))


@pytest.mark.parametrize("damage", ["", "{", "[1]", '{"schema": 1, "digest": "0", "at": 1, "answer": {"rows": []}}'])
def test_a_damaged_answer_is_dropped_and_asked_again(world, tmp_path, damage):
    first = resolve_plan(world, plan(), contract())
    (kept,) = answers(tmp_path)
    kept.write_text(damage)
    assert resolve_plan(world, plan(), contract()).lock == first.lock
    assert json.loads(answers(tmp_path)[0].read_text())["answer"]["rows"]


def test_an_answer_of_yesterday_is_asked_again(world, index, tmp_path):
    resolve_plan(world, plan(), contract())
    (kept,) = answers(tmp_path)
    body = json.loads(kept.read_text())
    kept.write_text(json.dumps(body | {"at": body["at"] - 25 * 3600}))
    index.add("filelock", "5.0")
    world.variables["UV_NO_CACHE"] = "1"
    assert row(resolve_plan(world, plan(), contract()), "filelock").version == "5.0"


def test_without_a_home_it_works_and_keeps_nothing(world, tmp_path):
    world.variables.pop("HOME")
    assert resolve_plan(world, plan(), contract()).lock
    assert not answers(tmp_path)


def test_the_answers_are_the_users_alone(world, tmp_path):
    resolve_plan(world, plan(), contract())
    assert (tmp_path / "home/.cache/gpuready/answers").stat().st_mode & 0o777 == 0o700


def test_nothing_is_left_behind(world, tmp_path):
    resolve_plan(world, plan(), contract())
    assert not list(tmp_path.glob("gpuready-*"))


def test_an_impossible_plan_is_not_asked_about(world, index):
    before = plan().replace(verdict="impossible")
    assert resolve_plan(world, before, contract()) is before and not index.asked


# -- what a check would refuse ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("needs", "releases", "chosen", "why"),
    [
        ({"numpy": "*"}, {"numpy": ("1.26.4", "2.4.6")}, {"numpy": "1.26.4"}, "PKG021"),
        (
            {"numpy": "<2", "pyarrow": "*"},
            {"numpy": ("1.26.4",), "pyarrow": ("25.0.0", "26.0.1")},
            {"pyarrow": "25.0.0", "numpy": "1.26.4"},
            "PKG048",
        ),
        (
            {"peft": "==0.17.1", "transformers": "*"},
            {"peft": ("0.17.1",), "transformers": ("4.51.0", "5.1.0")},
            {"transformers": "4.51.0"},
            "PKG048",
        ),
        ({"transformers": "*"}, {"transformers": ("4.30.0", "5.1.0", "5.23.0")}, {"transformers": "4.30.0"}, "PKG048"),
    ],
)
def test_a_lock_that_check_would_refuse_is_chosen_again(world, index, needs, releases, chosen, why):
    """torch 2.1 is compiled for numpy 1, pyarrow 26 refuses it, peft 0.17 imports what transformers 5 has no more, which turns torch 2.1 off."""
    index.add("torch", "2.1.0")
    for name, versions in releases.items():
        for version in versions:
            index.add(name, version)
    asked = contract(*(need(name, want) for name, want in needs.items()), platforms=("cuda",))
    first = plan(torch="2.1.0+cu121", cuda="12.1", index="pypi", python="3.11")
    machine = Facts([Fact("os.arch", "x86_64", "test", "stated")])
    said = []
    found = resolve_plan(
        world, first, asked, note=lambda text, *_: said.append(text), find_fault=make_fault_finder(machine, asked)
    )
    assert {name: row(found, name).version for name in chosen} == chosen
    assert {*found.held} <= {*chosen} and why in " ".join(found.notes)
    assert any(text.startswith("choosing again") and why in text for text in said)


def test_a_lock_that_check_would_refuse_whatever_is_asked_is_none(world, index):
    index.add("torch", "2.1.0")
    index.add("numpy", "2.4.6")
    asked = contract(need("numpy", ">=2"), platforms=("cuda",))
    first = plan(torch="2.1.0+cu121", cuda="12.1", index="pypi", python="3.11")
    found = resolve_plan(world, first, asked, find_fault=make_fault_finder(Facts([]), asked))
    assert (found.verdict, found.lock) == ("impossible", ())
