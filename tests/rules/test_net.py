"""The way to the other GPUs and the other machines: interfaces, InfiniBand, the launcher's variables."""

from __future__ import annotations

import pytest

from tarmac import rules
from tarmac.model import NOT_STATED, Fact, Facts, Finding, Unknown
from tarmac.rules import interfaces, nodes
from tests.rules.worlds import GAP, H100, contract, facts, judged, outcome
from tests.rules.worlds import H100 as ONE

ROLL = contract(framework="roll")
TRAINER = contract(framework="transformers")
APART = {"job.wants": ("multi-node",)}


def env(**variables):
    """An environment of these variables and no others."""
    return {"env.names": tuple(variables)} | {f"env.{name}": value for name, value in variables.items()}


def link(*addresses, up=True, kind="ethernet"):
    return {"up": up, "kind": kind, "addresses": list(addresses), "mtu": 1500, "speed": None}


LO = link("127.0.0.1", "::1", kind="loopback")
TABLE = {
    "lo": LO,
    "docker0": link("172.17.0.1", up=False, kind="bridge"),
    "enp1s0f0": link("10.0.0.7"),
    "enp1s0f1": link(up=False),
    "ib0": link("10.1.0.7", kind="infiniband"),
}
HERE = {"net.interfaces": TABLE, "net.interface": "ib0"}


def cards(count, name="NVIDIA H100 80GB HBM3", **more):
    return ONE | {
        "gpu.count": count,
        "gpu.visible": tuple(range(count)),
        "gpu.name": (name,) * count,
        **more,
    }


@pytest.mark.parametrize(
    "code", [code for code in rules.LEDGER if code.startswith("NET") and code not in rules.LOGGED]
)
def test_a_what_if_states_no_network(code):
    """``--on h100x8``: what nobody looked for is neither wrong nor undecided."""
    known = cards(8) | APART
    stated = Facts([Fact(key, value, "--on", "stated") for key, value in known.items()], "h100x8", NOT_STATED)
    assert outcome(rules.rule(code), stated, TRAINER) is None


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
    assert nodes.several(facts(values), contract()) is several


def test_to_roll_the_world_is_made_of_nodes():
    assert nodes.several(facts(env(WORLD_SIZE="2")), ROLL)
    assert not nodes.several(facts(env(WORLD_SIZE="1")), ROLL)


def test_an_environment_that_nobody_could_read():
    with pytest.raises(Unknown):
        nodes.several(facts({}, env_names=GAP), contract())
    assert nodes.several(facts(APART, env_names=GAP), contract()), "the job says so itself"


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
    assert nodes.parallel(facts(values)) is parallel


# -- interfaces ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, found",
    [
        ("enp", ["enp1s0f0", "enp1s0f1"]),
        ("enp1s0f0", ["enp1s0f0"]),
        ("=enp1s0f0", ["enp1s0f0"]),
        ("=enp", None),
        ("eth,ib", ["ib0"]),
        ("eth", None),
        ("^docker,lo", ["enp1s0f0", "enp1s0f1", "ib0"]),
        ("^=ib0", ["lo", "docker0", "enp1s0f0", "enp1s0f1"]),
        ("^lo,docker,enp,ib", None),
        ("ib0:1", ["ib0"]),
    ],
)
def test_how_nccl_reads_names(text, found):
    assert interfaces.named("NCCL_SOCKET_IFNAME", text, TABLE) == found


@pytest.mark.parametrize(
    "text, found",
    [("ib0", ["ib0"]), ("ib", None), ("ib0,enp1s0f0", ["ib0", "enp1s0f0"]), ("ib0,eth0", None)],
)
def test_gloo_needs_every_name(text, found):
    assert interfaces.named("GLOO_SOCKET_IFNAME", text, TABLE) == found


def test_which_interface_works():
    assert interfaces.ready(TABLE["ib0"]) and not interfaces.ready(TABLE["enp1s0f1"])
    assert not interfaces.ready(link("::1")) and not interfaces.ready(link())
    assert interfaces.ready({"up": True, "addresses": None}), "several have one, and nobody says which"


def test_which_interface_is_proposed():
    assert interfaces.best(TABLE) == "ib0"
    assert interfaces.best({"lo": LO, "eth0": link("10.0.0.1")}) == "eth0"
    assert interfaces.best({"lo": LO}) is None and interfaces.in_words({}) == "none"


# -- NET001 -------------------------------------------------------------------------------------------


def test_a_name_from_another_machine():
    found = judged("NET001", cards(2) | HERE | env(NCCL_SOCKET_IFNAME="eth0"))
    assert found.severity == "error"
    assert found.says.startswith(
        "no interface of this machine fits NCCL_SOCKET_IFNAME=eth0; there is docker0"
    )
    assert found.fix[0].does == "set NCCL_SOCKET_IFNAME=ib0"


def test_a_single_process_is_only_warned():
    assert judged("NET001", H100 | HERE | env(NCCL_SOCKET_IFNAME="eth0")).severity == "warning"


