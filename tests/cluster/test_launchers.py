"""From the variables of each launcher to one Rendezvous."""

from __future__ import annotations

import pytest

from gpuready.cluster import Rendezvous, discover_rendezvous
from tests.cluster.environments import MPICH, OMPI, SLURM, TORCH, problems

# -- each launcher ------------------------------------------------------------------------------------


def test_nothing_set_is_one_process():
    found = discover_rendezvous({})
    assert found == Rendezvous(local_world_size=1, nodes=1)
    assert (found.world_size, found.port, found.launcher) == (1, 0, "single")


def test_torchrun():
    more = {"TORCHELASTIC_RUN_ID": "run-1", "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "2"}
    found = discover_rendezvous(TORCH | more)
    assert (found.rank, found.world_size, found.local_rank, found.local_world_size) == (3, 4, 1, 2)
    assert (found.node, found.nodes, found.address, found.port) == (1, 2, "gpu-0", 29500)
    assert (found.launcher, found.run_id, found.agent_store, found.restart) == ("torchrun", "run-1", True, 2)


def test_the_run_of_torchrun_that_has_no_name_and_gpureadys_own():
    assert discover_rendezvous(TORCH | {"TORCHELASTIC_RUN_ID": "none"}).run_id == ""
    assert discover_rendezvous(TORCH | {"TORCHELASTIC_RUN_ID": "none", "GPUREADY_RUN_ID": "mine"}).run_id == "mine"


def test_slurm_with_what_it_works_out():
    found = discover_rendezvous(SLURM)
    assert (found.rank, found.world_size, found.local_rank, found.local_world_size) == (5, 6, 1, 2)
    assert (found.node, found.nodes, found.hosts) == (2, 3, ("gpu01", "gpu02", "gpu03"))
    assert (found.address, found.launcher, found.run_id) == ("gpu01", "slurm", "77.0")
    assert (
        found.port == discover_rendezvous(SLURM | {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"}).port
    )
    assert found.port != discover_rendezvous(SLURM | {"SLURM_JOB_ID": "78"}).port
    assert found.describe_expected_rank(4) == "rank 4 (expected on gpu03, local rank 0, srun task 4)"


def test_slurm_with_the_address_of_the_user():
    found = discover_rendezvous(SLURM | {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "1234"})
    assert (found.address, found.port) == ("10.0.0.1", 1234)


def test_the_step_of_slurm_is_nearer_than_the_job():
    step = {
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_STEP_NUM_NODES": "1",
        "SLURM_STEP_NODELIST": "gpu02",
        "SLURM_STEP_TASKS_PER_NODE": "2",
    }
    found = discover_rendezvous(SLURM | step | {"SLURM_PROCID": "1", "SLURM_NODEID": "0"})
    assert (found.rank, found.world_size, found.address, found.local_world_size) == (1, 2, "gpu02", 2)


def test_uneven_nodes_of_slurm():
    found = discover_rendezvous(SLURM | {"SLURM_TASKS_PER_NODE": "3,2,1", "SLURM_LOCALID": "0"})
    assert found.local_world_size == 1 and "expected on gpu02, local rank 1" in found.describe_expected_rank(4)


HYDRA = "MPIR_CVAR_CH3_INTERFACE_HOSTNAME=vm MPI_LOCALNRANKS=2 MPI_LOCALRANKID={local} PMI_FD={file} PMI_RANK={rank} PMI_SIZE=4"
"""All that MPICH 4.0.2 sets: recorded from mpiexec.hydra -n 4 -ppn 2 on two hosts."""


def test_the_variables_of_a_real_hydra():
    for rank in range(4):
        words = HYDRA.format(local=rank % 2, file=6 + rank, rank=rank).split()
        environ = dict(word.split("=", 1) for word in words) | {"MASTER_ADDR": "vm", "MASTER_PORT": "1234"}
        found = discover_rendezvous(environ)
        assert (found.launcher, found.rank, found.world_size) == ("mpich", rank, 4)
        assert (found.local_rank, found.local_world_size, found.node, found.nodes) == (rank % 2, 2, rank // 2, 2)


@pytest.mark.parametrize("environ", [OMPI, MPICH | {"MASTER_PORT": "1234"}], ids=["openmpi", "mpich"])
def test_mpi_on_one_host(environ):
    found = discover_rendezvous(environ)
    assert (found.rank, found.world_size, found.local_rank, found.local_world_size) == (1, 2, 1, 2)
    assert found.address == "127.0.0.1" and found.port


def test_mpi_on_several_hosts_needs_an_address():
    said = problems(OMPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "0"})
    assert "MASTER_ADDR is not set" in said


def test_pmix_rank_completes_slurm():
    found = discover_rendezvous(SLURM | {"PMIX_RANK": "5", "PMI_RANK": "5", "PMI_SIZE": "6"})
    assert (found.rank, found.world_size, found.local_rank, found.launcher) == (5, 6, 1, "slurm")


def test_kubernetes_has_one_process_in_a_pod():
    pod = {
        "RANK": "1",
        "WORLD_SIZE": "3",
        "MASTER_ADDR": "job-master-0",
        "MASTER_PORT": "23456",
        "KUBERNETES_SERVICE_HOST": "10.0.0.1",
    }
    found = discover_rendezvous(pod)
    assert (found.launcher, found.rank, found.local_rank, found.local_world_size, found.node) == (
        "kubernetes",
        1,
        0,
        1,
        1,
    )
    assert discover_rendezvous(pod | {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}).launcher == "torchrun"


def test_ray_train_sets_the_variables_of_torchrun():
    found = discover_rendezvous(TORCH | {"RAY_JOB_ID": "01000000"})
    assert (found.launcher, found.run_id) == ("ray", "01000000")


def test_rank_of_a_node_as_roll_means_it():
    driver = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "head", "MASTER_PORT": "6379"}
    assert "LOCAL_RANK is not set" in problems(driver)
    found = discover_rendezvous(driver, framework="roll")
    assert (found.counts, found.rank, found.node, found.nodes, found.local_rank) == ("nodes", 1, 1, 2, 0)
    worker = discover_rendezvous(TORCH | {"WORKER_NAME": "actor_train-3"}, framework="roll")
    assert (worker.counts, worker.rank) == ("ranks", 3)


def test_roll_on_slurm_is_no_contradiction():
    tasks = {
        "SLURM_PROCID": "1",
        "SLURM_NTASKS": "2",
        "SLURM_STEP_ID": "0",
        "SLURM_NODEID": "1",
        "SLURM_NNODES": "2",
        "SLURM_LOCALID": "0",
    }
    driver = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "head", "MASTER_PORT": "6379"}
    assert discover_rendezvous(tasks | driver, framework="roll").counts == "nodes"
