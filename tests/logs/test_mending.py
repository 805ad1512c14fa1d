"""What mends it: the rule's own fix on the machine that the log is of, and the words of the framework."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuready.workflow.diagnose import diagnose_logs
from gpuready.workflow.diagnosis_fixes import detect_framework
from gpuready.workflow.refusal import Refused

MACHINES = Path(__file__).resolve().parents[1] / "machines"
OLD = b"UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 11000). Please update your GPU driver\n"


def test_the_recorded_machine_confirms_it():
    plain = diagnose_logs([[OLD]], look=False)
    there = diagnose_logs([[OLD]], on=str(MACHINES / "old-driver.json"))
    assert plain.code == there.code == "DRV001"
    assert there.confidence > plain.confidence and any("now" in note for note in there.notes)
    assert len(there.fix) > len(plain.fix) and there.fix[0].run, "the fix is a command for that machine"


def test_a_machine_on_which_it_is_not_so_says_nothing_for_it():
    found = diagnose_logs([[OLD]], on=str(MACHINES / "no-gpu.json"))
    assert found.code == "DRV001" and found.confidence < 0.99


def test_a_recording_that_is_none_is_refused(tmp_path):
    (tmp_path / "m.json").write_text("{}")
    with pytest.raises(Refused):
        diagnose_logs([[OLD]], on=str(tmp_path / "m.json"))


def test_the_framework_is_known_by_its_files():
    text = b'Traceback (most recent call last):\n  File "/w/LLaMA-Factory/src/llamafactory/train/tuner.py", line 3, in f\n    x\nKeyError: 1\n'
    assert diagnose_logs([[text]], look=False).framework == "llama-factory"
    assert diagnose_logs([[text]], framework="axolotl", look=False).framework == "axolotl"


def test_a_log_that_names_this_machine_is_looked_at_here(monkeypatch):
    from gpuready.model import Fact, Facts
    from gpuready.workflow import diagnosis_fixes

    known = Facts(
        [
            Fact("gpu.count", 1),
            Fact("torch.cuda", "13.0"),
            Fact("driver.version", "550.144.03"),
            Fact("driver.compat", None),
        ],
        "node7",
    )
    monkeypatch.setattr(diagnosis_fixes, "_probe_this_machine", lambda: known)
    monkeypatch.setenv("GPUREADY_HOSTNAME", "node7")
    mine = diagnose_logs([[b"[node7:0]:" + OLD]])
    assert mine.here and mine.code == "DRV001" and mine.confidence == 0.99
    assert not diagnose_logs([[b"[node8:0]:" + OLD]]).here


def test_nothing_is_said_of_an_unknown_framework():
    class FakeSummary:
        failures = ()

    assert detect_framework(FakeSummary()) == ""


def test_a_log_does_not_choose_a_program_of_another_user(tmp_path, monkeypatch):
    """The advised command would start it: only a Python of root or of this user is named, or one that is not here."""
    python = tmp_path / "bin/python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\n")
    text = (
        f'Traceback (most recent call last):\n  File "{tmp_path}/lib/python3.12/site-packages/trl/a.py", line 3, in f\n    call()\n'
        "ModuleNotFoundError: No module named 'flash_attn'\n"
    )

    def advised() -> str:
        found = diagnose_logs([[text.encode()]], look=False)
        return " ".join(word for step in found.fix for word in step.run)

    assert str(python) in advised()
    owner = os.getuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert advised() and (str(python) not in advised() or owner == 0)
    monkeypatch.undo()
    if owner == 0:
        os.chown(python, 65534, 65534)
        assert advised() and str(python) not in advised()


def test_a_module_is_installed_by_the_name_of_its_distribution():
    found = diagnose_logs([[b"ModuleNotFoundError: No module named 'skimage'\n"]], look=False)
    assert found.fix[0].run == ("uv", "pip", "install", "scikit-image")
