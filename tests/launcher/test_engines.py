"""What each engine is called with, what a script is, and when ranks may be forked."""

from __future__ import annotations

import re

import pytest

from gpuready.launcher import engines, script
from gpuready.launcher.rank_process import read_own_rank
from gpuready.model.run import LaunchJob
from gpuready.workflow import launch_job
from gpuready.workflow.launch_job import choose_run_engine, parse_master
from gpuready.workflow.refusal import Refused


def job(engine: str, **more: object) -> LaunchJob:
    return LaunchJob(
        engine,
        "/v/bin/python",
        "script",
        ("train.py", "--lr", "1"),
        4,
        **{"nnodes": 2, "run_id": "r", "port": 29500} | more,
    )  # type: ignore[arg-type]


def test_torchrun():
    words = engines.engine_command(job("torchrun", node_rank=1, master="gpu-1"))
    assert words[:3] == ["/v/bin/python", "-m", "torch.distributed.run"] and words[-5:] == [
        engines.AGENT_SCRIPT,
        "--",
        "train.py",
        "--lr",
        "1",
    ]
    assert {
        "--nnodes=2",
        "--nproc-per-node=4",
        "--node-rank=1",
        "--master-addr=gpu-1",
        "--master-port=29500",
        "--no-python",
    } <= set(words)
    assert job("torchrun", node_rank=1).expected_ranks == range(4, 8)


def test_slurm_and_mpi():
    words = engines.engine_command(job("slurm"))
    assert words[:4] == ["srun", "--nodes=2", "--ntasks=8", "--ntasks-per-node=4"]
    assert job("slurm").expected_ranks == range(8)
    words = engines.engine_command(job("mpi"))
    assert (
        words[:3] == ["mpirun", "-np", "8"]
        and "ppr:4:node:OVERSUBSCRIBE" in words
        and words[words.index("-x") + 1] == "GPUREADY_ATTEND"
    )
    assert engines.engine_command(job("mpi"), "other")[:5] == ["mpirun", "-np", "8", "-ppn", "4"]


@pytest.mark.parametrize("engine", ["local", "slurm", "mpi", "ray", "torchrun"])
def test_every_engine_hands_on_a_secret(engine):
    """It is new for each run, is in no command line, and stands among no variables that are shown."""
    one = job(engine, nnodes=1)
    made, again = (engines.secret_variables(one, {})[0] for _ in range(2))
    assert made.name == "GPUREADY_TOKEN" and len(made.value) == 32 and made.value != again.value
    assert made.value not in engines.engine_command(one)
    assert "GPUREADY_TOKEN" not in {variable.name for variable in engines.common_variables(one, {})}
    assert engines.secret_variables(one, {"GPUREADY_TOKEN": "mine"})[0].value == "mine"


def test_nodes_with_a_gpuready_each_take_the_secret_of_the_user_alone():
    assert engines.secret_variables(job("torchrun"), {}) == []
    assert engines.secret_variables(job("torchrun"), {"GPUREADY_TOKEN": "mine"})[0].value == "mine"


def test_what_the_user_has_set_stays():
    names = [v.name for v in engines.common_variables(job("local"), {"OMP_NUM_THREADS": "8", "MASTER_PORT": "1"})]
    assert "OMP_NUM_THREADS" not in names and "MASTER_PORT" in names
    assert all(v.why for v in engines.common_variables(job("local"), {}))


