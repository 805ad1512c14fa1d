"""`gpuready fleet` through real engines: Slurm with four slurmd, a Ray cluster of five nodes."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time

import pytest

from tests import target_environment
from tests.faults.fleets import SRC, Ray, gpuready, kept
from tests.launcher import engines

pytestmark = pytest.mark.faults


def fleet(folder, *words: str, timeout: float = 400, **env: str) -> tuple[dict, float]:
    began = time.monotonic()
    whole = {**os.environ, "PYTHONPATH": str(SRC), "XDG_CACHE_HOME": str(folder), **env}
    done = subprocess.run(
        gpuready("fleet", *words, "--json"), capture_output=True, text=True, env=whole, timeout=timeout
    )
    assert "Traceback" not in done.stderr and done.stdout, done.stderr
    return json.loads(done.stdout), time.monotonic() - began


# -- Slurm ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    engines.program("srun")
    with engines.Slurm(tmp_path_factory.mktemp("slurm"), 4) as made:
        yield made


def scontrol(slurm, *words: str) -> None:
    subprocess.run(["scontrol", *words], check=True, capture_output=True, env={**os.environ, **slurm.environ})


def test_slurm_asks_every_node_and_shows_what_is_drained(slurm, tmp_path, seen):
    found, seconds = fleet(tmp_path, "check", "transformers", **slurm.environ)
    assert found["states"] == {"answered": "n[01-04]"} and found["transport"] == "slurm"
    assert any("sinfo and srun are here" in note for note in found["notes"])
    scontrol(slurm, "update", "nodename=n03", "state=drain", "reason=Xid 79")
    drained, later = fleet(tmp_path, "drift", **slurm.environ)
    scontrol(slurm, "update", "nodename=n03", "state=resume")
    assert drained["states"] == {"answered": "n[01-02,04]", "drained": "n03"}, drained["states"]
    assert any("Xid 79" in reason for reason in drained["reasons"])
    kept("slurm: check on 4 nodes", seconds=round(seconds, 2), seconds_with_one_drained=round(later, 2))
    seen("G12, Slurm", "4 nodes answer; one drained is shown", str(drained["states"]), seconds)


def test_slurm_inside_an_allocation_and_pairs_that_reduce(slurm, tmp_path, seen):
    """salloc gives the nodes; gpuready finds them by itself, and its steps share them."""
    began = time.monotonic()
    env = {**os.environ, "PYTHONPATH": str(SRC), "XDG_CACHE_HOME": str(tmp_path), **slurm.environ}
    words = ["fleet", "bisect", "--python", target_environment.python(), "--timeout", "60", "--json"]
    done = subprocess.run(
        ["salloc", "-N3", "--quiet", *gpuready(*words)], capture_output=True, text=True, env=env, timeout=400
    )
    found = json.loads(done.stdout)
    assert any("inside Slurm's allocation" in note for note in found["notes"])
    assert found["nodes"] == 3 and {pair["outcome"] for pair in found["pairs"]} == {"passed"}, found["pairs"]
    assert not found["suspects"]
    kept(
        "slurm: bisect on 3 nodes of an allocation", seconds=round(time.monotonic() - began, 1), rounds=found["rounds"]
    )
    seen("Slurm", "pairs of an allocation reduce", f"{found['rounds']} rounds passed", time.monotonic() - began)


def test_slurm_a_node_whose_daemon_dies_is_named_and_the_rest_complete(slurm, tmp_path, seen):
    slurm.started[-1].kill()
    slurm.started[-1].wait()
    found, seconds = fleet(tmp_path, "drift", "--timeout", "20", **slurm.environ)
    states = dict(found["states"])
    assert states.pop("answered", "") == "n[01-03]" and list(states.values()) == ["n04"], found["reasons"]
    kept("slurm: one of 4 slurmd is dead", seconds=round(seconds, 2), reasons=found["reasons"])
    seen("Slurm", "n04 named, three answer", str(found["reasons"]), seconds)


# -- Ray --------------------------------------------------------------------------------------------------

TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef" * 2}


@pytest.fixture(scope="module")
def ray(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ray")
    python = engines.environment(folder, "ray[default]")
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="tr", dir="/tmp") as short:  # Ray's sockets have short names
        from pathlib import Path

        made = Ray(str(python), Path(short), 5, **TOKEN)
        yield made
        made.close()


def reach(ray) -> tuple[str, ...]:
    return ("--engine", "ray", "--address", ray.address, "--python", ray.python)


def test_g13_ray_with_a_token_and_nodes_without_a_gpu(ray, tmp_path, seen):
    found, seconds = fleet(tmp_path, "drift", *reach(ray), **ray.environ)
    assert found["states"] == {"answered": "n[0-4]"}, (found["states"], found["reasons"])
    kept("ray: drift on 5 nodes, token on", seconds=round(seconds, 2))
    seen("G13", "5 nodes answer with a token", str(found["states"]), seconds)


def test_g13_ray_without_the_token_is_refused_in_one_sentence(ray, tmp_path):
    env = {**os.environ, "PYTHONPATH": str(SRC), "XDG_CACHE_HOME": str(tmp_path), **ray.environ}
    env |= {"RAY_AUTH_TOKEN": "f" * 32}
    done = subprocess.run(gpuready("fleet", "drift", *reach(ray)), capture_output=True, text=True, env=env, timeout=200)
    assert (
        done.returncode == 2
        and done.stderr.startswith("gpuready: no cluster answers here: Ray does not answer: ")
        and done.stderr.count("\n") == 1
    )


def test_ray_as_a_job_through_the_dashboard(ray, tmp_path, seen):
    words = ("--engine", "ray", "--address", f"http://127.0.0.1:{ray.port}", "--python", ray.python)
    found, seconds = fleet(tmp_path, "drift", *words, **ray.environ)
    assert found["states"] == {"answered": "n[0-4]"}, (found["states"], found["reasons"])
    kept("ray: drift on 5 nodes as a Ray job", seconds=round(seconds, 2))
    seen("Ray job", "5 nodes answer", str(found["states"]), seconds)


def test_g13_a_node_of_ray_that_is_killed_in_the_middle_is_named(ray, tmp_path, seen):
    """Node 3 is busy with its answer when its raylet is killed."""
    mark = tmp_path / "begun"
    python = tmp_path / "python"
    wait = f": > {mark}; exec sleep 600"
    python.write_text(f'#!/bin/sh\nfor last; do :; done\n[ "$last" != n3 ] || {{ {wait}; }}\nexec {ray.python} "$@"\n')
    python.chmod(0o755)

    def kill() -> None:
        until = time.monotonic() + 240
        while not mark.exists() and time.monotonic() < until:
            time.sleep(0.1)
        ray.kill(3)

    thread = threading.Thread(target=kill)
    thread.start()
    from gpuready import system
    from gpuready.fleet.ray_cluster import RayTransport as Transport

    began = time.monotonic()
    variables = {**os.environ, **ray.environ}
    transport = Transport(
        system.LiveHost(), "t1", address=ray.address, interpreter=ray.python, python=str(python), variables=variables
    )
    answers: dict = {}
    transport.ask_nodes(
        transport.list_nodes(),
        {"schema": 1, "do": "fingerprint", "token": "t1"},
        300.0,
        lambda a: answers.__setitem__(a.node, a),
    )
    thread.join()
    seconds = time.monotonic() - began
    assert mark.exists() and sorted(answers) == ["n0", "n1", "n2", "n3", "n4"]
    assert {n: a.kind for n, a in answers.items() if a.kind != "answered"} == {"n3": "dead"}, answers
    kept(
        "ray: one of 5 nodes is killed while it answers",
        seconds=round(seconds, 2),
        why=answers["n3"].why.partition(". ")[0],
    )
    seen("G13", "n3 dead, four answer", answers["n3"].why, seconds)
