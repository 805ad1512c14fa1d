"""Arguments, several launchers at once, and mistakes: each is taken or told in a sentence."""

from __future__ import annotations

import pytest

from gpuready.cluster import discover_rendezvous
from tests.cluster.environments import OMPI, SLURM, TORCH, problems

# -- arguments ----------------------------------------------------------------------------------------


def test_arguments_win():
    found = discover_rendezvous(SLURM, arguments={"rank": 1, "world_size": 2, "host": "[::1]", "port": 4000})
    assert (found.rank, found.world_size, found.address, found.port, found.launcher) == (1, 2, "::1", 4000, "arguments")
    assert found.local_rank is None


def test_the_local_rank_of_a_launcher_that_agrees_is_taken():
    found = discover_rendezvous(TORCH, arguments={"rank": 3, "world_size": 4, "host": "a", "port": 1})
    assert found.local_rank == 1


def test_arguments_that_are_wrong():
    said = problems({}, arguments={"rank": -1, "world_size": 2, "host": "a b", "port": 70000})
    assert "the argument rank is -1" in said and "the argument host" in said and "the argument port is 70000" in said


# -- several launchers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "outer",
    [
        {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_STEP_ID": "0", "SLURM_NNODES": "2", "SLURM_NODEID": "1", "SLURM_LOCALID": "0"},
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "16", "SLURM_LOCALID": "0", "SLURM_NNODES": "2"},
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_STEP_ID": "3", "SLURM_LOCALID": "0"},
        {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"},
        {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_STEP_ID": "0", "SLURM_LOCALID": "1"},
    ],
    ids=["srun torchrun on each node", "torchrun in a batch script", "one srun task", "mpirun torchrun", "they agree"],
)  # fmt: skip
def test_a_launcher_that_was_started_by_another(outer):
    assert discover_rendezvous(TORCH | outer).rank == 3


def test_launchers_that_contradict_each_other():
    differing = (
        SLURM | {"SLURM_PROCID": "2", "SLURM_LOCALID": "0", "SLURM_NODEID": "1"} | OMPI | {"OMPI_COMM_WORLD_SIZE": "3"}
    )
    said = problems(TORCH | differing)
    first, *table = said.split("\n")
    assert "torchrun and openmpi and slurm say different things" in first and "NET006" in first
    assert [row.split()[0] for row in table[1:4]] == ["torchrun", "openmpi", "slurm"]
    assert "would win" in said and "GPUREADY_LAUNCHER" in said
    assert discover_rendezvous(TORCH | differing, "torchrun").rank == 3
    assert discover_rendezvous(TORCH | differing, "slurm").rank == 2
    assert discover_rendezvous(TORCH | differing | {"GPUREADY_LAUNCHER": "openmpi"}).rank == 1


def test_ranks_that_look_like_nodes():
    tasks = SLURM | {"SLURM_PROCID": "5", "SLURM_NODEID": "2", "SLURM_NNODES": "3"}
    said = problems(tasks | {"RANK": "2", "WORLD_SIZE": "3", "LOCAL_RANK": "0", "MASTER_ADDR": "a", "MASTER_PORT": "1"})
    assert "numbers of nodes, as ROLL means them" in said


def test_a_size_that_was_exported_for_slurm_must_agree():
    assert discover_rendezvous(SLURM | {"WORLD_SIZE": "6"}).world_size == 6
    assert "say different things" in problems(SLURM | {"WORLD_SIZE": "4"})


def test_a_forced_launcher():
    assert "none of its variables is set" in problems(TORCH, launcher="slurm")
    assert "no launcher is called 'pdsh'" in problems(TORCH, launcher="pdsh")
    assert discover_rendezvous(TORCH, "single").world_size == 1
    assert (
        discover_rendezvous(
            {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}, "kubernetes"
        ).local_rank
        == 0
    )


# -- mistakes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE", "LOCAL_RANK"])
@pytest.mark.parametrize("value", [None, "", "0x1", "1.0", "-1", " 1", "١", "1e0", "9" * 30, "one"])
def test_a_number_that_is_none(name, value):
    environ = {k: v for k, v in TORCH.items() if k != name} | ({} if value is None else {name: value})
    said = problems(environ)
    assert f"{name} is" in said and "\n" not in said
    if value is not None:
        assert "not set" not in said


def test_all_problems_at_once():
    said = problems({"RANK": "x", "WORLD_SIZE": "0", "LOCAL_RANK": "-1", "MASTER_ADDR": "a b", "MASTER_PORT": "0"})
    for name in ("RANK is 'x'", "WORLD_SIZE is 0", "LOCAL_RANK is '-1'", "MASTER_ADDR", "MASTER_PORT is 0"):
        assert name in said
    assert "not set" not in said


def test_ranks_are_below_their_sizes():
    assert "RANK is 4 and WORLD_SIZE 4" in problems(TORCH | {"RANK": "4"})
    assert "LOCAL_RANK is 2 and LOCAL_WORLD_SIZE 2" in problems(TORCH | {"LOCAL_RANK": "2"})
    assert "LOCAL_WORLD_SIZE is 8 and WORLD_SIZE only 4" in problems(TORCH | {"LOCAL_WORLD_SIZE": "8"})


@pytest.mark.parametrize("value", ["0", "99999", "abc", "", " 29500 ", "-1", "tcp://10.0.0.1:80", "29500.0"])
def test_a_port_that_is_none(value):
    said = problems(TORCH | {"MASTER_PORT": value})
    assert said.startswith("this process cannot be placed in its job: MASTER_PORT is") and "NET007" in said
    assert discover_rendezvous({"MASTER_PORT": value}).world_size == 1


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "::1"),
        ("[::1]", "::1"),
        (" 127.0.0.1 ", "127.0.0.1"),
        ("gpu-1\n", "gpu-1"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("node_3.cluster.local.", "node_3.cluster.local."),
    ],
)
def test_an_address_made_plain(text, plain):
    found = discover_rendezvous(TORCH | {"MASTER_ADDR": text})
    assert found.address == plain and bool(found.notes) == (text != text.strip())