def test_both_variables_are_told_together():
    found = judged("NET001", cards(2) | HERE | env(NCCL_SOCKET_IFNAME="eth", GLOO_SOCKET_IFNAME="ib"))
    assert "NCCL_SOCKET_IFNAME=eth and GLOO_SOCKET_IFNAME=ib" in found.says and len(found.needs) == 2


@pytest.mark.parametrize("text", ["ib", "^docker", "eth,enp", "x", ""])
def test_names_that_fit_or_do_not_count(text):
    assert judged("NET001", cards(2) | HERE | env(NCCL_SOCKET_IFNAME=text)) is None


def test_interfaces_that_nobody_could_see():
    asked = cards(2) | env(NCCL_SOCKET_IFNAME="eth0")
    assert isinstance(judged("NET001", asked, net_interfaces="no /sys"), Unknown)
    assert judged("NET001", cards(2) | env(), net_interfaces="no /sys") is None, "nothing is asked of them"


# -- NET002 -------------------------------------------------------------------------------------------


def test_an_interface_without_a_cable():
    found = judged("NET002", cards(2) | HERE | env(NCCL_SOCKET_IFNAME="enp1s0f1"))
    assert found.severity == "error" and found.says.endswith("enp1s0f1")
    assert judged("NET002", H100 | HERE | env(NCCL_SOCKET_IFNAME="enp1s0f1")).severity == "warning"


def test_one_that_works_is_enough_for_nccl_and_not_for_gloo():
    assert judged("NET002", cards(2) | HERE | env(NCCL_SOCKET_IFNAME="enp")) is None
    found = judged("NET002", cards(2) | HERE | env(GLOO_SOCKET_IFNAME="enp1s0f0,enp1s0f1"))
    assert found.says.endswith("enp1s0f1")


def test_what_is_missing_is_told_once():
    assert judged("NET002", cards(2) | HERE | env(NCCL_SOCKET_IFNAME="eth0")) is None


def test_no_way_out_at_all():
    alone = cards(2) | APART | env() | {"net.interface": None, "net.interfaces": {"lo": link(up=False)}}
    assert judged("NET002", alone).says.startswith("no network interface")
    assert judged("NET002", alone | {"job.wants": ()}) is None
    assert judged("NET002", alone | {"net.interface": "eth0"}) is None
    assert isinstance(judged("NET002", alone, net_interface="no /proc"), Unknown)


# -- NET003 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["lo", "docker0", "virbr0", "veth1a2b3c4", "br-0123456789ab", "podman0", "lxdbr0"]
)
def test_interfaces_that_lead_nowhere(name):
    found = judged("NET003", APART | HERE | {"net.interface": name})
    assert found.severity == "warning" and name in found.says and found.fix[0].does.endswith("to ib0")
    assert judged("NET003", HERE | env() | {"net.interface": name}) is None, "one machine does not mind"


@pytest.mark.parametrize("name", ["eth0", "ib0", "bond0", "br0", "vmbr0", "br-lan", "enp1s0", "local0", None])
def test_interfaces_that_may_lead_out(name):
    assert judged("NET003", APART | HERE | {"net.interface": name}) is None


def test_a_way_out_is_asked_for_where_none_is_known():
    found = judged("NET003", APART | {"net.interface": "lo", "net.interfaces": {"lo": LO}})
    assert "the interface that they share" in found.fix[0].does


# -- NET004 -------------------------------------------------------------------------------------------


def ports(*states, layer="InfiniBand"):
    return {"net.ib": {f"mlx5_{i}/1": {"state": s, "link_layer": layer} for i, s in enumerate(states)}}


def test_ports_of_infiniband():
    found = judged("NET004", APART | ports("init", "down"))
    assert found.severity == "warning" and found.says.startswith("no port of InfiniBand is active")
    some = judged("NET004", APART | ports("active", "down"))
    assert some.says == "not every port of InfiniBand is active: mlx5_1/1 (down)"
    assert judged("NET004", env() | ports("down")).severity == "info", "spare, as far as one machine goes"


@pytest.mark.parametrize("values", [ports("active"), ports("down", layer="Ethernet"), ports(), ports(None)])
def test_ports_that_are_no_case(values):
    assert judged("NET004", APART | values) is None


# -- NET005 -------------------------------------------------------------------------------------------

COPIES = (
    APART
    | ports("active")
    | {"net.peermem": False, "os.kernel": "5.4.0", "driver.kind": "open", "gpu.count": 8}
)


@pytest.mark.parametrize(
    "values, told",
    [
        ({}, True),
        ({"os.kernel": "6.8.0"}, False),
        ({"os.kernel": "6.8.0", "driver.kind": "proprietary"}, True),
        ({"os.kernel": "5.12.0"}, False),
        ({"net.peermem": True}, False),
        ({"gpu.count": 0}, False),
        (ports("down"), False),
        ({"job.wants": ()} | env(), False),
    ],
)
def test_the_road_from_card_to_gpu(values, told):
    found = judged("NET005", COPIES | values)
    assert (found.severity if found else None) == ("warning" if told else None)


