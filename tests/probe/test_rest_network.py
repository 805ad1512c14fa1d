"""The network: what the kernel's files say, and which interface NCCL would take."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarmac.probe import network
from tarmac.probe.addresses import attributed, colons, inet6, local, routes
from tarmac.probe.network import chosen, matching, setting
from tarmac.system import Blind
from tests.probe.fakes import by_key
from tests.probe.rest_fakes import DENIED, Machine

CLASS = {"/sys/class/.": "", "/sys/module/.": ""}


def interface(name, index, kind="1", flags="0x1003", state="up", device=True, speed="25000", **more):
    """One folder of /sys/class/net."""
    words = {"type": kind, "flags": flags, "operstate": state, "mtu": "1500", "ifindex": str(index), **more}
    if device:
        words |= {"device/vendor": "0x15b3", "speed": speed}
    return {f"/sys/class/net/{name}/{file}": f"{word}\n" for file, word in words.items()}


LO = interface("lo", 1, "772", "0x9", "unknown", device=False)


def trie(*addresses):
    """/proc/net/fib_trie: main and local tables that both list our own addresses."""
    leaves = "".join(f"           |-- {a}\n              /32 host LOCAL\n" for a in addresses)
    rest = (
        "        |-- 10.0.0.255\n           /32 link BROADCAST\n     |-- 10.0.0.0\n        /24 link UNICAST\n"
    )
    return f"Main:\n  +-- 0.0.0.0/0 3 0 5\n{leaves}{rest}Local:\n  +-- 0.0.0.0/0 3 0 5\n{leaves}{rest}"


def backwards(address):
    return "".join(f"{int(part):02X}" for part in reversed(address.split(".")))


def route(*rows):
    """/proc/net/route; a row is interface, destination, mask and perhaps a gateway."""
    lines = ["Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT"]
    for name, to, mask, *gateway in rows:
        flags = "0003" if gateway else "0001"
        by = backwards(gateway[0]) if gateway else "00000000"
        lines.append(f"{name}\t{backwards(to)}\t{by}\t{flags}\t0\t0\t0\t{backwards(mask)}\t0\t0\t0")
    return "\n".join(lines) + "\n"


def machine(*parts, addresses=("127.0.0.1", "10.0.0.5"), ways=None, six="", **given):
    proc = {"/proc/net/fib_trie": trie(*addresses), "/proc/net/if_inet6": six}
    proc["/proc/net/route"] = ways or route(("eth0", "10.0.0.0", "255.255.255.0"))
    files = {**CLASS, **LO, **proc}
    for part in parts:
        files |= part
    return Machine(files, **given)


def looked(door):
    return by_key(network.look(door))


def row(up=True, addresses=("10.0.0.5",), index=2, kind="ethernet"):
    return {"up": up, "kind": kind, "addresses": addresses, "mtu": 1500, "speed": None, "index": index}


# -- addresses


def test_the_own_addresses_of_a_host():
    assert local(trie("127.0.0.1", "192.0.2.2")) == ["127.0.0.1", "192.0.2.2"], "once each, and no broadcast"
    assert local("") == local("Local:\n /32 host LOCAL\n |-- nonsense\n /32 host LOCAL\n") == []


def test_routes():
    text = route(("eth0", "10.0.0.0", "255.255.255.0"), ("eth0", "0.0.0.0", "0.0.0.0", "10.0.0.1"))
    assert routes(text) == [("eth0", 0x0A000000, 0xFFFFFF00), ("eth0", 0, 0)]
    gateway = route(("eth1", "10.0.0.0", "255.0.0.0", "172.16.0.1"))
    assert routes(gateway) == [("eth1", 0x0A000000, 0)], "a network behind a gateway is not our own"
    assert routes("Iface\nshort\neth0 zzzzzzzz 0 x 0 0 0 zzzzzzzz\n") == []


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
    import ipaddress

    assert colons(digits) == text == str(ipaddress.IPv6Address(int(digits, 16)))


@given(st.integers(0, 2**128 - 1))
def test_ipv6_like_the_standard_library(number):
    import ipaddress

    assert ipaddress.IPv6Address(colons(f"{number:032x}")) == ipaddress.IPv6Address(number)


def test_ipv6_lines():
    text = "fe8000000000000000fc00fffe000001 04 40 20 80     eth0\nbroken line\n"
    assert list(inet6(text)) == [("eth0", "fe80::fc:ff:fe00:1")]


ROWS = {"lo": row(kind="loopback", index=1), "eth0": row(index=2), "eth1": row(index=3), "eth2": row(index=4)}


def test_an_address_belongs_to_the_interface_with_the_narrowest_route():
    ways = routes(route(("eth0", "10.0.0.0", "255.0.0.0"), ("eth1", "10.1.0.0", "255.255.0.0")))
    owned, unsure = attributed(["127.0.0.1", "10.1.2.3", "10.2.0.1"], ways, ROWS)
    assert owned == {"lo": ["127.0.0.1"], "eth1": ["10.1.2.3"], "eth0": ["10.2.0.1"]}
    assert unsure == set()


def test_interfaces_in_one_network_have_addresses_that_nobody_can_tell_apart():
    ways = routes(route(("eth0", "10.1.0.0", "255.255.0.0"), ("eth1", "10.1.0.0", "255.255.0.0")))
    owned, unsure = attributed(["10.1.0.1", "10.1.0.2"], ways, ROWS)
    assert owned == {"eth0": None, "eth1": None}
    assert unsure == set(), "but each surely has one"


def test_a_cloud_address_without_a_network_belongs_to_the_one_interface_left():
    rows = {"lo": row(kind="loopback"), "ens4": row(), "veth1": row(kind="virtual")}
    ways = routes(
        route(("ens4", "0.0.0.0", "0.0.0.0", "10.128.0.1"), ("ens4", "10.128.0.1", "255.255.255.255"))
    )
    assert attributed(["10.128.0.5"], ways, rows) == ({"ens4": ["10.128.0.5"]}, set())


def test_an_address_that_could_be_of_several_is_given_to_none():
    ways = routes(route(("eth0", "10.1.0.0", "255.255.0.0")))
    owned, unsure = attributed(["10.1.0.1", "192.168.7.7"], ways, ROWS)
    assert owned == {"eth0": ["10.1.0.1"], "eth1": None, "eth2": None}
    assert unsure == {"eth1", "eth2"}


@given(st.text(max_size=300), st.text(max_size=300), st.text(max_size=300))
def test_files_that_are_nonsense_do_no_harm(one, two, three):
    attributed(local(one), routes(two), ROWS)
    list(inet6(three))


# -- interfaces


def test_the_table():
    six = "00000000000000000000000000000001 01 80 10 80       lo\n"
    six += "fe8000000000000000fc00fffe000001 02 40 20 80     eth0\n"
    found = looked(machine(interface("eth0", 2), six=six))["net.interfaces"]
    same = {"up": True, "mtu": 1500}
    assert found.value == {
        "lo": {**same, "kind": "loopback", "addresses": ["127.0.0.1", "::1"], "speed": None, "index": 1},
        "eth0": {
            **same,
            "kind": "ethernet",
            "addresses": ["10.0.0.5", "fe80::fc:ff:fe00:1"],
            "speed": 3_125_000_000,
            "index": 2,
        },
    }
    assert not found.gap and "/proc/net/fib_trie" in found.source


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        (interface("x", 2), "ethernet"),
        (interface("x", 2, "32"), "infiniband"),
        (interface("x", 2, "772", device=False), "loopback"),
        (interface("x", 2, device=False, **{"bridge/bridge_id": "8000"}), "bridge"),
        (interface("x", 2, device=False), "virtual"),
        (interface("x", 2, "65534", device=False), "virtual"),
    ],
)
def test_kinds(part, kind):
    assert looked(machine(part))["net.interfaces"].value["x"]["kind"] == kind


@pytest.mark.parametrize(
    ("flags", "state", "up"),
    [
        ("0x1003", "up", True),
        ("0x1003", "unknown", True),
        ("0x1003", "down", False),
        ("0x1003", "dormant", False),
        ("0x1002", "up", False),
        ("0x1003", "", False),
    ],
)
def test_an_interface_is_up_when_it_is_set_up_and_its_link_is_there(flags, state, up):
    found = looked(machine(interface("x", 2, flags=flags, state=state)))
    assert found["net.interfaces"].value["x"]["up"] is up


@pytest.mark.parametrize(("speed", "bytes_"), [("-1", None), ("", None), ("100000", 12_500_000_000)])
def test_speeds(speed, bytes_):
    assert looked(machine(interface("x", 2, speed=speed)))["net.interfaces"].value["x"]["speed"] == bytes_


def test_a_speed_that_the_driver_refuses_is_none():
    part = interface("x", 2) | {"/sys/class/net/x/speed": Blind("invalid argument")}
    assert looked(machine(part))["net.interfaces"].value["x"]["speed"] is None


def test_the_file_of_bonding_is_no_interface():
    found = looked(machine(interface("eth0", 2), {"/sys/class/net/bonding_masters": "bond0\n"}))
    assert set(found["net.interfaces"].value) == {"lo", "eth0"}


@pytest.mark.parametrize("missing", ["/proc/net/fib_trie", "/sys/class/net/"])
def test_without_a_file_the_interfaces_are_unknown(missing):
    door = machine(interface("eth0", 2))
    door.files = {path: text for path, text in door.files.items() if not path.startswith(missing)}
    found = looked(door)
    for key in ("net.interfaces", "net.interface"):
        assert found[key].value is None and "there is no" in found[key].gap


@pytest.mark.parametrize(
    "path", ["/proc/net/fib_trie", "/proc/net/route", "/proc/net/if_inet6", "/sys/class/net/"]
)
def test_what_is_denied_is_a_gap(path):
    found = looked(machine(interface("eth0", 2), {path: DENIED}))
    assert found["net.interfaces"].gap == found["net.interface"].gap == "permission denied"
    assert found["net.ib"].gap == ""


def test_without_ipv6_there_are_only_the_others():
    door = machine(interface("eth0", 2))
    del door.files["/proc/net/if_inet6"]
    assert looked(door)["net.interfaces"].value["eth0"]["addresses"] == ["10.0.0.5"]


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


@pytest.mark.parametrize(
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
    assert chosen(interfaces, value) == taken


def test_all_with_ipv4_come_before_those_that_have_only_ipv6():
    interfaces = {"eth0": row(addresses=("fd00::1",), index=2), "eth1": row(index=3)}
    assert chosen(interfaces, "eth") == "eth1"
    assert chosen(interfaces, "eth", "AF_INET6") == "eth0"
    assert chosen(interfaces, "eth", "AF_INET") == "eth1"
    assert chosen({"eth0": interfaces["eth0"]}, None, "AF_INET") is None
    assert chosen({"lo": row(addresses=("::1",))}, "lo") is None, "NCCL skips the IPv6 loopback"


def test_addresses_that_nobody_can_tell_apart_are_addresses_all_the_same():
    assert chosen({"eth0": row(addresses=None), "eth1": row(addresses=None, index=3)}, None) == "eth0"


@given(
    st.dictionaries(st.text("abl01", min_size=1, max_size=4), st.booleans(), max_size=6),
    st.text("abl01,=:", max_size=12),
)
def test_an_exclusion_leaves_what_the_list_does_not_take(ups, words):
    interfaces = {name: row(up=up, index=i) for i, (name, up) in enumerate(ups.items())}
    everything = [name for name, up in ups.items() if up]
    taken, left = matching(interfaces, words), matching(interfaces, f"^{words}")
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
    assert setting(Machine(files), "NCCL_SOCKET_IFNAME") == ("eth3", "NCCL_SOCKET_IFNAME in /etc/nccl.conf")
    files["/home/u/.nccl.conf"] = "NCCL_SOCKET_IFNAME=eth2"
    door = Machine(files, env={"HOME": "/home/u"})
    assert setting(door, "NCCL_SOCKET_IFNAME")[0] == "eth2"
    files["/x.conf"] = "NCCL_SOCKET_IFNAME=eth1"
    door = Machine(files, env={"HOME": "/home/u", "NCCL_CONF_FILE": "/x.conf"})
    assert setting(door, "NCCL_SOCKET_IFNAME")[0] == "eth1"
    door = Machine(files, env={"HOME": "/home/u", "NCCL_SOCKET_IFNAME": ""})
    assert setting(door, "NCCL_SOCKET_IFNAME") == ("", "NCCL_SOCKET_IFNAME"), "set, though empty"
    assert setting(Machine({}), "NCCL_SOCKET_IFNAME") == (None, "NCCL_SOCKET_IFNAME")


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


# -- RDMA


def port(
    device="mlx5_0", number="1", state="4: ACTIVE", rate="400 Gb/sec (4X NDR)", layer="InfiniBand", **more
):
    at = f"/sys/class/infiniband/{device}/ports/{number}"
    words = {"state": state, "rate": rate, "link_layer": layer}
    return {f"{at}/{file}": f"{word}\n" for file, word in words.items()} | more


def test_rdma_ports():
    roce = port("mlx5_1", rate="100 Gb/sec (4X EDR)", layer="Ethernet", state="1: DOWN")
    files = port() | roce | {
        "/sys/class/infiniband/mlx5_0/device/net/ib0/mtu": "4092",
        "/sys/class/infiniband/mlx5_1/ports/1/gid_attrs/ndevs/0": "eth4\n",
    }  # fmt: skip
    found = looked(machine(files))["net.ib"]
    assert found.value == {
        "mlx5_0/1": {"state": "active", "rate": 50_000_000_000, "link_layer": "InfiniBand", "netdev": "ib0"},
        "mlx5_1/1": {"state": "down", "rate": 12_500_000_000, "link_layer": "Ethernet", "netdev": "eth4"},
    }
    assert found.source == "/sys/class/infiniband"


def test_two_ports_with_an_interface_each():
    files = port(number="1") | port(number="2")
    for name, number in (("ib0", "0"), ("ib1", "1")):
        files |= {f"/sys/class/infiniband/mlx5_0/device/net/{name}/mtu": ""}
        files |= interface(name, 5, "32", dev_port=number)
    found = looked(machine(files))["net.ib"].value
    assert [found[f"mlx5_0/{n}"]["netdev"] for n in "12"] == ["ib0", "ib1"]


def test_a_port_that_tells_nothing():
    files = port(state="", rate="fast", layer="") | {
        "/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0": Blind("invalid argument")
    }
    nothing = {"state": None, "rate": None, "link_layer": None, "netdev": None}
    assert looked(machine(files))["net.ib"].value == {"mlx5_0/1": nothing}


def test_rates_with_a_fraction():
    assert (
        looked(machine(port(rate="2.5 Gb/sec (1X SDR)")))["net.ib"].value["mlx5_0/1"]["rate"] == 312_500_000
    )


def test_no_rdma_is_known_where_there_is_a_sysfs():
    assert looked(machine())["net.ib"].value == {}
    assert "there is no" in looked(Machine({}))["net.ib"].gap
    assert looked(machine({"/sys/class/infiniband/": DENIED}))["net.ib"].gap == "permission denied"


@pytest.mark.parametrize(
    "path",
    [
        "/sys/module/nvidia_peermem",
        "/sys/kernel/mm/memory_peers/nv_mem",
        "/sys/kernel/mm/memory_peers/nv_mem_nc",
    ],
)
def test_a_module_for_peer_memory(path):
    found = looked(machine({f"{path}/version": "580.95\n"}))["net.peermem"]
    assert (found.value, found.source) == (True, path)


def test_no_module_for_peer_memory():
    assert looked(machine())["net.peermem"].value is False
    assert looked(Machine({}))["net.peermem"].gap == "there is no /sys/module"
    assert (
        looked(machine({"/sys/module/nvidia_peermem/version": DENIED}))["net.peermem"].gap
        == "permission denied"
    )


# -- the host's own name


@pytest.mark.parametrize(
    ("hosts", "address"),
    [
        ("127.0.0.1 localhost\n127.0.1.1 gpu-07.lab gpu-07\n", "127.0.1.1"),
        ("10.0.0.5\tGPU-07 # me\n", "10.0.0.5"),
        ("10.0.0.5 gpu-07\n10.0.0.6 gpu-07\n", "10.0.0.5"),
        ("127.0.0.1 localhost # gpu-07\n", None),
        ("10.0.0.7 gpu-070 gpu-07.lab\n", None),
        ("gpu-07 10.0.0.5\n", None),
        ("", None),
    ],
)
def test_what_the_hosts_file_says_of_us(hosts, address):
    found = looked(machine({"/etc/hosts": hosts}))["net.hostname_address"]
    assert (found.value, found.source, found.gap) == (address, "/etc/hosts", "")


def test_a_hosts_file_that_is_not_there_or_not_ours_to_see():
    assert looked(machine())["net.hostname_address"].value is None
    assert looked(machine({"/etc/hosts": DENIED}))["net.hostname_address"].gap == "permission denied"


def test_every_key_is_given():
    for door in (Machine({}), machine(interface("eth0", 2))):
        assert tuple(fact.key for fact in network.look(door)) == network.KEYS
