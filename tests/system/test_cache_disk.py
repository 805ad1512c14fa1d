"""A home on a disk that does not answer costs seconds, never the run; a temporary folder is found elsewhere."""

from __future__ import annotations

import os
import stat
import threading

import pytest

from gpuready.model.proof import ProofRecord
from gpuready.system import AccessError, own_folders
from gpuready.system.process import isolation
from gpuready.workflow import prove


@pytest.fixture
def frozen_home(monkeypatch):
    """Every write below the home waits until the test is over, as on a frozen disk; no thread outlives the test."""
    thawed = threading.Event()
    before = set(threading.enumerate())
    monkeypatch.setattr(own_folders, "_make_writable_folder", lambda *_: thawed.wait() and "")
    monkeypatch.setattr(own_folders, "DISK_SECONDS", 0.2)
    yield
    thawed.set()
    for thread in set(threading.enumerate()) - before:
        thread.join()


@pytest.mark.parametrize("alone", [True, False])
def test_a_frozen_home_is_an_error_in_one_sentence(frozen_home, monkeypatch, alone):
    monkeypatch.setattr(isolation, "is_single_threaded", lambda: alone)
    with pytest.raises(AccessError, match="the disk of the cache does not answer within"):
        own_folders.make_cache_folder({"HOME": "/home/x"}, "proofs")


def test_prove_ends_with_its_home_on_a_frozen_disk(frozen_home):
    path, note = prove._save_evidence(ProofRecord("here", "python", ()).with_digest(), None)
    assert path == "" and note.startswith("the evidence was not kept: the disk of the cache does not answer")


def test_a_cache_that_answers_is_used_and_nothing_stays_of_the_trial(tmp_path):
    folder = own_folders.make_cache_folder({"XDG_CACHE_HOME": str(tmp_path)}, "proofs")
    assert folder == f"{tmp_path}/gpuready/proofs" and os.listdir(folder) == []


def test_a_temporary_folder_without_tmpdir(tmp_path, monkeypatch):
    monkeypatch.setattr(own_folders, "TEMPORARY_PARENTS", (str(tmp_path / "gone"), str(tmp_path)))
    for variables in ({}, {"TMPDIR": str(tmp_path / "missing")}, {"TMPDIR": "relative"}):
        with own_folders.TemporaryFolder(variables) as path:
            assert os.path.dirname(path) == str(tmp_path) and stat.S_IMODE(os.stat(path).st_mode) == 0o700
    with pytest.raises(AccessError, match="no folder can be made"):
        own_folders.TemporaryFolder({}, str(tmp_path / "gone")).__enter__()
