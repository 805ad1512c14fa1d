"""``gpuready.launch()`` with real torch and real ranks: the world it gives, what it seeds, how it ends, what it refuses."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from tests import target_environment
from tests.deadlines import HANG_S
from tests.ranks import LAUNCH, deterministic_ranks, free_port, ranks, world
from tests.running import SRC

__all__ = ["deterministic_ranks", "ranks"]

SHOW = """
import json, os, random, sys
import numpy, torch
import gpuready
world = gpuready.launch({arguments})
print(json.dumps({{"world": world.to_json(), "draws": [random.random(), float(numpy.random.rand()), float(torch.rand(1))],
                   "own": float(torch.rand(1, generator=world.generator("dropout"))), "same": float(torch.rand(1, generator=world.generator("init", "world"))),
                   "group": float(torch.rand(1, generator=world.generator("tp", [0, 1] if world.rank < 2 else [2, 3]))),
                   "env": {{k: os.environ.get(k) for k in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "CUDA_DEVICE_MAX_CONNECTIONS")}}}}))
"""


def shown(ranks, each, arguments: str = "", **options) -> list[dict]:
    found = ranks.run(*each, code=SHOW.format(arguments=arguments), **options)
    assert [one.code for one in found] == [0] * len(each), found
    return [json.loads(one.out) for one in found]


def refusal(ranks, *each, arguments: str = "", **options) -> str:
    """The sentence with which one process, or each of several, was refused."""
    found = ranks.run(*each, code=LAUNCH.format(arguments=arguments), **options)
    assert [one.code for one in found] == [1] * len(each), found
    assert all("Traceback" not in one.err and "LaunchRefused: " in one.err for one in found)
    return found[0].err.partition("LaunchRefused: ")[2].strip()


# -- the world ----------------------------------------------------------------------------------------


def test_one_process_alone(ranks):
    result = shown(ranks, [{}])[0]["world"]
    assert (result["rank"], result["world_size"], result["local_world_size"], result["device"], result["backend"]) == (
        0,
        1,
        1,
        "cpu",
        "gloo",
    )
    assert result["launcher"] == "single" and result["hosts"] == ["here"] and result["seed"] == 1024


def test_four_ranks(ranks):
    result = shown(ranks, world(4))
    assert [t["world"]["rank"] for t in result] == [0, 1, 2, 3] and {
        t["world"]["local_world_size"] for t in result
    } == {4}
    assert len({tuple(t["draws"]) for t in result}) == 1 and len({t["same"] for t in result}) == 1
    assert len({t["own"] for t in result}) == 4
    assert [t["group"] for t in result[:2]] == [result[0]["group"]] * 2 and result[0]["group"] != result[2][
        "group"
    ] == result[3]["group"]


def test_without_the_number_of_local_ranks_they_are_counted(ranks):
    each = [{k: v for k, v in one.items() if k != "LOCAL_WORLD_SIZE"} for one in world(2)]
    assert {t["world"]["local_world_size"] for t in shown(ranks, each)} == {2}


def test_a_drawn_seed_is_shared(ranks):
    first, other = shown(ranks, world(2), "seed=None"), shown(ranks, world(2), "seed=None")
    assert first[0]["world"]["seed"] == first[1]["world"]["seed"] != other[0]["world"]["seed"]
    assert first[0]["draws"] == first[1]["draws"]


def test_mpi_and_slurm_and_the_names_that_frameworks_read(ranks):
    mpi = [
        {f"OMPI_COMM_WORLD_{k}": v for k, v in {"RANK": r, "SIZE": 2, "LOCAL_RANK": r, "LOCAL_SIZE": 2}.items()}
        | {"MASTER_PORT": p}
        for p in [free_port()]
        for r in range(2)
    ]
    result = shown(ranks, mpi)
    assert result[1]["env"] | {"CUDA_DEVICE_MAX_CONNECTIONS": None} == {
        "RANK": "1",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "2",
        "CUDA_DEVICE_MAX_CONNECTIONS": None,
    }
    slurm = {
        "SLURM_JOB_ID": 5,
        "SLURM_STEP_ID": 0,
        "SLURM_NTASKS": 2,
        "SLURM_NNODES": 1,
        "SLURM_NODELIST": "localhost",
        "SLURM_TASKS_PER_NODE": 2,
        "MASTER_PORT": free_port(),
    }
    result = shown(ranks, [slurm | {"SLURM_PROCID": r, "SLURM_LOCALID": r, "SLURM_NODEID": 0} for r in range(2)])
    assert [t["world"]["launcher"] for t in result] == ["slurm"] * 2


def test_as_colossalai_spells_it(ranks):
    code = SHOW.replace("gpuready.launch({arguments})", "{call}")
    calls = {
        "gpuready.launch_from_torch(seed=7)": world(2),
        "gpuready.launch(rank=int(os.environ['R']), world_size=2, host='127.0.0.1', port=int(os.environ['P']), backend='gloo', seed=7)": [
            {"R": r, "P": p} for p in [free_port()] for r in range(2)
        ],
    }
    for call, each in calls.items():
        found = ranks.run(*each, code=code.format(call=call))
        assert [one.code for one in found] == [0, 0], found
        document = [json.loads(one.out) for one in found]
        assert {t["world"]["seed"] for t in document} == {7} and [t["env"]["RANK"] for t in document] == ["0", "1"]


SLURM = {"SLURM_JOB_ID": 5, "SLURM_STEP_ID": 0, "SLURM_NTASKS": 2, "SLURM_NNODES": 1, "SLURM_NODEID": 0, "SLURM_NODELIST": "localhost", "SLURM_TASKS_PER_NODE": 2}  # fmt: skip


@pytest.mark.parametrize("launcher", ["slurm", "openmpi"])
def test_as_colossalai_spells_it_under_slurm_and_mpi(ranks, launcher):
    """Host and port are given as there; of another launcher's variables nothing is taken."""
    other = {"RANK": "9", "WORLD_SIZE": "10"} if launcher == "slurm" else {}
    each: list[dict[str, object]] = []
    for rank in range(2):
        mpi = {"RANK": rank, "SIZE": 2, "LOCAL_RANK": rank, "LOCAL_SIZE": 2}
        task = {**SLURM, "SLURM_PROCID": rank, "SLURM_LOCALID": rank, **other}
        each.append(task if launcher == "slurm" else {f"OMPI_COMM_WORLD_{k}": v for k, v in mpi.items()})
    call = f"gpuready.launch_from_{launcher}('127.0.0.1', {free_port()}, seed=7)"
    found = ranks.run(*each, code=SHOW.replace("gpuready.launch({arguments})", "{call}").format(call=call))
    assert [one.code for one in found] == [0, 0], found
    worlds = [json.loads(one.out)["world"] for one in found]
    assert [w["rank"] for w in worlds] == [0, 1] and {(w["launcher"], w["seed"]) for w in worlds} == {(launcher, 7)}
    assert "2 ranks on 1 host" in found[0].err, "verbose is on, as it is there"


