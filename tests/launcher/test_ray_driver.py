"""The driver of Ray: what is told where there is no room for the ranks, and the variables that reach them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gpuready.launcher.ray_driver import describe_room, make_rank_variables


@pytest.mark.parametrize(
    ("nodes", "bundle", "free", "every", "said"),
    [
        (2, {"CPU": 8, "GPU": 8}, {"CPU": 3.0, "GPU": 4.0}, {"CPU": 64.0, "GPU": 16.0}, "asked for 8 CPU and 8 GPU on each of 2 nodes; free are 3 of 64 CPU, 4 of 16 GPU"),
        (4, {"CPU": 1}, {}, {"CPU": 3.0}, "asked for 1 CPU on each of 4 nodes; free are 0 of 3 CPU"),
    ],
)  # fmt: skip
def test_what_is_asked_for_and_what_is_free(nodes, bundle, free, every, said):
    ray = SimpleNamespace(available_resources=lambda: free, cluster_resources=lambda: every)
    assert describe_room(ray, nodes, bundle) == f"Ray has no room for the ranks: {said}"


def test_the_users_variables_reach_the_ranks_but_for_those_of_a_node():
    user = {"MINE": "1", "GPUREADY_ATTEND": "{}", "LOCAL_RANK": "7"}
    of_a_node = {"RAY_ADDRESS": "head:1", "CUDA_VISIBLE_DEVICES": "3", "ROCR_VISIBLE_DEVICES": "3", "HOSTNAME": "login"}
    settings = {"world": 4, "nproc": 2, "nnodes": 2}
    found = make_rank_variables(user | of_a_node, settings, rank=3, gpus=0)
    place = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}
    groups = {"GROUP_RANK": "1", "GROUP_WORLD_SIZE": "2", "GPUREADY_FIRST": "0"}
    assert found == user | place | groups
    assert make_rank_variables({}, settings, rank=3, gpus=1)["LOCAL_RANK"] == "0", "it sees its own GPU alone"
