"""Several machines or processes: ranks, ports and the meeting point that the launcher's variables state."""

from __future__ import annotations

import pytest

from gpuready.model import Finding, UnknownFactError
from gpuready.rules import job_topology
from tests.rules.networks import APART, cards
from tests.rules.worlds import GAP, H100, contract, env, facts, judged

ROLL = contract(framework="roll")


# -- one machine or several ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values, several",
    [
        ({}, False),
        (env(), False),
        (APART, True),
        (env(NNODES="2"), True),
        (env(NNODES="1"), False),
        (env(SLURM_JOB_NUM_NODES="4"), True),
        (env(WORLD_SIZE="16", LOCAL_WORLD_SIZE="8"), True),
        (env(WORLD_SIZE="8", LOCAL_WORLD_SIZE="8"), False),
        (env(WORLD_SIZE="16"), False),
        (env(WORLD_SIZE="many", LOCAL_WORLD_SIZE="8"), False),
    ],
)
def test_several_machines(values, several):
    assert job_topology.is_multi_node(facts(values), contract()) is several


def test_to_roll_the_world_is_made_of_nodes():
    assert job_topology.is_multi_node(facts(env(WORLD_SIZE="2")), ROLL)
    assert not job_topology.is_multi_node(facts(env(WORLD_SIZE="1")), ROLL)


def test_an_environment_that_nobody_could_read():
    with pytest.raises(UnknownFactError):
        job_topology.is_multi_node(facts({}, env_names=GAP), contract())
    assert job_topology.is_multi_node(facts(APART, env_names=GAP), contract()), "the job says so itself"


@pytest.mark.parametrize(
    "values, parallel",
    [
        (H100, False),
        (cards(2), True),
        (cards(2) | {"job.gpus": 1}, False),
        (H100 | {"job.gpus": 8}, True),
        (H100 | {"job.wants": ("fsdp2",)}, True),
        (H100 | env(WORLD_SIZE="2"), True),
        (H100 | env(WORLD_SIZE="1"), False),
    ],
)
def test_several_processes(values, parallel):
    assert job_topology.has_parallel_processes(facts(values)) is parallel


# -- NET006 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "variables, why",
    [
        ({"RANK": "8", "WORLD_SIZE": "8"}, "RANK is 8 and WORLD_SIZE 8"),
        ({"RANK": "-1", "WORLD_SIZE": "8"}, "RANK is -1"),
        ({"RANK": "two", "WORLD_SIZE": "8"}, "which is not a number"),
        ({"RANK": "0"}, "RANK is set and WORLD_SIZE is not"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE is 0"),
        ({"RANK": "1", "WORLD_SIZE": "8", "LOCAL_RANK": "4", "LOCAL_WORLD_SIZE": "4"}, "LOCAL_RANK is 4"),
        ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "8"}, "LOCAL_WORLD_SIZE is 8"),
        ({"RANK": "${RANK}", "WORLD_SIZE": "2"}, "which is not a number"),
    ],
)
def test_ranks_that_no_group_takes_in(variables, why):
    found = judged("NET006", env(**variables))
    assert found.severity == "error" and why in found.says and len(found.says) < 160


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"RANK": "0", "WORLD_SIZE": "1"},
        {"RANK": "15", "WORLD_SIZE": "16", "LOCAL_RANK": "7", "LOCAL_WORLD_SIZE": "8"},
        {"WORLD_SIZE": "2"},
        {"LOCAL_RANK": "0"},
        {"RANK": "", "WORLD_SIZE": ""},
    ],
)
def test_ranks_that_agree(variables):
    assert judged("NET006", env(**variables)) is None


def test_nodes_of_roll_are_not_compared_with_local_ranks():
    values = env(RANK="1", WORLD_SIZE="2", LOCAL_WORLD_SIZE="8")
    assert judged("NET006", values, ROLL) is None and isinstance(judged("NET006", values), Finding)
    assert isinstance(judged("NET006", env(RANK="2", WORLD_SIZE="2"), ROLL), Finding)


# -- NET007 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("port", ["0", "99999", "65536", "-1", "abc", "tcp://10.0.0.1:80", "29500.0"])
def test_what_is_no_port(port):
    assert judged("NET007", env(MASTER_PORT=port, RANK="0")).severity == "error"
    assert judged("NET007", env(MASTER_PORT=port)).severity == "warning", "torchrun sets it anew"
    assert judged("NET007", env(MASTER_PORT=port), ROLL).severity == "error", "ROLL always reads it"


@pytest.mark.parametrize("port", ["1", "29500", "65535", " 29500 ", ""])
def test_what_is_a_port_or_not_set(port):
    assert judged("NET007", env(MASTER_PORT=port, RANK="0")) is None


# -- NET008, NET009 -----------------------------------------------------------------------------------

WIDE = {"WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"}


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost", "LOCALHOST", "127.0.1.1", "::1", "[::1]", "0.0.0.0"])
def test_a_meeting_point_that_is_everywhere(address):
    assert judged("NET008", env(MASTER_ADDR=address, **WIDE)).severity == "error"
    assert judged("NET008", env(MASTER_ADDR=address, WORLD_SIZE="8", LOCAL_WORLD_SIZE="8")) is None
    assert judged("NET008", env(MASTER_ADDR=address)) is None
    assert isinstance(judged("NET008", env(MASTER_ADDR=address, WORLD_SIZE="2"), ROLL), Finding)


@pytest.mark.parametrize("address", ["gpu-01", "10.0.0.1", "127.example.org", "fe80::1", ""])
def test_a_meeting_point_elsewhere(address):
    assert judged("NET008", env(MASTER_ADDR=address, **WIDE)) is None


def test_the_machines_own_name():
    local = APART | env() | {"net.hostname_address": "127.0.1.1"}
    assert "127.0.1.1" in judged("NET009", local).says
    assert judged("NET009", local | {"job.wants": ()}) is None
    assert judged("NET009", local | {"net.hostname_address": "10.0.0.7"}) is None
    assert judged("NET009", local | {"net.hostname_address": None}) is None
    assert judged("NET009", local | env(GLOO_SOCKET_IFNAME="eth0")) is None
    assert isinstance(judged("NET009", local, net_hostname_address=GAP), UnknownFactError)


# -- NET012 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ranks, count, more, reported",
    [
        ("8", 4, {}, True),
        ("4", 4, {}, False),
        ("2", 4, {}, False),
        ("8", 1, {}, True),
        ("8", 1, {"CUDA_VISIBLE_DEVICES": "0"}, False),
        ("8", 1, {"SLURM_PROCID": "3"}, False),
        ("8", 4, {"SLURM_PROCID": "3"}, True),
        ("eight", 4, {}, False),
    ],
)
def test_more_ranks_than_gpus(ranks, count, more, reported):
    found = judged("NET012", cards(count) | env(LOCAL_WORLD_SIZE=ranks, **more))
    assert (found.severity if found else None) == ("error" if reported else None)


def test_ranks_that_need_no_gpu_of_their_own():
    values = cards(4) | env(LOCAL_WORLD_SIZE="8")
    assert judged("NET012", values, ROLL) is None
    assert judged("NET012", values | {"job.wants": ("cpu",)}) is None
    assert judged("NET012", values | {"gpu.count": 0, "gpu.visible": ()}) is None, "GPU001 tells that"
    assert judged("NET012", values, contract(platforms=["rocm"])) is None
    assert isinstance(judged("NET012", values, gpu_count="NVML hung"), UnknownFactError)
