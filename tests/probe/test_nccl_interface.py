"""Which interface NCCL would take."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpuready.probe.network import choose_nccl_interface, match_interfaces, read_nccl_setting
from tests.every import every
from tests.probe.fakes import DENIED, Fake
from tests.probe.links import interface, looked, machine, route, row

# -- the choice of NCCL

TYPICAL = {
    "lo": row(addresses=("127.0.0.1", "::1"), index=1, kind="loopback"),
    "eno1": row(index=2, up=False),
    "eth1": row(index=4),
    "eth0": row(index=3),
    "docker0": row(index=5),
    "ib0": row(index=9),
    "ib1": row(index=8, addresses=()),
    "virbr0": row(index=2, addresses=("192.168.122.1",)),
}


def without(*names):
    return {name: about for name, about in TYPICAL.items() if not name.startswith(names)}


@every(
    ("interfaces", "value", "taken"),
    [
        (TYPICAL, None, "ib0"),
        (without("ib"), None, "eth0"),
        (without("ib", "eth"), None, "docker0"),
        (without("ib", "eth", "docker"), None, "lo"),
        ({"virbr0": TYPICAL["virbr0"]}, None, "virbr0"),
        ({}, None, None),
        (TYPICAL, "", "ib0"),
        (TYPICAL, "e", "ib0"),  # NCCL ignores a value of one character
        (TYPICAL, "eth", "eth0"),
        (TYPICAL, "eth1,eth0", "eth0"),  # the kernel's order, not that of the list
        (TYPICAL, "eth1", "eth1"),
        (TYPICAL, "=eth", None),
        (TYPICAL, "=eth1", "eth1"),
        (TYPICAL, "=eth1,docker0", "eth1"),
        (TYPICAL, "eth77", None),
        (TYPICAL, "eno1", None),  # it is down
        (TYPICAL, "ib1", None),  # it has no address
        (TYPICAL, "^ib", "lo"),
        (TYPICAL, "^ib,lo,virbr", "eth0"),
        (TYPICAL, "^=ib0,lo,virbr0", "eth0"),
        (TYPICAL, "^ib,lo,virbr,eth,docker", None),
        (TYPICAL, "eth1:4", "eth1"),
        (TYPICAL, ",,eth1,", "eth1"),
        (TYPICAL, "^^", "lo"),
    ],
)
def test_which_interface_is_taken(interfaces, value, taken):
    assert choose_nccl_interface(interfaces, value) == taken


def test_all_with_ipv4_come_before_those_that_have_only_ipv6():
    interfaces = {"eth0": row(addresses=("fd00::1",), index=2), "eth1": row(index=3)}
    assert choose_nccl_interface(interfaces, "eth") == "eth1"
    assert choose_nccl_interface(interfaces, "eth", "AF_INET6") == "eth0"
    assert choose_nccl_interface(interfaces, "eth", "AF_INET") == "eth1"
    assert choose_nccl_interface({"eth0": interfaces["eth0"]}, None, "AF_INET") is None
    assert choose_nccl_interface({"lo": row(addresses=("::1",))}, "lo") is None, "NCCL skips the IPv6 loopback"


def test_addresses_that_nobody_can_tell_apart_are_addresses_all_the_same():
    assert choose_nccl_interface({"eth0": row(addresses=None), "eth1": row(addresses=None, index=3)}, None) == "eth0"


@given(
    st.dictionaries(st.text("abl01", min_size=1, max_size=4), st.booleans(), max_size=6),
    st.text("abl01,=:", max_size=12),
)
def test_an_exclusion_leaves_what_the_list_does_not_take(ups, words):
    interfaces = {name: row(up=up, index=i) for i, (name, up) in enumerate(ups.items())}
    everything = [name for name, up in ups.items() if up]
    taken, left = match_interfaces(interfaces, words), match_interfaces(interfaces, f"^{words}")
    assert set(taken).isdisjoint(left) and set(taken) | set(left) == set(everything)


def test_the_fact_says_by_what():
    parts = interface("eth0", 2), interface("eth1", 3)
    found = looked(machine(*parts, env={"NCCL_SOCKET_IFNAME": "=eth0"}))["net.interface"]
    assert (found.value, found.source, found.gap) == ("eth0", "NCCL_SOCKET_IFNAME", "")
    found = looked(machine(*parts))["net.interface"]
    assert found.value == "eth0" and "/sys/class/net" in found.source
    found = looked(machine(*parts, env={"NCCL_SOCKET_IFNAME": "eth77"}))["net.interface"]
    assert (found.value, found.gap) == (None, ""), "looked, and NCCL would find none"


def test_nccl_has_files_of_settings():
    files = {"/etc/nccl.conf": "# NCCL_SOCKET_IFNAME=no\nNCCL_DEBUG=INFO\nNCCL_SOCKET_IFNAME=eth3\n"}
    assert read_nccl_setting(Fake(files), "NCCL_SOCKET_IFNAME") == ("eth3", "NCCL_SOCKET_IFNAME in /etc/nccl.conf")
    files["/home/u/.nccl.conf"] = "NCCL_SOCKET_IFNAME=eth2"
    host = Fake(files, env={"HOME": "/home/u"})
    assert read_nccl_setting(host, "NCCL_SOCKET_IFNAME")[0] == "eth2"
    files["/x.conf"] = "NCCL_SOCKET_IFNAME=eth1"
    host = Fake(files, env={"HOME": "/home/u", "NCCL_CONF_FILE": "/x.conf"})
    assert read_nccl_setting(host, "NCCL_SOCKET_IFNAME")[0] == "eth1"
    host = Fake(files, env={"HOME": "/home/u", "NCCL_SOCKET_IFNAME": ""})
    assert read_nccl_setting(host, "NCCL_SOCKET_IFNAME") == ("", "NCCL_SOCKET_IFNAME"), "set, though empty"
    assert read_nccl_setting(Fake({}), "NCCL_SOCKET_IFNAME") == (None, "NCCL_SOCKET_IFNAME")


def test_a_file_of_settings_that_is_denied_is_a_gap():
    found = looked(machine(interface("eth0", 2), {"/etc/nccl.conf": DENIED}))
    assert found["net.interface"].gap == "permission denied"
    assert found["net.interfaces"].value


def test_an_id_in_the_environment_chooses_before_us():
    env = {"NCCL_COMM_ID": "10.0.0.5:4242"}
    found = looked(machine(interface("eth0", 2), env=env))["net.interface"]
    assert found.value is None and "NCCL_COMM_ID" in found.gap
    ib = interface("ib0", 5, "32")
    ways = route(("ib0", "10.0.0.0", "255.255.255.0"))
    assert looked(machine(ib, env=env, ways=ways))["net.interface"].value == "ib0", "InfiniBand comes first"
    named = env | {"NCCL_SOCKET_IFNAME": "eth"}
    assert looked(machine(interface("eth0", 2), env=named))["net.interface"].value == "eth0"


CLUSTER = [
    interface("tunl0", 3, "768", "0x1", "unknown", device=False),
    interface("cali1", 4, device=False),
    interface("eth0", 2),
]


def test_an_address_of_nobody_is_a_gap_only_where_it_matters():
    ways = route(("eth0", "10.0.0.0", "255.255.255.0"), ("cali1", "10.42.0.9", "255.255.255.255"),
                 ("tunl0", "10.42.9.0", "255.255.255.0", "10.0.0.6"))  # fmt: skip
    addresses = ("127.0.0.1", "10.0.0.5", "10.42.0.1")
    found = looked(machine(*CLUSTER, ways=ways, addresses=addresses))
    assert found["net.interface"].value == "eth0"
    assert found["net.interfaces"].value["tunl0"]["addresses"] is None
    named = looked(machine(*CLUSTER, ways=ways, addresses=addresses, env={"NCCL_SOCKET_IFNAME": "tunl"}))
    assert named["net.interface"].gap == "nobody says which of cali1, tunl0 has an address"
