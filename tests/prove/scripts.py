"""Proofs that go wrong on purpose: each is a script for the runner, written into a folder of the test."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from gpuready.catalog.proofs import ProofSpec
from gpuready.model.proof import ProofResult
from gpuready.prove.runner import RunningProof
from gpuready.system.process.runner import wait_for_any

HEAD = """\
import os, sys
sys.path.insert(0, os.environ["GPUREADY_PROOF_SCRIPTS"])
import proof
"""
TAIL = """
if __name__ == "__main__":
    proof.main(run_proof)
"""
GOOD = """
def run_proof(p):
    p.begin_step("count")
    p.record_number("sum", 2, "equal", 2)
"""


def row(folder: Path, body: str, name: str = "bad", **columns: object) -> ProofSpec:
    """A proof whose script is this body (a function ``act``), or the whole script where it has none."""
    path = folder / f"{name}.py"
    path.write_text(HEAD + body + TAIL if "def run_proof" in body else body)
    settings = {"capability": (name,), "deadline": 30.0, "device": "cpu", "source": "a test"} | columns
    return ProofSpec(name=name, script=str(path), **settings)  # type: ignore[arg-type]


def fake_torch(folder: Path, code: str) -> str:
    """A body that imports a torch of our own making; its package lies beside the script."""
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text(code)
    return f"sys.path.insert(0, {str(folder)!r})\n\ndef run_proof(p):\n    p.torch()\n    p.record_number('x', 1, 'equal', 1)\n"


PYTHON = sys.executable


def dump_soon(body: str) -> str:
    """A body whose stack is printed a second and a half after its begin, whatever the deadline of its process."""
    return "os.environ['GPUREADY_PROOF_DEADLINE'] = '2.1'\n" + body


def run_single_proof(
    row: ProofSpec,
    python: str = "",
    device: str = "cpu",
    variables: Mapping[str, str] | None = None,
    *,
    deadline: float = 0.0,
    ranks: int = 1,
    hung_at: str = "",
) -> ProofResult:
    """Run one proof and wait for its verdict; its deadline is reached when it has written ``hung_at``."""
    child_environment = os.environ if variables is None else variables
    running = RunningProof(row, python or sys.executable, device, child_environment, deadline=deadline, ranks=ranks)
    try:
        while True:
            proof = running.poll_proof()
            if proof is not None:
                return proof
            if hung_at and hung_at in running.processes[0].output_text():
                running.processes[0].ends_at = time.monotonic()
            wait_for_any(running.processes, 0.1 if hung_at else 0.5)
    finally:
        running.close()
