"""Variables of launchers -> Rendezvous: each launcher, each mistake, and all mistakes at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarmac.cluster import LAUNCHERS, Rendezvous, Unclear, address, discover, nodelist

TORCH = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "gpu-0", "MASTER_PORT": "29500"}  # fmt: skip
SLURM = {
    "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NODEID": "2", "SLURM_NTASKS": "6",
    "SLURM_NNODES": "3", "SLURM_JOB_NODELIST": "gpu[01-03]", "SLURM_TASKS_PER_NODE": "2(x3)",
}  # fmt: skip
OMPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_RANK": "1", "PMIX_NAMESPACE": "job-9"}  # fmt: skip
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}


def problems(environ, **options) -> str:
    with pytest.raises(Unclear) as raised:
        discover(environ, **options)
    return str(raised.value)


# -- each launcher ------------------------------------------------------------------------------------


def test_nothing_set_is_one_process():
    found = discover({})
    assert found == Rendezvous(local_world_size=1, nodes=1)
    assert (found.world_size, found.port, found.launcher) == (1, 0, "single")


def test_torchrun():
    more = {
        "TORCHELASTIC_RUN_ID": "run-1",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "2",
    }
    found = discover(TORCH | more)
    assert (found.rank, found.world_size, found.local_rank, found.local_world_size) == (3, 4, 1, 2)
    assert (found.node, found.nodes, found.address, found.port) == (1, 2, "gpu-0", 29500)
    assert (found.launcher, found.run_id, found.agent_store, found.restart) == ("torchrun", "run-1", True, 2)


def test_the_run_of_torchrun_that_has_no_name_and_tarmacs_own():
    assert discover(TORCH | {"TORCHELASTIC_RUN_ID": "none"}).run_id == ""
    assert discover(TORCH | {"TORCHELASTIC_RUN_ID": "none", "TARMAC_RUN_ID": "mine"}).run_id == "mine"


def test_slurm_with_what_it_works_out():
    found = discover(SLURM)
    assert (found.rank, found.world_size, found.local_rank, found.local_world_size) == (5, 6, 1, 2)
    assert (found.node, found.nodes, found.hosts) == (2, 3, ("gpu01", "gpu02", "gpu03"))
    assert (found.address, found.launcher, found.run_id) == ("gpu01", "slurm", "77.0")
    assert (
        found.port == discover(SLURM | {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"}).port
    )
    assert found.port != discover(SLURM | {"SLURM_JOB_ID": "78"}).port
    assert found.expected(4) == "rank 4 (expected on gpu03, local rank 0, srun task 4)"


def test_slurm_with_the_address_of_the_user():
    found = discover(SLURM | {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "1234"})
    assert (found.address, found.port) == ("10.0.0.1", 1234)


def test_the_step_of_slurm_is_nearer_than_the_job():
    step = {
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_STEP_NUM_NODES": "1",
        "SLURM_STEP_NODELIST": "gpu02",
        "SLURM_STEP_TASKS_PER_NODE": "2",
    }
    found = discover(SLURM | step | {"SLURM_PROCID": "1", "SLURM_NODEID": "0"})
    assert (found.rank, found.world_size, found.address, found.local_world_size) == (1, 2, "gpu02", 2)


def test_uneven_nodes_of_slurm():
    found = discover(SLURM | {"SLURM_TASKS_PER_NODE": "3,2,1", "SLURM_LOCALID": "0"})
    assert found.local_world_size == 1 and "expected on gpu02, local rank 1" in found.expected(4)


HYDRA = "MPIR_CVAR_CH3_INTERFACE_HOSTNAME=vm MPI_LOCALNRANKS=2 MPI_LOCALRANKID={local} PMI_FD={file} PMI_RANK={rank} PMI_SIZE=4"
"""All that MPICH 4.0.2 sets: recorded from mpiexec.hydra -n 4 -ppn 2 on two hosts."""


def test_the_variables_of_a_real_hydra():
    for rank in range(4):
        words = HYDRA.format(local=rank % 2, file=6 + rank, rank=rank).split()
        environ = dict(word.split("=", 1) for word in words) | {"MASTER_ADDR": "vm", "MASTER_PORT": "1234"}
        found = discover(environ)
        assert (found.launcher, found.rank, found.world_size) == ("mpich", rank, 4)
        assert (found.local_rank, found.local_world_size, found.node, found.nodes) == (
            rank % 2,
            2,
            rank // 2,
            2,
        )


@pytest.mark.parametrize("environ", [OMPI, MPICH | {"MASTER_PORT": "1234"}], ids=["openmpi", "mpich"])
def test_mpi_on_one_host(environ):
    found = discover(environ)
    assert (found.rank, found.world_size, found.local_rank, found.local_world_size) == (1, 2, 1, 2)
    assert found.address == "127.0.0.1" and found.port


def test_mpi_on_several_hosts_needs_an_address():
    said = problems(OMPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "0"})
    assert "MASTER_ADDR is not set" in said


def test_pmix_rank_completes_slurm():
    found = discover(SLURM | {"PMIX_RANK": "5", "PMI_RANK": "5", "PMI_SIZE": "6"})
    assert (found.rank, found.world_size, found.local_rank, found.launcher) == (5, 6, 1, "slurm")


def test_kubernetes_has_one_process_in_a_pod():
    pod = {
        "RANK": "1",
        "WORLD_SIZE": "3",
        "MASTER_ADDR": "job-master-0",
        "MASTER_PORT": "23456",
        "KUBERNETES_SERVICE_HOST": "10.0.0.1",
    }
    found = discover(pod)
    assert (found.launcher, found.rank, found.local_rank, found.local_world_size, found.node) == (
        "kubernetes",
        1,
        0,
        1,
        1,
    )
    assert discover(pod | {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}).launcher == "torchrun"


def test_ray_train_sets_the_variables_of_torchrun():
    found = discover(TORCH | {"RAY_JOB_ID": "01000000"})
    assert (found.launcher, found.run_id) == ("ray", "01000000")


def test_rank_of_a_node_as_roll_means_it():
    driver = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "head", "MASTER_PORT": "6379"}
    assert "LOCAL_RANK is not set" in problems(driver)
    found = discover(driver, framework="roll")
    assert (found.counts, found.rank, found.node, found.nodes, found.local_rank) == ("nodes", 1, 1, 2, 0)
    worker = discover(TORCH | {"WORKER_NAME": "actor_train-3"}, framework="roll")
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
    assert discover(tasks | driver, framework="roll").counts == "nodes"


# -- arguments ----------------------------------------------------------------------------------------


def test_arguments_win():
    found = discover(SLURM, given={"rank": 1, "world_size": 2, "host": "[::1]", "port": 4000})
    assert (found.rank, found.world_size, found.address, found.port, found.launcher) == (
        1,
        2,
        "::1",
        4000,
        "arguments",
    )
    assert found.local_rank is None


def test_the_local_rank_of_a_launcher_that_agrees_is_taken():
    found = discover(TORCH, given={"rank": 3, "world_size": 4, "host": "a", "port": 1})
    assert found.local_rank == 1


def test_arguments_that_are_wrong():
    said = problems({}, given={"rank": -1, "world_size": 2, "host": "a b", "port": 70000})
    assert (
        "the argument rank is -1" in said
        and "the argument host" in said
        and "the argument port is 70000" in said
    )


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
    assert discover(TORCH | outer).rank == 3


def test_launchers_that_contradict_each_other():
    odd = (
        SLURM
        | {"SLURM_PROCID": "2", "SLURM_LOCALID": "0", "SLURM_NODEID": "1"}
        | OMPI
        | {"OMPI_COMM_WORLD_SIZE": "3"}
    )
    said = problems(TORCH | odd)
    first, *table = said.split("\n")
    assert "torchrun and openmpi and slurm say different things" in first and "NET006" in first
    assert [row.split()[0] for row in table[1:4]] == ["torchrun", "openmpi", "slurm"]
    assert "would win" in said and "TARMAC_LAUNCHER" in said
    assert discover(TORCH | odd, "torchrun").rank == 3
    assert discover(TORCH | odd, "slurm").rank == 2
    assert discover(TORCH | odd | {"TARMAC_LAUNCHER": "openmpi"}).rank == 1


def test_ranks_that_look_like_nodes():
    tasks = SLURM | {"SLURM_PROCID": "5", "SLURM_NODEID": "2", "SLURM_NNODES": "3"}
    said = problems(
        tasks | {"RANK": "2", "WORLD_SIZE": "3", "LOCAL_RANK": "0", "MASTER_ADDR": "a", "MASTER_PORT": "1"}
    )
    assert "numbers of nodes, as ROLL means them" in said


def test_a_size_that_was_exported_for_slurm_must_agree():
    assert discover(SLURM | {"WORLD_SIZE": "6"}).world_size == 6
    assert "say different things" in problems(SLURM | {"WORLD_SIZE": "4"})


def test_a_forced_launcher():
    assert "none of its variables is set" in problems(TORCH, launcher="slurm")
    assert "no launcher is called 'pdsh'" in problems(TORCH, launcher="pdsh")
    assert discover(TORCH, "single").world_size == 1
    assert (
        discover(
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
    said = problems(
        {"RANK": "x", "WORLD_SIZE": "0", "LOCAL_RANK": "-1", "MASTER_ADDR": "a b", "MASTER_PORT": "0"}
    )
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
    assert discover({"MASTER_PORT": value}).world_size == 1


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
    found = discover(TORCH | {"MASTER_ADDR": text})
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
        ({"SLURM_TASKS_PER_NODE": "two"}, "no list such as"),
        ({"SLURM_JOB_NODELIST": "n[1-"}, "brackets"),
        ({"SLURM_NTASKS": "x"}, "SLURM_NTASKS is 'x'"),
    ],
)
def test_sums_of_slurm_that_do_not_agree(change, said):
    text = problems(SLURM | change)
    assert said in text and "RUN004" in text


def test_a_batch_script_is_told_to_use_srun():
    found = discover(
        {k: v for k, v in SLURM.items() if k != "SLURM_STEP_ID"} | {"SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
    )
    assert any("start the ranks with srun" in note for note in found.notes)


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
    assert list(nodelist.expand(text)) == hosts


@pytest.mark.parametrize("text", ["n[1-2", "n1]", "n[2-1]", "n[a-b]", ",", "n[1-999999999]", "n[[1]]", "n[]"])
def test_a_node_list_that_is_none(text):
    with pytest.raises(ValueError, match="node list"):
        nodelist.expand(text)


@given(st.lists(st.integers(0, 999), min_size=1, max_size=20, unique=True))
def test_every_number_comes_back(numbers):
    text = "n[" + ",".join(f"{n:03}" for n in numbers) + "]"
    assert nodelist.expand(text) == tuple(f"n{n:03}" for n in numbers)


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
    "TARMAC_RUN_ID",
]
VALUES = st.sampled_from(
    ["0", "1", "2", "8", "", "x", "-1", "n[1-2]", "2(x2)", "127.0.0.1", "29500"]
) | st.text(max_size=8)


@given(
    st.dictionaries(st.sampled_from(NAMES), VALUES),
    st.sampled_from([None, *LAUNCHERS]),
    st.sampled_from(["", "roll"]),
)
def test_whatever_is_set_there_is_an_answer_that_holds_together(environ, launcher, framework):
    try:
        found = discover(environ, launcher, framework=framework)
    except Unclear as unclear:
        assert unclear.problems and unclear.code and str(unclear).split("\n")[0].isprintable()
        return
    assert 0 <= found.rank < found.world_size
    assert found.local_rank is None or found.local_rank >= 0
    assert not found.local_world_size or (found.local_rank or 0) < found.local_world_size <= found.world_size
    assert found.world_size == 1 or (
        1 <= found.port <= 65535 and found.address.strip() == found.address != ""
    )
    assert found.expected(found.rank).startswith(f"rank {found.rank}")
    assert Rendezvous.from_json(found.to_json()) == found


@given(st.integers(1, 8), st.integers(1, 8), st.data())
def test_every_rank_of_torchrun_finds_its_place(nodes, each, data):
    rank = data.draw(st.integers(0, nodes * each - 1))
    found = discover({"RANK": str(rank), "LOCAL_RANK": str(rank % each), "WORLD_SIZE": str(nodes * each), "LOCAL_WORLD_SIZE": str(each), "MASTER_ADDR": "a", "MASTER_PORT": "1"})  # fmt: skip
    assert (found.node, found.nodes) == (rank // each, nodes)


@given(st.text(max_size=30))
def test_a_host_is_plain_or_a_sentence(text):
    try:
        plain, _ = address.host(text)
    except ValueError as wrong:
        assert str(wrong).isprintable()
    else:
        assert plain == plain.strip() and plain.isprintable() and " " not in plain
