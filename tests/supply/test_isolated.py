"""What gpuready starts by itself imports nothing from the current folder: there anybody may have put a json.py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuready.fleet import node_payload, ssh_hosts
from gpuready.fleet.scripts import ray_tasks
from gpuready.fleet.slurm import SlurmTransport
from gpuready.launcher import engines, rank_process
from gpuready.model.run import LaunchJob
from gpuready.system import LiveHost

ROOT = Path(__file__).parents[2]
BASE = os.path.realpath(sys.executable)
TRAPS = (
    "venv",
    "pip",
    "json",
    "gpuready",
    "importlib",
    "hashlib",
    "zipfile",
    "shutil",
    "signal",
    "random",
    "packaging",
)


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder full of modules that leave a mark with the token when they are imported."""
    folder, mark = tmp_path / "checkout", tmp_path / "mark"
    folder.mkdir()
    text = f"import os\nopen({str(mark)!r}, 'a').write(__name__ + ' ' + os.environ.get('GITHUB_TOKEN', '') + '\\n')\n"
    for name in TRAPS:
        (folder / f"{name}.py").write_text(text)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GITHUB_TOKEN", "planted")
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    return mark


def test_a_node_imports_nothing_from_the_folder_that_it_is_in(mark: Path):
    orders = node_payload.NodeOrders({"do": "nothing"}, 5.0, "t0")
    words = ssh_hosts.remote_command(sys.executable, "node-1")
    ran = subprocess.run(["sh", "-c", words], input=node_payload.build_stdin(orders), capture_output=True, timeout=120)
    assert b"@gpuready-t0 hello node-1" in ran.stdout
    assert not mark.exists()


def test_every_engine_starts_a_node_in_isolated_mode(mark: Path):
    data = node_payload.build_stdin(node_payload.NodeOrders({"do": "nothing"}, 5.0, "t0"))
    out = ray_tasks.run_in_worker(node_payload.STARTER, data, "node-1", 30, 1 << 20, sys.executable)
    assert "hello node-1" in out
    command = SlurmTransport(LiveHost(), "t0", python=sys.executable).srun_command(["node-1"], 5.0)
    assert command[-4:] == (sys.executable, "-I", "-c", node_payload.STARTER)
    assert not mark.exists()


def test_the_preflight_of_a_node_imports_nothing_from_the_folder_of_the_job(mark: Path, monkeypatch):
    Path("train.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    job = LaunchJob("slurm", sys.executable, "script", ("train.py",), 1)
    looked = rank_process.preflight_node(engines.node_preflight_command(job), os.environ, [{"LOCAL_RANK": "0"}])
    assert "gap" not in looked, looked
    assert not mark.exists()


def test_the_action_imports_nothing_from_the_checkout(mark: Path, tmp_path: Path):
    """venv and pip are real; pip is told of no index, so that it fails: what it would import, it has imported."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").write_text(f'#!/bin/sh\nexec {BASE} "$@" --without-pip --system-site-packages\n')
    (tmp_path / "bin" / "python3").chmod(0o755)  # the pip of the base: to install another takes 15 s
    env = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "HOME": str(tmp_path)}
    env |= {"RUNNER_TEMP": str(tmp_path / "temp"), "GPUREADY_ACTION": str(ROOT), "GITHUB_TOKEN": "planted"}
    env |= {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "PYTHONPATH": os.getcwd()}
    ran = subprocess.run(["bash", ROOT / "scripts" / "action.sh"], env=env, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 2 and "No matching distribution found" in ran.stderr
    assert not mark.exists()


def test_the_action_installs_by_hash_and_starts_gpuready_isolated(mark: Path, tmp_path: Path):
    asked, temp = tmp_path / "asked", tmp_path / "temp"
    shim = f'#!/bin/sh\necho "$@" >> {asked}\ncase "$*" in *venv*) mkdir -p {temp}/gpuready/bin && cp "$0" {temp}/gpuready/bin/python;; esac\n'
    (tmp_path / "python3").write_text(shim)
    (tmp_path / "python3").chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "RUNNER_TEMP": str(temp), "GPUREADY_ACTION": str(ROOT)}
    subprocess.run(["bash", ROOT / "scripts" / "action.sh"], env=env, check=True, timeout=120)
    venv, locked, ours, *checks = asked.read_text().splitlines()
    assert venv.startswith("-I -m venv ")
    assert locked.startswith("-I -m pip install") and locked.endswith(
        f"--require-hashes -r {ROOT}/requirements/action.txt"
    )
    assert ours.startswith("-I -m pip install") and "--no-deps --no-build-isolation --no-index" in ours
    assert checks and all(line.startswith("-I -m gpuready check") for line in checks)
