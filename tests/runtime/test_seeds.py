"""Seeds and streams, with real torch."""

from __future__ import annotations

import json

import pytest

from gpuready.runtime import seeds
from gpuready.runtime.world import World
from tests.ranks import deterministic_ranks, ranks

__all__ = ["deterministic_ranks", "ranks"]


def said(ranks, code: str) -> object:
    found = ranks.run({}, code="import json, random, numpy, torch\nfrom gpuready.runtime import seeds\nfrom gpuready.runtime.world import World\ndef draw():\n    return [random.random(), float(numpy.random.rand()), float(torch.rand(1))]\n" + code)[0]  # fmt: skip
    assert found.code == 0, found.err
    return json.loads(found.out)


def test_everything_is_seeded(ranks):
    one, other, third = said(
        ranks, "out = []\nfor s in (5, 5, 6):\n    seeds.seed_everything(s); out.append(draw())\nprint(json.dumps(out))"
    )
    assert one == other and all(a != b for a, b in zip(one, third, strict=True))


@pytest.mark.parametrize("seed", [0, 2**32, 2**63 - 1])
def test_every_seed_that_is_allowed_is_taken(ranks, seed):
    assert len(said(ranks, f"seeds.seed_everything(seeds.validate_seed({seed})); print(json.dumps(draw()))")) == 3


@pytest.mark.parametrize("seed", [-1, 2**63, 1.0, "1", True, None])
def test_other_seeds_are_refused(seed):
    with pytest.raises(ValueError, match="whole number"):
        seeds.validate_seed(seed)


def test_streams_of_ranks_and_groups_share_nothing():
    worlds = [World(rank=rank, world_size=8, seed=3) for rank in range(8)]
    assert len({w.stream("x") for w in worlds}) == 8
    assert len({w.stream("x", "world") for w in worlds}) == 1
    groups = [w.stream("x", [0, 1, 2, 3] if w.rank < 4 else [7, 6, 5, 4]) for w in worlds]
    assert len(set(groups)) == 2 and len(set(groups[:4])) == 1
    assert worlds[0].stream("x") != worlds[0].stream("y") != World(rank=0, world_size=8, seed=4).stream("y")
    assert all(0 <= w.stream("x") < 2**63 for w in worlds)


def test_a_stream_of_a_group_that_this_rank_is_not_in():
    with pytest.raises(ValueError, match="rank 0 is not in the group"):
        World().stream("x", [1, 2])
    with pytest.raises(ValueError, match="per rank, node or world"):
        World().stream("x", "gpu")


def test_deterministic_mode(deterministic_ranks):
    code = "env = {}\nseeds.enable_determinism(env); print(json.dumps([env, torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark]))"
    assert said(deterministic_ranks, code) == [{"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}, True, True, False]
    held = "env = {'CUBLAS_WORKSPACE_CONFIG': ':16:8'}\nseeds.enable_determinism(env); print(json.dumps(env))"
    assert said(deterministic_ranks, held) == {"CUBLAS_WORKSPACE_CONFIG": ":16:8"}


def test_a_drawn_seed_is_a_seed():
    assert len({seeds.validate_seed(seeds.draw_seed()) for _ in range(50)}) > 40