def test_a_second_way_to_start_is_refused(ranks):
    """colossalai's launch makes a group too, after ours."""
    code = "import torch.distributed as d, gpuready\ngpuready.launch()\nd.init_process_group('gloo')"
    found = ranks.run({}, code=code)[0]
    assert found.code == 1 and "RUN021" in found.err, found


def test_the_variables_of_a_contract(ranks):
    """ColossalAI wants one connection on CUDA; on the CPU there is nothing to set, and an unknown name is a sentence."""
    assert "colossalai" in refusal(ranks, {}, arguments="framework='colosalai'")
    code = "import os\nfrom types import SimpleNamespace as N\nfrom gpuready.runtime.launch import LaunchState\nfrom gpuready.cluster import Rendezvous\nfrom gpuready.runtime.platform import get_platform\ns = LaunchState(Rendezvous(), os.environ)\ns._set_framework_variables(N(__version__='2.8.0'), N(platform=get_platform('cuda')), 'colossalai')\nprint(os.environ['CUDA_DEVICE_MAX_CONNECTIONS'])"
    assert ranks.run({}, code=code)[0].out == "1\n"


AGENT_STORE = """
import datetime, os, torch.distributed as d
s = d.TCPStore('127.0.0.1', int(os.environ['MASTER_PORT']), None, {serves}, datetime.timedelta(seconds=60), False)
"""
"""The store of torchrun's agent, which it serves; or a rank's look into it."""


