"""State beside an environment that this user's gpuready did not write: it is named, and neither believed nor removed."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.running import Run, gpuready
from tests.workflow.test_fix import fix, place, state_of, template, tree, undo  # noqa: F401

EVIL = '#!/bin/sh\ntouch {mark}\nexec {python} "$@"\n'


def plant_copy(at: Path, mark: Path) -> None:
    """A folder that looks like an environment, whose Python leaves a mark."""
    (at / "bin").mkdir(parents=True)
    (at / "pyvenv.cfg").write_text("home = /usr\n")
    (at / "bin/python").write_text(EVIL.format(mark=mark, python=sys.executable))
    (at / "bin/python").chmod(0o755)


def plant_in_place(home: Path, state: Path) -> None:
    state.mkdir()
    (state / "in-place").write_text("")


def plant_exchanged_draft(home: Path, state: Path) -> None:
    plant_copy(state / "draft", home / "started")


def plant_before(home: Path, state: Path) -> None:
    plant_copy(state / "before", home / "started")


def plant_settings(home: Path, state: Path) -> None:
    state.mkdir()
    (state / "settings-path").write_text(str(home / "precious"))
    (state / "settings-before").write_text("echo evil\n")


def plant_record(home: Path, state: Path) -> None:
    plant_copy(state / ("a" * 32), home / "started")
    text = '{"path": "%s", "token": "%s", "phase": "done", "settings_path": "%s"}'
    (state / "record.json").write_text(text % (home / "env", "a" * 32, home / "precious"))


def plant_link_to_copy(home: Path, state: Path) -> None:
    plant_copy(home / "elsewhere", home / "started")
    state.mkdir()
    (state / "before").symlink_to(home / "elsewhere")


def plant_linked_lock(home: Path, state: Path) -> None:
    state.mkdir()
    (state / "lock").symlink_to(home / "precious")


def plant_linked_folder(home: Path, state: Path) -> None:
    plant_copy(home / "elsewhere/before", home / "started")
    state.symlink_to(home / "elsewhere")


PLANTED = (
    plant_in_place, plant_exchanged_draft, plant_before, plant_settings, plant_record, plant_link_to_copy, plant_linked_lock,
    plant_linked_folder,
)  # fmt: skip


def refuses(ran: Run) -> bool:
    said = " ".join((ran.out + ran.err).split())
    return ran.code == 2 and "env.gpuready-fix" in said and "Traceback" not in said


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_planted_state_is_neither_believed_nor_removed(place, plant):  # noqa: F811
    (place / "precious").write_text("mine\n")
    plant(place, place / "env.gpuready-fix")
    before, planted = tree(place / "env"), tree(place / "env.gpuready-fix")
    changed = fix(place, "--yes")
    assert refuses(changed) and "nothing was changed" in changed.out, changed
    taken_back = undo(place)
    assert taken_back.code == 2 and "Traceback" not in taken_back.err, taken_back
    assert tree(place / "env") == before and not (place / "env").is_symlink()
    assert tree(place / "env.gpuready-fix") == planted
    assert (place / "precious").read_text() == "mine\n" and not (place / "started").exists()


@pytest.fixture
def fixed(place):  # noqa: F811
    """An environment that was really fixed: its folder of copies is ours, and has a record."""
    assert fix(place, "--yes").code == 0
    return place


def test_a_draft_planted_beside_a_real_copy_is_not_taken_for_it(fixed):
    copy, new = Path(state_of(fixed).before), tree(fixed / "env")
    plant_copy(fixed / "env.gpuready-fix/draft", fixed / "started")
    assert refuses(undo(fixed)) and tree(fixed / "env") == new and copy.is_dir()
    assert not (fixed / "started").exists()


def test_a_copy_that_became_a_link_is_not_put_back(fixed):
    copy, new = Path(state_of(fixed).before), tree(fixed / "env")
    copy.rename(fixed / "away")
    copy.symlink_to(fixed / "away")
    assert refuses(undo(fixed)) and tree(fixed / "env") == new and not (fixed / "env").is_symlink()


def test_a_planted_mark_in_the_environment_costs_no_copy(place):  # noqa: F811
    """The mark of a draft has the token of this change in its name, which nobody can foresee."""
    (place / "env/.gpuready-draft").write_text("")
    before = tree(place / "env")
    assert fix(place, "--yes").code == 0 and tree(Path(state_of(place).before)) == before
    assert undo(place).code == 0 and tree(place / "env") == before


def test_where_the_record_is_lost_the_copy_is_named_with_the_commands_by_hand(fixed):
    new, copy = tree(fixed / "env"), state_of(fixed).before
    lost = undo(fixed, XDG_STATE_HOME=str(fixed / "other-home"))
    said = " ".join(lost.err.split())
    assert refuses(lost) and f"mv {fixed}/env {fixed}/env.old && mv {copy} {fixed}/env" in said, lost
    assert tree(fixed / "env") == new and Path(copy).is_dir()
    assert undo(fixed).code == 0, "the record itself is still good"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_a_folder_of_another_user_is_left_alone(fixed):
    new = tree(fixed / "env")
    os.chown(fixed / "env.gpuready-fix", 12345, 12345)
    assert refuses(undo(fixed)) and tree(fixed / "env") == new


def test_without_a_copy_to_copy_back_nothing_is_removed(fixed):
    """A replacement in place was interrupted, and its copy is gone: the environment stays as it is."""
    copy, new = state_of(fixed), tree(fixed / "env")
    shutil.rmtree(copy.before)
    copy.state.save(phase="in-place")
    ran = undo(fixed)
    assert ran.code == 2 and "Traceback" not in ran.err and tree(fixed / "env") == new, ran


def test_nothing_was_changed_is_said_only_after_looking(place):  # noqa: F811
    """A change that fails, and leaves a file in the environment on the way."""
    code = (
        "import pathlib, gpuready.workflow.fix_order as o\n"
        "def fail(*_): pathlib.Path('env/left').write_text('x'); raise o.FixFailed('stopped half way')\n"
        "o.FixOrder._change_packages = fail\n"
        "from gpuready.cli import main; main()"
    )
    words = ("fix", "--python", "env", "--contract", "demo.toml", "--find-links", "wheels", "--offline", "--yes")
    ran = gpuready(*words, cwd=place, code=code, HOME=str(place), KITE_STRING="wide")
    assert ran.code == 2 and ran.out.startswith("failed ") and "nothing was changed" not in ran.out, ran
    assert "stopped half way" in ran.out