def test_the_road_in_the_dark():
    assert isinstance(judged("NET005", COPIES, net_peermem="no /sys"), Unknown)
    assert judged("NET005", COPIES, contract(platforms=["rocm"])) is None


# -- NET006 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "variables, why",
    [
        ({"RANK": "8", "WORLD_SIZE": "8"}, "RANK is 8 and WORLD_SIZE 8"),
        ({"RANK": "-1", "WORLD_SIZE": "8"}, "RANK is -1"),
        ({"RANK": "two", "WORLD_SIZE": "8"}, "which is no number"),
        ({"RANK": "0"}, "RANK is set and WORLD_SIZE is not"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE is 0"),
        ({"RANK": "1", "WORLD_SIZE": "8", "LOCAL_RANK": "4", "LOCAL_WORLD_SIZE": "4"}, "LOCAL_RANK is 4"),
        ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "8"}, "LOCAL_WORLD_SIZE is 8"),
        ({"RANK": "${RANK}", "WORLD_SIZE": "2"}, "which is no number"),
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


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "localhost", "LOCALHOST", "127.0.1.1", "::1", "[::1]", "0.0.0.0"]
)
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
    assert isinstance(judged("NET009", local, net_hostname_address=GAP), Unknown)


# -- NET010 -------------------------------------------------------------------------------------------


def test_nvlink_that_is_switched_off():
    linked = cards(2, **{"gpu.nvlink": (18, 18)})
    found = judged("NET010", linked | env(NCCL_P2P_DISABLE="1"))
    assert found.severity == "warning" and found.says.endswith("NVLink")
    assert judged("NET010", linked | env(NCCL_P2P_DISABLE="0")) is None
    assert judged("NET010", linked | {"gpu.visible": (0,)} | env(NCCL_P2P_DISABLE="1")) is None
    assert judged("NET010", cards(2, **{"gpu.nvlink": (0, 0)}) | env(NCCL_P2P_DISABLE="1")) is None


def test_cards_that_have_no_nvlink_or_do_not_tell():
    two = cards(2) | env(NCCL_P2P_DISABLE="1")
    assert judged("NET010", two, gpu_nvlink="GPU 0: not supported; GPU 1: not supported") is None
    assert isinstance(judged("NET010", two, gpu_nvlink="no permission"), Unknown)


def test_infiniband_that_is_switched_off():
    wide = cards(2) | APART | ports("active") | env(NCCL_IB_DISABLE="1")
    assert judged("NET010", wide).says.endswith("InfiniBand")
    assert judged("NET010", wide | {"job.wants": ()}) is None
    assert judged("NET010", wide | ports("down")) is None
    assert judged("NET010", wide | ports("active", layer="Ethernet")) is None
    both = wide | {"gpu.nvlink": (18, 18)} | env(NCCL_IB_DISABLE="1", NCCL_P2P_DISABLE="1")
    assert judged("NET010", both).says.endswith("NVLink and InfiniBand")


# -- NET011 -------------------------------------------------------------------------------------------

ADA = cards(2, "NVIDIA GeForce RTX 4090", **{"driver.version": "535.104.05"}) | env()


def test_several_rtx_40_with_an_old_driver():
    found = judged("NET011", ADA, TRAINER)
    assert found.severity == "warning" and "535.104.05" in found.says
    assert judged("NET011", ADA | env(LOCAL_RANK="0"), TRAINER).severity == "error"
    assert judged("NET011", ADA, contract(framework="colossalai")) is None


@pytest.mark.parametrize(
    "values",
    [
        {"driver.version": "550.40.07"},
        {"driver.version": "580.95.05"},
        {"driver.version": None},
        {"gpu.count": 1, "gpu.visible": (0,), "gpu.name": ("NVIDIA GeForce RTX 4090",)},
        {"gpu.name": ("NVIDIA GeForce RTX 3090",) * 2},
        env(NCCL_P2P_DISABLE="1", NCCL_IB_DISABLE="1"),
    ],
)
def test_rtx_40_that_accelerate_takes(values):
    assert judged("NET011", ADA | values, TRAINER) is None


def test_one_switch_is_not_enough():
    assert isinstance(judged("NET011", ADA | env(NCCL_P2P_DISABLE="1"), TRAINER), Finding)


# -- NET012 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ranks, count, more, told",
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
def test_more_ranks_than_gpus(ranks, count, more, told):
    found = judged("NET012", cards(count) | env(LOCAL_WORLD_SIZE=ranks, **more))
    assert (found.severity if found else None) == ("error" if told else None)


def test_ranks_that_need_no_gpu_of_their_own():
    values = cards(4) | env(LOCAL_WORLD_SIZE="8")
    assert judged("NET012", values, ROLL) is None
    assert judged("NET012", values | {"job.wants": ("cpu",)}) is None
    assert judged("NET012", values | {"gpu.count": 0, "gpu.visible": ()}) is None, "GPU001 tells that"
    assert judged("NET012", values, contract(platforms=["rocm"])) is None
    assert isinstance(judged("NET012", values, gpu_count="NVML hung"), Unknown)
