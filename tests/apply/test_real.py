"""The real thing: packages of a real index, installed by gpuready, and in ``make faults`` a Trainer that trains in what was installed."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from gpuready.catalog import proofs
from tests import target_environment
from tests.prove.scripts import run_single_proof


def read_install(ran: subprocess.CompletedProcess[str]) -> dict:
    """The answer of an install that went well, by packages of a real index."""
    if ran.returncode == 2 and "no lock to install" in ran.stderr:
        pytest.skip(f"NO INDEX: nothing of the real install is tested ({ran.stderr.strip()})")
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr
    found = json.loads(ran.stdout)
    assert found["verdict"] in ("installed", "unchanged") and found["report"]["verdict"] == "clear"
    assert found["plan"]["packages"]["torch"] == target_environment.TORCH
    return found


def test_torch_is_installed():
    """In the environment that other tests use for its torch: made by the first of them, by `gpuready install`."""
    if target_environment.python() != str(target_environment.HOME / "bin" / "python"):
        pytest.skip("OTHER TORCH: the tests were given one")
    code = "from importlib.metadata import version; print(version('numpy'), version('torch'))"
    inside = subprocess.run([target_environment.HOME / "bin/python", "-Ic", code], capture_output=True, text=True)
    planned = json.loads((target_environment.HOME / "current" / "gpuready.json").read_text())["plan"]["packages"]
    assert inside.stdout.split() == [planned["numpy"], target_environment.TORCH] == [planned["numpy"], planned["torch"]]


@pytest.mark.faults
def test_transformers_is_installed_and_trains():
    """Not in ``make test``: to install, to import and to train takes a minute of a whole core."""
    packages = read_install(target_environment.install_transformers())["plan"]["packages"]
    assert "accelerate" in packages
    # The environment is believed when it has trained: the proof of the Trainer, as `gpuready prove trainer` runs it.
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    env |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    home = str(target_environment.TRANSFORMERS / "bin" / "python")
    trained = run_single_proof(proofs.find_proof("trainer"), home, "cpu", env, deadline=600)
    assert trained.verdict == "passed" and trained.device == "cpu", trained
    assert trained.numbers["steps"]["value"] == 30
    assert trained.numbers["last_loss"]["value"] < trained.numbers["first_loss"]["value"] / 2
    assert trained.versions["transformers"] == packages["transformers"]
