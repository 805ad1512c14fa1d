"""`gpuready run` on a real Ray cluster: a node that dies under its ranks, and a cluster without room."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.faults.fleets import Ray
from tests.launcher import engines
from tests.launcher.stage import Stage

pytestmark = pytest.mark.faults
SLEEPS = "import os, time\nprint('here', os.environ['RANK'], os.environ.get('MINE'), flush=True)\ntime.sleep(300)\n"


@pytest.fixture(scope="module")
def ray(tmp_path_factory):
    """Three nodes with one processor each; the second has two GPUs by its word alone."""
    python = engines.environment(tmp_path_factory.mktemp("ray"), "ray[default]")
    with TemporaryDirectory(prefix="tr", dir="/tmp") as short:  # Ray's sockets have short names
        made = Ray(str(python), Path(short), 3, RAY_AUTH_MODE="disabled")
        yield made
        made.close()


def start(ray: Ray, folder: Path, *flags: str):
    stage = Stage(folder, ray.python)
    stage.script(SLEEPS)
    requested = ("--engine", "ray", "--nproc", "1", "--no-preflight", *flags)
    return stage, stage.start(*requested, "--", "train.py", RAY_ADDRESS=ray.address, MINE="of the user", **ray.environ)


def test_h05_no_room_says_what_was_asked_for_and_what_is_free(ray, tmp_path, seen):
    stage, process = start(ray, tmp_path, "--nnodes", "4", "--window", "12")
    began = time.monotonic()
    done = stage.ended(process, 120)
    assert done.code == 1 and "asked for 1 CPU on each of 4 nodes; free are 3 of 3 CPU" in done.words, done.words
    seen("H05", "asked for / free", "asked for 1 CPU on each of 4 nodes; free are 3 of 3 CPU", time.monotonic() - began)


def test_h06_a_node_of_ray_that_dies_is_told_as_that(ray, tmp_path, seen):
    stage, process = start(ray, tmp_path, "--nnodes", "3", "--window", "90")
    for rank in range(3):
        stage.until(f"here {rank} of the user", rank, 120)
    ray.kill(2)
    began = time.monotonic()
    done = stage.ended(process, 120)
    taken = time.monotonic() - began
    assert done.code not in (0, 2) and "no longer heard of" in done.words, done.words
    assert "the program itself failed" not in done.words and "MEM003" not in done.words, done.words
    seen("H06", "the rank and its node are gone", "told as that", taken)
