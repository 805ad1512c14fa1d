"""Real proofs with a real torch on the CPU: through the command line, once, and what it must show."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import gpuready
from gpuready.model.proof import ProofRecord
from tests import target_environment

SRC = str(Path(gpuready.__file__).parent.parent)


def reported(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {
        **os.environ,
        "PYTHONPATH": SRC,
        "XDG_CACHE_HOME": str(folder / "cache"),
        "COLUMNS": "80",
        "OMP_NUM_THREADS": "1",
    }
    env.pop("CUDA_VISIBLE_DEVICES", None)
    argv = [sys.executable, "-m", "gpuready", "prove", *words, "--python", target_environment.python()]
    return subprocess.run(argv, env=env, capture_output=True, text=True)


@pytest.fixture(scope="module")
def proved(tmp_path_factory):
    """A job for the CPU, which torch is imported for once: ranks that talk, a kernel that is built, a language model in small."""
    folder = tmp_path_factory.mktemp("proved")
    names = ("collectives", "training-step", "extension-jit-cpu")
    ran = reported(folder, *names, "--wants", "cpu")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (kept,) = (folder / "cache" / "gpuready" / "proofs").glob("*.json")
    return ran.stdout, json.loads(kept.read_text())


def proof(evidence: dict, name: str) -> dict:
    return next(p for p in evidence["proofs"] if p["name"] == name)


def test_the_ranks_of_a_proof_talk_for_real(proved):
    ranks = proof(proved[1], "collectives")
    assert ranks["verdict"] == "passed" and ranks["hardware"]["ranks"] >= 2
    assert ranks["hardware"]["backend"] == "gloo" and ranks["numbers"]["send_recv_float32_differ"]["value"] == 0
    assert all(p["device"] == "cpu" for p in proved[1]["proofs"])


def test_a_kernel_is_built_ahead_of_time_and_on_first_use(proved):
    built = proof(proved[1], "extension-jit-cpu")
    assert built["verdict"] == "passed" and built["steps"][-2:] == ["build ahead of time", "build on first use"]
    assert {name for name in built["numbers"] if "65537" in name} == {"prebuilt_65537_error", "built_65537_error"}


def test_ready_is_said_when_all_of_it_ran_and_the_screen_fits(proved):
    """The product of matrices is a part of the language model, and is proved alone by `make faults`."""
    screen, found = proved
    assert screen.startswith("ready: 3 passed  ") and "loss" in screen
    assert all(len(line) <= 80 for line in screen.splitlines())
    numbers = proof(found, "training-step")["numbers"]
    assert numbers["loss_last"]["value"] < 0.5 * numbers["loss_first"]["value"]


def test_what_was_asked_for_and_cannot_run_on_a_cpu_is_refused(tmp_path):
    """fp8 has no proof on a CPU: nothing would be executed, and nothing is said to be well."""
    ran = reported(tmp_path, "fp8", "--wants", "cpu")
    assert (ran.returncode, ran.stdout) == (2, "") and "no proof of fp8 runs on a CPU" in ran.stderr


def test_without_a_gpu_a_gpu_proof_is_absent_and_not_ready(tmp_path):
    """The evidence is whole, printed and in a file."""
    ran = reported(tmp_path, "cuda", "triton", "--json", "-o", str(tmp_path / "evidence.json"))
    found = json.loads(ran.stdout)
    assert ran.returncode == 1 and found["verdict"] == "not-ready"
    for one in found["evidence"]["proofs"]:
        assert one["verdict"] == "absent" and "GPU" in one["why"]
    assert "CAP016" in [f["code"] for f in found["findings"]]
    kept = json.loads((tmp_path / "evidence.json").read_text())
    assert kept["kind"] == "evidence" and kept["digest"] == found["evidence"]["digest"]
    assert ProofRecord.from_json(found["evidence"]).is_intact


@pytest.mark.faults
def test_every_proof_of_torch_that_a_cpu_has(tmp_path):
    """Compilers, data workers and all the rest: minutes of a CPU, and so not of every run."""
    ran = reported(tmp_path, "--wants", "cpu", "--json", "--deadline", "900")
    found = json.loads(ran.stdout)
    passed = {p["name"]: p for p in found["evidence"]["proofs"] if p["verdict"] == "passed"}
    names = {
        "cpu",
        "dataloader",
        "torch-compile",
        "flex-attention",
        "fsdp2",
        "sdpa",
        "matmul-int8",
        "extension-jit-cpu",
    }
    if os.uname().machine != "x86_64":
        names.discard("flex-attention")  # torch compiles it for no other processor
    assert names <= set(passed), found["evidence"]
    assert passed["cpu"]["numbers"]["product_error"]["value"] < 4e-6
    assert passed["dataloader"]["numbers"]["batches_shared"]["value"] == 12