def test_a_second_start_at_the_store_of_torchrun_does_not_hear_the_first(ranks):
    """The store of the agent outlives the ranks. A real torchrun, which imports torch five times, is tested with `make faults`."""
    under = {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RUN_ID": "job7"}
    first = world(2, TORCHELASTIC_RESTART_COUNT="0", **under)
    again = [one | {"TORCHELASTIC_RESTART_COUNT": "1"} for one in first]
    store = AGENT_STORE.format(serves=True) + "for n in range(2): s.get(f'over-1-{n}')\n"
    look = AGENT_STORE.format(serves=False)
    over = "\ns.set(f\"over-{os.environ['TORCHELASTIC_RESTART_COUNT']}-{world.rank}\", '1')\n"
    code = look + SHOW.format(arguments="seed=None") + over
    wait = look + "for n in range(2): s.get(f'over-0-{n}')\n" + code
    found = ranks.run({"_code": store} | first[0], *first, *(one | {"_code": wait} for one in again), code=code)
    assert [one.code for one in found] == [0] * 5, found
    document = [json.loads(one.out)["world"] for one in found[1:]]
    assert {one["launcher"] for one in document} == {"torchrun"} and [one["rank"] for one in document] == [0, 1, 0, 1]
    assert document[0]["seed"] == document[1]["seed"] != document[2]["seed"] == document[3]["seed"]


@pytest.mark.faults
def test_under_a_real_torchrun_with_a_restart(tmp_path):
    """The agent's store holds the port, and outlives the ranks: a second start must not hear the first."""
    script = tmp_path / "train.py"
    script.write_text("import os, sys, gpuready\nw = gpuready.launch(seed=None)\nos.write(1, f'\\nSEED {w.seed} {w.rank} {w.launcher} {os.environ[\"TORCHELASTIC_RESTART_COUNT\"]}\\n'.encode())\n"
                      "sys.exit(os.environ['TORCHELASTIC_RESTART_COUNT'] == '0' and w.rank == 1)\n")  # fmt: skip
    words = [
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--max-restarts",
        "1",
        "--master-port",
        str(free_port()),
        "--monitor-interval",
        "0.1",
        str(script),
    ]
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1", "HOME": str(tmp_path)}
    ran = subprocess.run([target_environment.python(), *words], env=env, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr[-3000:]
    rows = [line.split() for line in ran.stdout.splitlines() if line.startswith("SEED")]
    seeds = {count: {row[1] for row in rows if row[4] == count} for count in "01"}
    assert sorted(row[2] for row in rows if row[4] == "1") == ["0", "1"] and {row[3] for row in rows} == {"torchrun"}
    assert len(seeds["0"]) == len(seeds["1"]) == 1 and seeds["0"] != seeds["1"]


# -- training -----------------------------------------------------------------------------------------

TRAIN = """
import hashlib, json, os, torch, gpuready
from torch import nn
world = gpuready.launch(deterministic=True)
def digest(tensors):
    return hashlib.sha256(b"".join(t.detach().contiguous().numpy().tobytes() for t in tensors)).hexdigest()
for kind in ("ddp", "fsdp2"):
    model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.1), nn.ReLU(), nn.Linear(16, 1))
    begin = digest(model.parameters())
    if kind == "ddp":
        wrapped = nn.parallel.DistributedDataParallel(model)
    else:
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.device_mesh import init_device_mesh
        wrapped = fully_shard(model, mesh=init_device_mesh("cpu", (world.world_size,)))
    data = world.generator("data")
    best = torch.optim.AdamW(wrapped.parameters(), lr=1e-2)
    losses = []
    for step in range(6):
        x = torch.randn(4, 8, generator=data)
        loss = ((wrapped(x) - x.sum(1, keepdim=True)) ** 2).mean()
        best.zero_grad(); loss.backward(); best.step()
        losses.append(loss.item().hex())
    print(json.dumps({"begin": begin, "losses": losses}))
"""


def test_training_is_the_same_bit_for_bit_when_run_again(deterministic_ranks):
    """DDP, and then FSDP in the same ranks: to start ranks and to import what deterministic training needs takes seconds."""
    runs = []
    for _ in range(2):
        found = deterministic_ranks.run(*world(2), code=TRAIN)
        assert [one.code for one in found] == [0, 0], found
        runs.append([[json.loads(line) for line in one.out.splitlines()] for one in found])
    assert runs[0] == runs[1]
    for ours, theirs in zip(*runs[0], strict=True):
        assert ours["begin"] == theirs["begin"] and ours["losses"] != theirs["losses"]
    assert len(runs[0][0]) == 2


# -- the end ------------------------------------------------------------------------------------------


def test_b08_the_end_needs_no_word_of_the_user(ranks):
    """Without tear-down torch may abort at the end of a good run, with exit code 134."""
    found = ranks.run(*world(2, _whole=True))
    assert [one.code for one in found] == [0, 0] and not any(one.err for one in found), found


def test_it_is_a_context_and_ends_with_it(ranks):
    code = "import torch, gpuready\nwith gpuready.launch() as world:\n    assert torch.distributed.is_initialized()\nassert not torch.distributed.is_initialized()\nworld.close()"
    assert [one.code for one in ranks.run(*world(2), code=code)] == [0, 0]


def test_an_exception_ends_it_too_and_keeps_its_own_text(ranks):
    code = "import gpuready\nwith gpuready.launch() as world:\n    raise KeyError('mine') if world.rank == 1 else SystemExit(0)"
    found = ranks.run(*world(2), code=code)
    assert [one.code for one in found] == [0, 1] and "KeyError: 'mine'" in found[1].err
    bare = "import gpuready\nworld = gpuready.launch()\nraise KeyError('mine')"
    found = ranks.run(*world(2), code=bare)
    assert [one.code for one in found] == [1, 1] and found[0].err.count("Traceback") == 1


def test_a54_rank_0_dies_after_the_roll_call(ranks):
    dying = (
        "import os, signal\nfrom gpuready.runtime import group\ngroup.JobGroup.open_group = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        + LAUNCH.format(arguments="")
    )
    each = world(3)
    each[0] |= {"_code": dying}
    found = ranks.run(*each)
    assert [one.code for one in found] == [-9, 1, 1]
    for one in found[1:]:
        assert f"rank 0 (here, pid {found[0].pid}) is gone" in one.err and one.seconds < HANG_S / 2


# -- exactly once -------------------------------------------------------------------------------------


def test_a_second_call(ranks):
    code = "import gpuready\ngpuready.launch()\n" + LAUNCH.format(arguments="")
    found = ranks.run({}, code=code)[0]
    assert found.code == 1 and "was called before in this process [RUN021]" in found.err


def test_a_group_that_exists_already(ranks):
    code = (
        "import torch.distributed as d\nd.init_process_group('gloo', store=d.HashStore(), rank=0, world_size=1)\n"
        + LAUNCH.format(arguments="")
    )
    found = ranks.run({}, code=code)[0]
    assert found.code == 1 and "somebody called init_process_group before gpuready.launch() [RUN021]" in found.err


def test_a_device_that_was_used_already(ranks):
    code = "import torch\ntorch.cuda.is_initialized = lambda: True\n" + LAUNCH.format(arguments="")
    found = ranks.run({}, code=code)[0]
    assert found.code == 1 and "used cuda before gpuready.launch()" in found.err and "RUN021" in found.err


def test_b07_a_loss_that_is_nan_on_one_rank(ranks):
    code = """
import gpuready, torch
world = gpuready.launch()
world.check_finite(loss=torch.ones(2), norm=0.5)
try:
    world.check_finite(loss=torch.tensor([1.0, float("nan") if world.rank == 1 else 2.0]), norm=1.0)
except FloatingPointError as wrong:
    print(wrong)
"""
    for one in ranks.run(*world(3), code=code):
        assert one.out.strip() == "NaN or infinite: loss of rank 1 (here); on all other ranks it is finite [RUN022]", (
            one
        )


# -- what is asked for --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("device='cuda'", "torch has no cuda here"),
        ("device='tpu'", "'tpu' is not a device that torch supports"),
        ("backend='nccl'", "the backend 'nccl' is not one that this torch has"),
        ("seed=-1", "the seed is -1"),
        ("seed=1.5", "the seed is 1.5"),
        ("window=0", "the argument window is '0'"),
        ("launcher='pdsh'", "no launcher is called 'pdsh'"),
    ],
)
def test_a_wish_that_cannot_be_granted_is_a_sentence(ranks, arguments, said):
    assert said in refusal(ranks, {}, arguments=arguments)


