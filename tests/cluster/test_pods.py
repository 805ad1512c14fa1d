"""Pods of PyTorchJob, TrainJob, JobSet and Indexed Jobs: which rank a process is, and which node `run` starts.

The variables are those of the operators' code: kubeflow/training-operator pkg/controller.v1/pytorch (envvar.go, master.go, elastic.go),
kubeflow/trainer pkg/runtime/framework/plugins/torch/torch.go, kubernetes-sigs/jobset examples/pytorch; JOB_COMPLETION_INDEX is
Kubernetes' own. No cluster was asked.
"""

from __future__ import annotations

import pytest

from gpuready.cluster import RendezvousUnclear, discover_rendezvous
from gpuready.cluster.address import read_pod_nodes
from gpuready.workflow.launch_job import choose_run_engine
from gpuready.workflow.refusal import Refused

POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
MASTER = {"MASTER_ADDR": "sft-master-0", "MASTER_PORT": "23456"}
PET_MASTER = {"PET_MASTER_ADDR": "sft-master-0", "PET_MASTER_PORT": "23456"}


def pytorchjob(rank: int, pods: int, each: str = "auto") -> dict[str, str]:
    """As the training operator 1.9 sets them: WORLD_SIZE counts processes, RANK counts pods."""
    world = pods * (int(each) if each.isdigit() else 1)
    own = {"RANK": str(rank), "WORLD_SIZE": str(world), "PYTHONUNBUFFERED": "1"}
    pet = {"PET_NNODES": str(pods), "PET_NODE_RANK": str(rank), "PET_NPROC_PER_NODE": each}
    return {**POD, **MASTER, **PET_MASTER, **own, **pet}


def trainjob(rank: int, pods: int, each: str) -> dict[str, str]:
    pet = {"PET_NNODES": str(pods), "PET_NODE_RANK": str(rank), "PET_NPROC_PER_NODE": each}
    where = {"PET_MASTER_ADDR": "sft-node-0-0.sft", "PET_MASTER_PORT": "29500"}
    return {**POD, **pet, **where, "JOB_COMPLETION_INDEX": str(rank)}


OLD_PYTORCHJOB = {**POD, **MASTER, "RANK": "2", "WORLD_SIZE": "3", "PYTHONUNBUFFERED": "0"}
JOBSET = {**POD, "MASTER_ADDR": "sft-workers-0-0.sft", "MASTER_PORT": "3389", "JOB_COMPLETION_INDEX": "3"}
ELASTIC = {**POD, "PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": "sft-worker-0:23456", "PET_NNODES": "1:3"}


@pytest.mark.parametrize(
    ("environ", "rank", "world", "address", "port"),
    [
        (pytorchjob(1, 2, "1"), 1, 2, "sft-master-0", 23456),
        (pytorchjob(1, 2), 1, 2, "sft-master-0", 23456),
        (OLD_PYTORCHJOB, 2, 3, "sft-master-0", 23456),
        (trainjob(3, 4, "1"), 3, 4, "sft-node-0-0.sft", 29500),
        (trainjob(0, 4, "auto"), 0, 4, "sft-node-0-0.sft", 29500),
        (JOBSET | {"WORLD_SIZE": "4"}, 3, 4, "sft-workers-0-0.sft", 3389),
        (JOBSET | {"WORLD_SIZE": "4", "RANK": "2"}, 2, 4, "sft-workers-0-0.sft", 3389),
    ],
)
def test_one_process_in_a_pod_is_a_rank(environ, rank, world, address, port):
    found = discover_rendezvous(environ)
    assert (found.rank, found.world_size, found.local_rank, found.address, found.port) == (
        rank,
        world,
        0,
        address,
        port,
    )
    assert found.launcher == "kubernetes" and found.nodes == world and found.node == rank


@pytest.mark.parametrize("environ", [pytorchjob(1, 2, "8"), trainjob(1, 2, "8")])
def test_a_pod_for_several_processes_needs_a_launcher(environ):
    with pytest.raises(RendezvousUnclear, match=r"PET_NPROC_PER_NODE is 8.*gpuready run") as no:
        discover_rendezvous(environ)
    assert len(no.value.problems) == 1


def test_the_ranks_that_torchrun_started_in_a_pod_are_torchruns():
    inner = {"RANK": "9", "WORLD_SIZE": "16", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "8", "TORCHELASTIC_RUN_ID": "x"}
    found = discover_rendezvous(pytorchjob(1, 2, "8") | inner | {"MASTER_PORT": "29500"})
    assert (found.launcher, found.rank, found.node, found.port) == ("torchrun", 9, 1, 29500)


def test_a_pod_of_a_job_that_is_not_distributed_is_one_process():
    for environ in (POD, POD | {"JOB_COMPLETION_INDEX": "4"}, trainjob(0, 1, "1")):
        assert discover_rendezvous(environ).world_size == 1


@pytest.mark.parametrize(
    ("environ", "nodes", "node", "master", "each"),
    [
        (pytorchjob(1, 2, "8"), 2, 1, "sft-master-0:23456", "8"),
        (pytorchjob(0, 2), 2, 0, "sft-master-0:23456", "auto"),
        (OLD_PYTORCHJOB, 3, 2, "sft-master-0:23456", ""),
        (trainjob(3, 4, "gpu"), 4, 3, "sft-node-0-0.sft:29500", "gpu"),
        (trainjob(0, 1, "auto"), 1, 0, "sft-node-0-0.sft:29500", "auto"),
        (JOBSET, None, 3, "sft-workers-0-0.sft:3389", ""),
        (JOBSET | {"RANK": "2"}, None, 2, "sft-workers-0-0.sft:3389", ""),
        ({**POD, "PET_MASTER_ADDR": "fd00::7", "PET_MASTER_PORT": "1", "PET_NNODES": "2:2", "PET_NODE_RANK": "1"}, 2, 1, "[fd00::7]:1", ""),
        ({"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_RDZV_ENDPOINT": "gpu-1:29400"}, 2, 1, "gpu-1:29400", ""),
        (POD, None, None, "", ""),
        ({"RANK": "1", "WORLD_SIZE": "2", **MASTER}, None, None, "", ""),
    ],
)  # fmt: skip
def test_the_node_that_run_starts(environ, nodes, node, master, each):
    found = read_pod_nodes(environ)
    assert (found.nodes, found.node, found.master, found.nproc) == (nodes, node, master, each)


def test_run_takes_the_nodes_of_the_pod_and_flags_win():
    assert choose_run_engine(None, None, None, trainjob(3, 4, "8")) == ("torchrun", 4, 3, "sft-node-0-0.sft:29500")
    assert choose_run_engine(None, 2, 1, trainjob(3, 4, "8")) == ("torchrun", 2, 1, "sft-node-0-0.sft:29500")
    assert choose_run_engine(None, 4, None, JOBSET) == ("torchrun", 4, 3, "sft-workers-0-0.sft:3389")
    assert choose_run_engine(None, None, None, trainjob(0, 1, "8"))[0] == "local"
    assert choose_run_engine("local", None, None, trainjob(3, 4, "8")) == ("local", None, None, "")


@pytest.mark.parametrize(
    "environ", [ELASTIC, POD | {"PET_NNODES": "two"}, POD | {"PET_NNODES": "2", "PET_NODE_RANK": "-1"}]
)
def test_nodes_that_are_no_number_are_one_sentence(environ):
    with pytest.raises(Refused, match="PET_N"):
        choose_run_engine(None, None, None, environ)
    assert choose_run_engine(None, 2, 0, environ)[1:3] == (2, 0), "a flag settles it"
