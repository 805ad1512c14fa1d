"""The addresses and routes of a host, as the kernel's files tell them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuready.probe.network import assign_addresses, parse_inet6_addresses, parse_local_addresses, parse_routes
from tests.probe.links import route, row, trie

# -- addresses


def test_the_own_addresses_of_a_host():
    assert parse_local_addresses(trie("127.0.0.1", "192.0.2.2")) == ["127.0.0.1", "192.0.2.2"], (
        "once each, and no broadcast"
    )
    assert (
        parse_local_addresses("")
        == parse_local_addresses("Local:\n /32 host LOCAL\n |-- nonsense\n /32 host LOCAL\n")
        == []
    )


def test_routes():
    text = route(("eth0", "10.0.0.0", "255.255.255.0"), ("eth0", "0.0.0.0", "0.0.0.0", "10.0.0.1"))
    assert parse_routes(text) == [("eth0", 0x0A000000, 0xFFFFFF00), ("eth0", 0, 0)]
    gateway = route(("eth1", "10.0.0.0", "255.0.0.0", "172.16.0.1"))
    assert parse_routes(gateway) == [("eth1", 0x0A000000, 0)], "a network behind a gateway is not our own"
    assert parse_routes("Iface\nshort\neth0 zzzzzzzz 0 x 0 0 0 zzzzzzzz\n") == []


@pytest.mark.parametrize(
    ("digits", "text"),
    [
        ("00000000000000000000000000000001", "::1"),
        ("fe8000000000000000fc00fffe000001", "fe80::fc:ff:fe00:1"),
        ("fd000000000000000000000000000002", "fd00::2"),
        ("20010db8000000010000000000000001", "2001:db8:0:1::1"),
        ("20010db8000100010001000100010000", "2001:db8:1:1:1:1:1:0"),
        ("00000000000000000000000000000000", "::"),
        ("fe800000000000000000000000000000", "fe80::"),
    ],
)
def test_ipv6_as_people_write_it(digits, text):
    assert list(parse_inet6_addresses(f"{digits} 04 40 20 80 eth0")) == [("eth0", text)]


def test_ipv6_lines():
    text = "fe8000000000000000fc00fffe000001 04 40 20 80     eth0\nbroken line\n" + "z" * 32 + " 04 40 20 80 eth0\n"
    assert list(parse_inet6_addresses(text)) == [("eth0", "fe80::fc:ff:fe00:1")]


ROWS = {"lo": row(kind="loopback", index=1), "eth0": row(index=2), "eth1": row(index=3), "eth2": row(index=4)}


def test_an_address_belongs_to_the_interface_with_the_narrowest_route():
    ways = parse_routes(route(("eth0", "10.0.0.0", "255.0.0.0"), ("eth1", "10.1.0.0", "255.255.0.0")))
    owned, unsure = assign_addresses(["127.0.0.1", "10.1.2.3", "10.2.0.1"], ways, ROWS)
    assert owned == {"lo": ["127.0.0.1"], "eth1": ["10.1.2.3"], "eth0": ["10.2.0.1"]}
    assert unsure == set()


def test_interfaces_in_one_network_have_addresses_that_nobody_can_tell_apart():
    ways = parse_routes(route(("eth0", "10.1.0.0", "255.255.0.0"), ("eth1", "10.1.0.0", "255.255.0.0")))
    owned, unsure = assign_addresses(["10.1.0.1", "10.1.0.2"], ways, ROWS)
    assert owned == {"eth0": None, "eth1": None}
    assert unsure == set(), "but each surely has one"


def test_a_cloud_address_without_a_network_belongs_to_the_one_interface_left():
    rows = {"lo": row(kind="loopback"), "ens4": row(), "veth1": row(kind="virtual")}
    ways = parse_routes(route(("ens4", "0.0.0.0", "0.0.0.0", "10.128.0.1"), ("ens4", "10.128.0.1", "255.255.255.255")))
    assert assign_addresses(["10.128.0.5"], ways, rows) == ({"ens4": ["10.128.0.5"]}, set())


def test_an_address_that_could_be_of_several_is_given_to_none():
    ways = parse_routes(route(("eth0", "10.1.0.0", "255.255.0.0")))
    owned, unsure = assign_addresses(["10.1.0.1", "192.168.7.7"], ways, ROWS)
    assert owned == {"eth0": ["10.1.0.1"], "eth1": None, "eth2": None}
    assert unsure == {"eth1", "eth2"}


@given(st.text(max_size=300), st.text(max_size=300), st.text(max_size=300))
def test_files_that_are_nonsense_do_no_harm(one, two, three):
    assign_addresses(parse_local_addresses(one), parse_routes(two), ROWS)
    list(parse_inet6_addresses(three))