@pytest.mark.parametrize(
    "text",
    ["", "  ", "a b", "a\nb", "tcp://x", "0.0.0.0", "::", "fe80::1", "999.1.1.1", "1.2.3", "host:29500", "-" * 300, "a..b", "<script>", "\x1b[2J", "[::1", "::g"],
)  # fmt: skip
def test_an_address_that_is_none(text):
    said = problems(TORCH | {"MASTER_ADDR": text})
    assert "MASTER_ADDR is" in said and said.isprintable()


def test_a_port_that_stands_with_the_address():
    assert "write gpu-1 there, and 29500 to MASTER_PORT" in problems(TORCH | {"MASTER_ADDR": "gpu-1:29500"})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"SLURM_JOB_NODELIST": "n[01-03,7]"}, "names 4 hosts (n01, n02, n03, n7) and the job has 3"),
        ({"SLURM_TASKS_PER_NODE": "2(x2)"}, "adds up to 4 and SLURM_NTASKS is 6"),
        ({"SLURM_TASKS_PER_NODE": "", "SLURM_NTASKS_PER_NODE": "4"}, "4 tasks on each of 3 nodes are 12"),
        ({"SLURM_TASKS_PER_NODE": "two"}, "not a list such as"),
        ({"SLURM_JOB_NODELIST": "n[1-"}, "brackets"),
        ({"SLURM_NTASKS": "x"}, "SLURM_NTASKS is 'x'"),
    ],
)
def test_sums_of_slurm_that_do_not_agree(change, said):
    text = problems(SLURM | change)
    assert said in text and "RUN004" in text


def test_a_batch_script_is_told_to_use_srun():
    found = discover_rendezvous(
        {k: v for k, v in SLURM.items() if k != "SLURM_STEP_ID"} | {"SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
    )
    assert any("start the ranks with srun" in note for note in found.notes)
