"""Node lists, and what holds whatever is set."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuready.cluster import LAUNCHERS, Rendezvous, RendezvousUnclear, address, discover_rendezvous
from gpuready.model import node_names
from tests.cluster.environments import MPICH, OMPI, SLURM, TORCH

# -- short forms --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("n1", ["n1"]),
        ("n[01-03,7]", ["n01", "n02", "n03", "n7"]),
        ("a,b[1-2],c", ["a", "b1", "b2", "c"]),
        ("r[1-2]n[3-4]", ["r1n3", "r1n4", "r2n3", "r2n4"]),
        ("n[9-11]x", ["n9x", "n10x", "n11x"]),
    ],
)
def test_a_node_list(text, hosts):
    assert list(node_names.expand_nodelist(text)) == hosts


@pytest.mark.parametrize("text", ["n[1-2", "n1]", "n[2-1]", "n[a-b]", ",", "n[1-999999999]", "n[[1]]", "n[]"])
def test_a_node_list_that_is_none(text):
    with pytest.raises(ValueError, match="node list"):
        node_names.expand_nodelist(text)


@given(st.lists(st.integers(0, 999), min_size=1, max_size=20, unique=True))
def test_every_number_comes_back(numbers):
    text = "n[" + ",".join(f"{n:03}" for n in numbers) + "]"
    assert node_names.expand_nodelist(text) == tuple(f"n{n:03}" for n in numbers)


# -- properties ---------------------------------------------------------------------------------------

NAMES = [
    *TORCH,
    *SLURM,
    *OMPI,
    *MPICH,
    "KUBERNETES_SERVICE_HOST",
    "RAY_JOB_ID",
    "TORCHELASTIC_RUN_ID",
    "GROUP_RANK",
    "GPUREADY_RUN_ID",
]
VALUES = st.sampled_from(["0", "1", "2", "8", "", "x", "-1", "n[1-2]", "2(x2)", "127.0.0.1", "29500"]) | st.text(
    max_size=8
)


@given(
    st.dictionaries(st.sampled_from(NAMES), VALUES), st.sampled_from([None, *LAUNCHERS]), st.sampled_from(["", "roll"])
)
def test_whatever_is_set_there_is_an_answer_that_holds_together(environ, launcher, framework):
    try:
        found = discover_rendezvous(environ, launcher, framework=framework)
    except RendezvousUnclear as unclear:
        assert unclear.problems and unclear.code and str(unclear).split("\n")[0].isprintable()
        return
    assert 0 <= found.rank < found.world_size
    assert found.local_rank is None or found.local_rank >= 0
    assert not found.local_world_size or (found.local_rank or 0) < found.local_world_size <= found.world_size
    assert found.world_size == 1 or (1 <= found.port <= 65535 and found.address.strip() == found.address != "")
    assert found.describe_expected_rank(found.rank).startswith(f"rank {found.rank}")
    assert Rendezvous.from_json(found.to_json()) == found


@given(st.integers(1, 8), st.integers(1, 8), st.data())
def test_every_rank_of_torchrun_finds_its_place(nodes, each, data):
    rank = data.draw(st.integers(0, nodes * each - 1))
    found = discover_rendezvous({"RANK": str(rank), "LOCAL_RANK": str(rank % each), "WORLD_SIZE": str(nodes * each), "LOCAL_WORLD_SIZE": str(each), "MASTER_ADDR": "a", "MASTER_PORT": "1"})  # fmt: skip
    assert (found.node, found.nodes) == (rank // each, nodes)


@given(st.text(max_size=30))
def test_a_host_is_plain_or_a_sentence(text):
    try:
        plain, _ = address.parse_host_address(text)
    except ValueError as wrong:
        assert str(wrong).isprintable()
    else:
        assert plain == plain.strip() and plain.isprintable() and " " not in plain
