"""The cluster of Ray in a proof: a busy machine is waited for, and what Ray leaves is removed."""

from __future__ import annotations

import json
import os
import textwrap
from pathlib import Path

import pytest

from tests.prove.scripts import row, run_single_proof

BODY = """
sys.path.insert(0, {folder!r})
import ray_actor

def run_proof(p):
    ray_actor.run_in_cluster(p, lambda p, ray: p.record_number("started", ray.starts, "equal", {starts}), "test")
"""
RAY = """
import json, os, subprocess
starts = 0

def init(address, _temp_dir, **words):
    global starts
    starts += 1
    settings = {{name: os.environ[name] for name in os.environ if name.startswith("RAY_")}}
    with open({record!r}, "w") as file:
        json.dump({{"folder": _temp_dir, "settings": settings}}, file)
{does}

def shutdown():
    pass
"""
SLOW = "The current node timed out during startup. This could happen because"


def run_with_ray(folder: Path, does: str, starts: int = 1, **variables: str):
    """Run a proof whose ray does this when it is initialised; return the proof and the record of its ray."""
    record = folder / "record.json"
    (folder / "ray").mkdir()
    (folder / "ray" / "__init__.py").write_text(RAY.format(record=str(record), does=textwrap.indent(does, "    ")))
    (folder / "ray-1.0.dist-info").mkdir()
    (folder / "ray-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: ray\nVersion: 1.0\n")
    proof = run_single_proof(
        row(folder, BODY.format(folder=str(folder), starts=starts)), variables={**os.environ, **variables}
    )
    return proof, json.loads(record.read_text())


@pytest.mark.parametrize(
    ("does", "starts", "verdict"),
    [
        (f"if starts < 3: raise Exception({SLOW!r})", 3, "passed"),
        (f"raise Exception({SLOW!r})", 3, "failed"),
        ("raise Exception('no such thing')", 1, "failed"),
    ],
)
def test_a_node_that_is_slow_to_start_is_started_again(tmp_path, does, starts, verdict):
    proof, _ = run_with_ray(tmp_path, does, starts)
    again = sum(step.startswith("start a local cluster") for step in proof.steps)
    assert (proof.verdict, again) == (verdict, starts), proof


def test_what_a_failed_start_has_begun_is_ended(tmp_path):
    does = f"""
if starts == 1:
    global begun
    begun = subprocess.Popen(["sleep", "60"])
    raise Exception({SLOW!r})
assert begun.wait() == -9
"""
    proof, _ = run_with_ray(tmp_path, does, 2)
    assert proof.verdict == "passed", proof.output


def test_ray_waits_for_its_processes_as_long_as_the_proof_does(tmp_path):
    """The raylet gives its agents 30 seconds, and ended the pipeline of ROLL at a load of 30."""
    proof, record = run_with_ray(tmp_path, "pass", RAY_worker_register_timeout_seconds="7", RAY_ADDRESS="10.0.0.1:6379")
    assert proof.verdict == "passed", proof
    assert int(record["settings"]["RAY_agent_register_timeout_ms"]) >= 600_000
    assert record["settings"]["RAY_worker_register_timeout_seconds"] == "7", "the user's own counts"
    assert "RAY_ADDRESS" not in record["settings"]


def test_a_driver_that_ray_ends_leaves_no_folder(tmp_path):
    """Ray's driver ends with its raylet, by _exit: no handler of the script is run."""
    proof, record = run_with_ray(tmp_path, "os._exit(1)")
    assert proof.verdict == "failed" and "start a local cluster" in proof.why
    assert not Path(record["folder"]).exists()