@pytest.mark.parametrize(
    ("engine", "environ", "reported"),
    [
        ("slurm", {"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NTASKS": "8", "SLURM_NODEID": "1", "SLURM_NNODES": "2", "SLURM_STEP_TASKS_PER_NODE": "4(x2)"},
         {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "1", "GROUP_WORLD_SIZE": "2"}),
        ("mpi", {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"},
         {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}),
        ("mpi", {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"},
         {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}),
        ("torchrun", {"RANK": "3"}, {}),
    ],
)  # fmt: skip
def test_a_launcher_tells_who_a_rank_is(engine, environ, reported):
    assert read_own_rank(engine, environ) == reported


@pytest.mark.parametrize(
    ("words", "kind", "left", "python"),
    [
        (("train.py", "-x"), "script", ("train.py", "-x"), ""),
        (("-m", "trl.sft", "-x"), "module", ("trl.sft", "-x"), ""),
        (("python", "train.py"), "script", ("train.py",), "python"),
        (("/v/bin/python3.12", "-m", "pack"), "module", ("pack",), "/v/bin/python3.12"),
        (("python", "-u", "train.py"), "program", ("python", "-u", "train.py"), ""),
        (("./job.sh", "-x"), "program", ("./job.sh", "-x"), ""),
        (("-m",), "program", ("-m",), ""),
    ],
)
def test_what_is_to_be_run(words, kind, left, python):
    found = launch_job.parse_command(words)
    assert (found.kind, found.words, found.python) == (kind, left, python)


def test_the_command_to_use_keeps_the_flags_that_were_given():
    flags = {"nproc": "2", "log-dir": "/x", "reap": True, "q": True, "window": None}
    with pytest.raises(Refused, match=re.escape("gpuready run trl --nproc 1 --log-dir /x --reap -q -- train.py")):
        launch_job.parse_command(["torchrun", "train.py"], flags, "trl")


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        ("torchrun --nproc-per-node=2 train.py --lr 1", "gpuready run --nproc 2 -- train.py --lr 1"),
        ("torchrun train.py", "gpuready run --nproc 1 -- train.py"),
        ("/v/bin/python -m torch.distributed.run --nproc_per_node gpu -m pack", "gpuready run --nproc gpu -- -m pack"),
        (
            "torchrun --nnodes 2 --nproc-per-node 4 t.py",
            "--nproc 4 --nnodes 2 --node-rank R --master HOST:PORT -- t.py",
        ),
        ("accelerate launch --num_processes 8 --num_machines 2 t.py", "gpuready run --nproc 4 --nnodes 2"),
        ("deepspeed --num_gpus 2 t.py --deepspeed z.json", "gpuready run --nproc 2 -- t.py --deepspeed z.json"),
        ("axolotl train c.yml", "gpuready run --nproc gpu -- -m axolotl.cli.train c.yml"),
        ("mpirun -np 2 python t.py", "gpuready run --engine mpi -- SCRIPT"),
        ("srun t.py", "gpuready run --engine slurm -- SCRIPT"),
        ("torchrun --no-python ./job.sh", "no script is named after torchrun"),
    ],
)
def test_a_launcher_is_refused_with_the_command_to_use(words, instead):
    """Each of our ranks would start all ranks of the training."""
    with pytest.raises(Refused, match=re.escape(instead)):
        launch_job.parse_command(words.split())


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        (
            "#!/bin/bash\nA=1 exec torchrun \\\n  --nproc-per-node 2 train.py --lr 1",
            "gpuready run --nproc 2 -- train.py --lr 1",
        ),
        (
            "#!/bin/sh\ncd x && python -m torch.distributed.run --nproc-per-node=4 -m pack",
            "gpuready run --nproc 4 -- -m pack",
        ),
        ("#!/bin/sh\n# torchrun train.py\necho 'no torchrun train.py'; python train.py", ""),
        ("#!/usr/bin/python3\ntorchrun = 1", ""),
        (
            "#!/bin/bash\nnohup deepspeed --num_gpus 2 t.py --note 'a; b' > log 2>&1 &",
            "--nproc 2 -- t.py --note 'a; b'",
        ),
    ],
)
def test_a_shell_script_that_starts_a_launcher_is_seen(tmp_path, text, instead):
    (tmp_path / "launch.sh").write_text(text)
    said = launch_job.find_launcher_in_script([str(tmp_path / "launch.sh")])
    assert instead in said and bool(said) is bool(instead)


