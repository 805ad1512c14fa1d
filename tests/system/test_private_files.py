"""Saved text is whole or not there at all, and goes where it was sent."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import pytest

from gpuready.system import AccessError, make_private_folder, save_atomically


def why(path, text="new"):
    with pytest.raises(AccessError) as caught:
        save_atomically(str(path), text)
    return str(caught.value)


def test_a_new_file(tmp_path):
    save_atomically(str(tmp_path / "report.json"), "é\n")
    assert (tmp_path / "report.json").read_bytes() == b"\xc3\xa9\n"
    assert os.listdir(tmp_path) == ["report.json"]


def test_a_file_is_replaced_and_keeps_its_mode(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    path.chmod(0o600)
    save_atomically(str(path), "new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_name_without_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_atomically("here", "text")
    assert (tmp_path / "here").read_text() == "text"


def test_a_link_is_refused_and_what_it_points_to_is_untouched(tmp_path):
    (tmp_path / "precious").write_text("old")
    (tmp_path / "link").symlink_to("precious")
    assert why(tmp_path / "link") == "is a symbolic link"
    assert (tmp_path / "precious").read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["link", "precious"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [("folder", "is a directory"), ("fifo", "not a regular file"), ("no/such/x", "no such file or directory")],
)
def test_other_things_in_the_way(tmp_path, name, reason):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    assert why(tmp_path / name) == reason
    assert sorted(os.listdir(tmp_path)) == ["fifo", "folder"]


def test_a_path_that_is_a_folder(tmp_path):
    assert why(f"{tmp_path}/") == "is a directory"
    assert why(tmp_path / "\0") == "not a path"


FULL = """
import resource, sys
from gpuready.system import AccessError, save_atomically
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    save_atomically(sys.argv[1], "x" * 100_000)
    print("saved")
except AccessError as why:
    print("refused:", why)
"""


def test_a_full_disk_leaves_the_old_text_and_nothing_else(tmp_path):
    (tmp_path / "a").write_text("old")
    said = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "a")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert said.stdout == "refused: file too large\n", said.stderr
    assert (tmp_path / "a").read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_rename_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(28, "No space left on device")

    (tmp_path / "a").write_text("old")
    monkeypatch.setattr(os, "rename", refuse)
    assert why(tmp_path / "a") == "no space left on device"
    assert os.listdir(tmp_path) == ["a"]


def test_an_interrupt_leaves_nothing(tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save_atomically(str(tmp_path / "a"), "new")
    assert os.listdir(tmp_path) == []


def test_a_foreseen_draft_is_not_written_through(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "urandom", lambda n: b"\0" * n)
    (tmp_path / "victim").write_text("old")
    (tmp_path / (".a." + "00" * 8)).symlink_to("victim")
    assert why(tmp_path / "a") == "file exists"
    assert (tmp_path / "victim").read_text() == "old"


def test_a_read_only_folder(open_folder, as_nobody):
    def attempt():
        try:
            save_atomically(str(open_folder / "a"), "new")
        except AccessError as reason:
            return str(reason)

    open_folder.chmod(0o555)
    assert as_nobody(attempt) == "permission denied"


# -- folders of our own


def test_a_private_folder_is_made_and_accepted_again(tmp_path):
    path = str(tmp_path / "cache" / "gpuready")
    assert make_private_folder(path) == path
    assert os.stat(path).st_mode & 0o777 == 0o700
    assert make_private_folder(path) == path


def test_a_folder_that_is_not_ours_alone_is_refused(tmp_path):
    def reason(path):
        with pytest.raises(AccessError) as caught:
            make_private_folder(str(path))
        return str(caught.value)

    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to("open")
    (tmp_path / "file").touch()
    assert reason(tmp_path / "open") == f"open to others; chmod 700 {tmp_path / 'open'}"
    assert reason(tmp_path / "link") == "is a symbolic link"
    assert reason(tmp_path / "file") == "not a directory"
    assert reason(tmp_path / "file" / "x") == "file exists"


def test_a_folder_of_another_user_is_refused(open_folder, as_nobody):
    if os.geteuid() != 0:
        pytest.skip("only root can make a folder for somebody else")
    theirs = open_folder / "theirs"
    theirs.mkdir(mode=0o700)

    def attempt():
        try:
            return make_private_folder(str(theirs))
        except AccessError as reason:
            return str(reason)

    assert as_nobody(attempt) == "belongs to uid 0"


def test_the_limit_of_this_process_is_untouched():
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
