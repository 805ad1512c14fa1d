"""Faults under the real engines: srun on several nodes, mpirun, mpiexec of MPICH, Ray, torchrun on two nodes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from tempfile import TemporaryDirectory

import pytest

from tests import target_environment
from tests.launcher import engines
from tests.launcher.stage import MAIN, Stage
from tests.launcher.test_torch import REDUCE
from tests.running import SRC

pytestmark = pytest.mark.faults


@pytest.fixture
def torch_stage(tmp_path):
    return Stage(tmp_path, target_environment.python())


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    engines.program("srun")
    with engines.Slurm(tmp_path_factory.mktemp("slurm"), 4) as made:
        yield made


def test_real_srun_on_four_nodes(slurm, torch_stage, seen):
    torch_stage.script(REDUCE)
    done = torch_stage.run("--engine", "slurm", "--nnodes", "4", "--nproc", "1", "--", "train.py", **slurm.environ)
    assert done.code == 0 and done.out.count("sum 10.0") == 4
    seen("srun", "4 nodes reduce", "sum 10", done.seconds)


def test_real_srun_a_task_that_fails(slurm, torch_stage, seen):
    torch_stage.script(REDUCE + "sys.exit(9) if dist.get_rank() == 2 else dist.barrier()\n")
    done = torch_stage.run(
        "--engine", "slurm", "--nnodes", "2", "--nproc", "2", "--json", "--", "train.py", **slurm.environ
    )
    assert done.code == 9 and done.found["attempts"][0]["first"] == [2]
    seen("srun, A21", "rank 2 first, exit 9", "named, exit 9", done.seconds)


def test_real_srun_a_spare_node_takes_the_place_of_a_lost_one(slurm, torch_stage, seen):
    """Three nodes are allocated and two used; what watches rank 1 dies with its node, and the restart avoids it."""
    torch_stage.script(
        "import os, signal, sys\nfirst = os.environ['TORCHELASTIC_RESTART_COUNT'] == '0'\n"
        "print('begins on', os.environ['SLURMD_NODENAME'], flush=True)\n"
        "import time; time.sleep(1)\n"
        "if first and os.environ['RANK'] == '1': os.kill(os.getppid(), signal.SIGKILL)\n"
        "time.sleep(20 if first else 0)\n"
    )
    flags = ("--engine", "slurm", "--nnodes", "2:3", "--nproc", "1", "--restarts", "1", "--no-preflight")
    words = ["salloc", "-q", "--no-kill", "-N3", sys.executable, "-c", MAIN, "run", *flags, "--", "train.py"]
    env = {**os.environ, "PYTHONPATH": str(SRC), **slurm.environ}
    done = subprocess.run(words, cwd=torch_stage.folder, env=env, capture_output=True, text=True, timeout=120)
    used = [line.rpartition(" ")[2] for line in done.stdout.splitlines() if "begins on" in line]
    assert done.returncode == 0 and used.count("n02") == 1 and "n03" in used[2:], done.stdout + done.stderr
    seen("srun, spare node", "another node takes the place of n02", " ".join(used), 0.0)


def test_real_srun_every_node_is_looked_at_before_its_ranks_begin(tmp_path_factory, torch_stage, seen):
    """One node of three allows few open files; and no node has the GPU that a contract needs."""
    engines.program("srun")
    torch_stage.script("print('began', flush=True)\n")
    requested = ("--engine", "slurm", "--nnodes", "3", "--nproc", "1", "--json")
    with engines.Slurm(tmp_path_factory.mktemp("slurm"), 3, {"n02": 200}) as slurm:
        narrow = torch_stage.run(*requested, "--", "train.py", **slurm.environ)
        bare = torch_stage.run("colossalai", *requested, "--", "train.py", **slurm.environ)
    (note,) = [note for note in narrow.found["attempts"][0]["notes"] if note["kind"] == "unfit"]
    assert narrow.code == 1 and note["says"].startswith("node n02: 200 open files are allowed"), note
    assert note["code"] == "SYS006" and "ulimit -n" in note["fix"] and "began" not in narrow.out
    (note,) = [note for note in bare.found["attempts"][0]["notes"] if note["kind"] == "unfit"]
    assert bare.code == 1 and "nodes n[01-03]: colossalai" in note["says"] and note["code"], note
    seen("srun, preflight", "the node and the contract named", note["says"].replace("|", "/")[:120], bare.seconds)


def test_real_srun_that_cannot_be_placed_is_told_in_time(slurm, torch_stage, seen):
    torch_stage.script("print(1)\n")
    done = torch_stage.run(
        "--engine", "slurm", "--nnodes", "9", "--nproc", "1", "--window", "5", "--", "train.py", **slurm.environ
    )
    assert done.code not in (0, 2) and "srun:" in done.words
    seen("srun, A18", "refused by Slurm, its words shown", "shown", done.seconds)


def test_a19_real_srun_nodes_that_never_come(slurm, torch_stage, seen):
    """One of four tasks cannot start its attendant: its rank is named after the start window."""
    late = "import os, time\nif os.environ.get('SLURM_PROCID') == '3': time.sleep(60)\n"
    (torch_stage.folder / "sitecustomize.py").write_text(late)
    torch_stage.script("print(1)\n")
    requested = ("--engine", "slurm", "--nnodes", "4", "--nproc", "1", "--window", "5", "--no-preflight")
    began = time.monotonic()
    process = torch_stage.start(*requested, "--", "train.py", PYTHONPATH=f"{SRC}:{torch_stage.folder}", **slurm.environ)
    done = torch_stage.ended(process, 40)
    assert done.code == 1 and "missing after 5 s: rank 3" in done.words and "3 of 4 came" in done.words
    seen("A18, A19", "rank 3 named after the window of 5 s", "named", time.monotonic() - began)


def test_real_mpirun(torch_stage, seen):
    engines.program("mpirun")
    torch_stage.script(REDUCE)
    done = torch_stage.run("--engine", "mpi", "--nproc", "3", "--", "train.py")
    assert done.code == 0 and done.out.count("sum 6.0") == 3
    torch_stage.script(REDUCE + "sys.exit(9) if dist.get_rank() == 2 else dist.barrier()\n")
    failed = torch_stage.run("--engine", "mpi", "--nproc", "3", "--json", "--", "train.py")
    assert failed.code == 9 and failed.found["attempts"][0]["first"] == [2]
    seen("mpirun, A21", "sum, then rank 2 first with exit 9", "both", failed.seconds)


def test_real_mpiexec_of_mpich(tmp_path_factory, torch_stage, seen):
    """Hydra gives PMI_RANK and its kin; nothing of Open MPI is there."""
    folder = engines.hydra(tmp_path_factory.mktemp("mpich"))
    libraries = next(folder.glob("root/usr/lib/*-linux-gnu"))
    own = {"PATH": f"{folder}/bin:{os.environ['PATH']}", "LD_LIBRARY_PATH": str(libraries)}
    torch_stage.script(REDUCE)
    done = torch_stage.run("--engine", "mpi", "--nproc", "2", "--", "train.py", **own)
    assert done.code == 0 and done.out.count("sum 3.0") == 2, done.words
    torch_stage.script(REDUCE + "sys.exit(9) if dist.get_rank() == 1 else dist.barrier()\n")
    failed = torch_stage.run("--engine", "mpi", "--nproc", "2", "--json", "--", "train.py", **own)
    assert failed.code == 9 and failed.found["attempts"][0]["first"] == [1]
    seen("mpiexec.hydra, A21", "sum, then rank 1 first with exit 9", "both", failed.seconds)


def test_real_ray(tmp_path, tmp_path_factory, seen):
    python = engines.environment(tmp_path_factory.mktemp("ray"), "ray[default]")
    stage = Stage(tmp_path, str(python))
    stage.script(
        "import os, sys, time\nprint('here', os.environ['RANK'], os.environ['MASTER_PORT'])\nsys.exit(9) if os.environ['RANK'] == '1' else time.sleep(20)\n"
    )
    with TemporaryDirectory(prefix="tr", dir="/tmp") as short:  # Ray's sockets have short names
        own = {"RAY_AUTH_MODE": "disabled", "TMPDIR": short, "RAY_TMPDIR": short, "HOME": str(tmp_path)}
        requested = ("--engine", "ray", "--nproc", "2", "--json")
        done = stage.run(*requested, "--", "train.py", timeout=120, **own)
    assert done.code == 9 and done.found["attempts"][0]["first"] == [1]
    seen("ray, A21", "rank 1 first with exit 9", "named", done.seconds)


def test_a19_a_whole_node_is_missing_under_torchrun(torch_stage, seen):
    from gpuready.rollcall import endpoint

    address = next((a for a in endpoint.list_own_addresses() if ":" not in a), "")
    if not address:
        pytest.skip("NO ADDRESS: this host has none but the loopback")
    torch_stage.script(REDUCE)
    requested = (
        "--nnodes",
        "2",
        "--nproc",
        "1",
        "--node-rank",
        "0",
        "--master",
        f"{address}:{endpoint.find_free_port()}",
        "--window",
        "5",
    )
    done = torch_stage.run(*requested, "--", "train.py")
    assert done.code == 1 and "node 1 is missing at" in done.words and "--node-rank R" in done.words
    assert done.seconds < 5 + 5
    seen("A19", "node 1 named after the window of 5 s", "named", done.seconds)


def test_real_torchrun_on_two_nodes(torch_stage, seen):
    """Two supervisors, each with torchrun's agent, as on two nodes."""
    torch_stage.script(REDUCE + "sys.exit(9) if dist.get_rank() == 3 else dist.barrier()\n")
    from gpuready.rollcall import endpoint

    address = next(iter(endpoint.list_own_addresses()), "")
    if not address:
        pytest.skip("NO ADDRESS: this host has none but the loopback")
    master = (
        f"{address}:{endpoint.find_free_port()}" if ":" not in address else f"[{address}]:{endpoint.find_free_port()}"
    )
    began = time.monotonic()
    both = [
        torch_stage.start(
            "--nnodes",
            "2",
            "--nproc",
            "2",
            "--node-rank",
            str(node),
            "--master",
            master,
            "--log-dir",
            f"node-{node}",
            "--",
            "train.py",
        )
        for node in (0, 1)
    ]
    out = [process.communicate(timeout=90)[0].decode() for process in both]
    assert both[1].returncode == 9 and "failed: rank 3 on here" in " ".join(out[1].split()), out
    assert both[0].returncode != 0 and not torch_stage.left()
    seen("torchrun on 2 nodes", "rank 3 first with exit 9 on its node", "named", time.monotonic() - began)
