"""The real thing: transformers with a CPU torch, installed by gpuready, and a Trainer that trains in it."""

from __future__ import annotations

import json
import os

import pytest

from gpuready.catalog import proofs
from tests import target_environment
from tests.prove.scripts import run_single_proof


def test_transformers_is_installed_and_trains():
    """In the environment that other tests use for its torch: made here or by the first of them, by the same command."""
    ran = target_environment.install()
    if ran.returncode == 2 and "no lock to install" in ran.stderr:
        pytest.skip(f"NO INDEX: nothing of the real install is tested ({ran.stderr.strip()})")
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr
    found = json.loads(ran.stdout)
    assert found["verdict"] in ("installed", "unchanged") and found["report"]["verdict"] == "clear"
    packages = found["plan"]["packages"]
    assert packages["torch"] == target_environment.TORCH and "accelerate" in packages
    # The environment is believed when it has trained: the proof of the Trainer, as `gpuready prove trainer` runs it.
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    env |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    home = str(target_environment.HOME / "bin" / "python")
    trained = run_single_proof(proofs.find_proof("trainer"), home, "cpu", env, deadline=600)
    assert trained.verdict == "passed" and trained.device == "cpu", trained
    assert trained.numbers["steps"]["value"] == 30
    assert trained.numbers["last_loss"]["value"] < trained.numbers["first_loss"]["value"] / 2
    assert trained.versions["transformers"] == packages["transformers"]
