"""The way to the other machines: interfaces, by name and by what they lead to."""

from __future__ import annotations

import pytest

from gpuready import rules
from gpuready.model import NOT_STATED, Fact, Facts, UnknownFactError
from gpuready.rules import network_interfaces
from tests.rules.networks import APART, TRAINER, cards
from tests.rules.worlds import H100, env, judged, outcome


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


@pytest.mark.parametrize("code", [code for code in rules.list_rule_modules() if code.startswith("NET")])
def test_a_what_if_states_no_network(code):
    """``--on h100x8``: what nobody looked for is neither wrong nor undecided."""
    known = cards(8) | APART
    stated = Facts([Fact(key, value, "--on", "stated") for key, value in known.items()], "h100x8", NOT_STATED)
    assert outcome(rules.load_rule(code), stated, TRAINER) is None


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
    assert network_interfaces.allowed_interfaces("NCCL_SOCKET_IFNAME", text, TABLE) == found


@pytest.mark.parametrize(
    "text, found", [("ib0", ["ib0"]), ("ib", None), ("ib0,enp1s0f0", ["ib0", "enp1s0f0"]), ("ib0,eth0", None)]
)
def test_gloo_needs_every_name(text, found):
    assert network_interfaces.allowed_interfaces("GLOO_SOCKET_IFNAME", text, TABLE) == found


def test_which_interface_works():
    assert network_interfaces.is_interface_ready(TABLE["ib0"]) and not network_interfaces.is_interface_ready(
        TABLE["enp1s0f1"]
    )
    assert not network_interfaces.is_interface_ready(link("::1")) and not network_interfaces.is_interface_ready(link())
    assert network_interfaces.is_interface_ready({"up": True, "addresses": None}), (
        "several have one, and nobody says which"
    )


def test_which_interface_is_proposed():
    assert network_interfaces.best_interface(TABLE) == "ib0"
    assert network_interfaces.best_interface({"lo": LO, "eth0": link("10.0.0.1")}) == "eth0"
    assert (
        network_interfaces.best_interface({"lo": LO}) is None and network_interfaces.describe_interfaces({}) == "none"
    )


# -- NET001 -------------------------------------------------------------------------------------------


def test_a_name_from_another_machine():
    found = judged("NET001", cards(2) | HERE | env(NCCL_SOCKET_IFNAME="eth0"))
    assert found.severity == "error"
    assert found.says.startswith("no interface of this machine matches NCCL_SOCKET_IFNAME=eth0; it has docker0")
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
    assert isinstance(judged("NET001", asked, net_interfaces="no /sys"), UnknownFactError)
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
    assert isinstance(judged("NET002", alone, net_interface="no /proc"), UnknownFactError)


# -- NET003 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lo", "docker0", "virbr0", "veth1a2b3c4", "br-0123456789ab", "podman0", "lxdbr0"])
def test_interfaces_that_lead_nowhere(name):
    found = judged("NET003", APART | HERE | {"net.interface": name})
    assert found.severity == "warning" and name in found.says and found.fix[0].does.endswith("to ib0")
    assert judged("NET003", HERE | env() | {"net.interface": name}) is None, "one machine does not mind"


@pytest.mark.parametrize("name", ["eth0", "ib0", "bond0", "br0", "vmbr0", "br-lan", "enp1s0", "local0", None])
def test_interfaces_that_may_lead_out(name):
    assert judged("NET003", APART | HERE | {"net.interface": name}) is None


def test_a_way_out_is_asked_for_where_none_is_known():
    found = judged("NET003", APART | {"net.interface": "lo", "net.interfaces": {"lo": LO}})
    assert "the interface that the nodes share" in found.fix[0].does