def test_a_wrong_window_in_the_environment(ranks):
    for value in ("soon", "-3", "inf", "nan", ""):
        assert "GPUREADY_START_WINDOW is" in refusal(ranks, {"GPUREADY_START_WINDOW": value})


def test_an_explicit_backend_is_obeyed(ranks):
    assert shown(ranks, [{}], "backend='cpu:gloo'")[0]["world"]["backend"] == "cpu:gloo"
    assert shown(ranks, [{}], "backend='composite'")[0]["world"]["backend"] == "cpu:gloo"


def test_the_limit_of_later_collectives(ranks):
    code = "import gpuready, torch.distributed as d\nw = gpuready.launch({})\nprint(d.distributed_c10d._get_default_group()._get_backend(__import__('torch').device('cpu')).options._timeout)"
    assert ranks.run({}, code=code.format("timeout=77"))[0].out.strip() == "0:01:17"
    assert ranks.run({}, code=code.format(""))[0].out.strip() == "0:30:00"


def test_progress_goes_to_stderr_and_only_when_it_is_asked_for(ranks):
    found = ranks.run(*world(2), code=LAUNCH.format(arguments="verbose=True"))
    assert re.search(r"gpuready: 2 ranks on 1 host, gloo on cpu, seed 1024, \d", found[0].err) and not found[1].err


def test_arguments_that_differ_between_ranks_are_noted_but_for_their_rank(ranks):
    code = "import os, sys\nsys.argv = ['train.py', '--local_rank=' + os.environ['RANK'], '--lr', {value}]\n"
    launch = LAUNCH.format(arguments="verbose=True")
    found = ranks.run(*world(2), code=code.format(value="os.environ['RANK']") + launch)
    assert [one.code for one in found] == [0, 0] and "the arguments differs" in found[0].err, found
    found = ranks.run(*world(2), code=code.format(value="'1e-4'") + launch)
    assert [one.code for one in found] == [0, 0] and "differs" not in found[0].err, found