@pytest.mark.parametrize(
    ("text", "nproc", "torch", "forks", "why"),
    [
        ("import torch\n", 2, True, True, "imported once"),
        ("import torch\n", 1, True, False, "one rank"),
        ("import torch\n", 2, False, False, "no torch"),
        ("print(1)\n", 2, True, False, "nothing that needs torch"),
        ("import os\nos.environ['OMP_NUM_THREADS'] = '4'\nimport torch\n", 2, True, False, "before torch"),
        ("import os\nos.environ.setdefault('A_B', '1')\nfrom torch import nn\n", 2, True, False, "before torch"),
        ("import settings\nimport torch\n", 2, True, False, "before torch"),
        ("import torch\nimport os\nos.environ['A_B'] = '1'\n", 2, True, True, "imported once"),
        ("import os\nif os.environ['RANK'] == '0': pass\nimport torch\n", 2, True, True, "imported once"),
    ],
)
def test_when_ranks_may_be_forked(tmp_path, monkeypatch, text, nproc, torch, forks, why):
    (tmp_path / "train.py").write_text(text)
    (tmp_path / "settings.py").write_text("import os\nos.environ['A_B'] = '1'\n")
    may, said = script.can_fork_ranks("script", [str(tmp_path / "train.py")], nproc, torch)
    assert may is forks and why in said
    monkeypatch.chdir(tmp_path)
    assert script.can_fork_ranks("module", ["settings"], 2, True)[0] is False
    assert script.can_fork_ranks("program", ["x"], 2, True)[0] is False
    assert script.can_fork_ranks("module", ["x"], 2, True)[0] is True


def test_torchrun_does_not_take_the_operators_variables_for_flags():
    """PET_STANDALONE or PET_RDZV_BACKEND=c10d would win over --master-addr; scripts that read them still find them."""
    environ = {"PET_RDZV_BACKEND": "c10d", "PET_NNODES": "2", "HOME": "/root"}
    kept, more = engines.split_torchrun_defaults(job("torchrun"), environ)
    assert kept == {"HOME": "/root"} and {v.name: v.value for v in more} == {
        "PET_RDZV_BACKEND": "c10d",
        "PET_NNODES": "2",
    }
    assert engines.split_torchrun_defaults(job("local"), environ) == (environ, [])


SLURM = {"SLURM_JOB_ID": "77", "SLURM_NNODES": "2", "SLURM_JOB_NODELIST": "gpu-[1-2]", "SLURM_NODEID": "1"}


@pytest.mark.parametrize(
    ("asked", "nodes", "environ", "found"),
    [
        (None, None, {}, ("local", None, None, "")),
        (None, 2, {}, ("torchrun", 2, None, "")),
        ("torchrun", None, {}, ("torchrun", None, None, "")),
        (None, None, SLURM, ("slurm", 2, 0, "")),
        (None, None, {"SLURM_JOB_ID": "7", "SLURM_NNODES": "1"}, ("local", None, None, "")),
        (None, None, SLURM | {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2"}, ("torchrun", 2, 1, "gpu-1:20077")),
    ],
)
def test_which_engine(asked, nodes, environ, found):
    assert choose_run_engine(asked, nodes, None, environ) == found


def test_gpuready_in_every_task_of_srun_is_refused():
    with pytest.raises(Refused, match="once on each node"):
        choose_run_engine(None, None, None, SLURM | {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "8"})


@pytest.mark.parametrize("name", ["SLURM_NNODES", "SLURM_STEP_NUM_TASKS", "SLURM_NODEID", "SLURM_JOB_ID"])
@pytest.mark.parametrize("text", ["abc", "-1", "2(x3)", "1_0", "9" * 40, "\u0662"])
def test_a_variable_of_slurm_that_is_no_number_is_named(name, text):
    inside = SLURM | {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2"}
    with pytest.raises(Refused, match=f"{name} is .*not a whole number"):
        choose_run_engine(None, None, None, inside | {name: text})


def test_the_master():
    assert parse_master("[::1]:29500", 2, "torchrun") == ("::1", 29500, True)
    assert parse_master("gpu-1:29500", 2, "torchrun") == ("gpu-1", 29500, True)
    with pytest.raises(Refused):
        parse_master("::1:29500", 2, "torchrun")
    host, port, requested = parse_master(None, 1, "local")
    assert host == "127.0.0.1" and port > 0 and not requested
