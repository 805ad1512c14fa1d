"""The network: interfaces, RDMA ports and the host's own name, as the kernel's files tell them."""

from __future__ import annotations

import pytest

from gpuready.probe import network
from gpuready.system import AccessError
from tests.probe.fakes import DENIED, Fake
from tests.probe.links import interface, looked, machine

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
    part = interface("x", 2) | {"/sys/class/net/x/speed": AccessError("invalid argument")}
    assert looked(machine(part))["net.interfaces"].value["x"]["speed"] is None


def test_the_file_of_bonding_is_no_interface():
    found = looked(machine(interface("eth0", 2), {"/sys/class/net/bonding_masters": "bond0\n"}))
    assert set(found["net.interfaces"].value) == {"lo", "eth0"}


@pytest.mark.parametrize("missing", ["/proc/net/fib_trie", "/sys/class/net/"])
def test_without_a_file_the_interfaces_are_unknown(missing):
    host = machine(interface("eth0", 2))
    host.files = {path: text for path, text in host.files.items() if not path.startswith(missing)}
    found = looked(host)
    for key in ("net.interfaces", "net.interface"):
        assert found[key].value is None and "there is no" in found[key].gap


@pytest.mark.parametrize("path", ["/proc/net/fib_trie", "/proc/net/route", "/proc/net/if_inet6", "/sys/class/net/"])
def test_what_is_denied_is_a_gap(path):
    found = looked(machine(interface("eth0", 2), {path: DENIED}))
    assert found["net.interfaces"].gap == found["net.interface"].gap == "permission denied"
    assert found["net.ib"].gap == ""


def test_without_ipv6_there_are_only_the_others():
    host = machine(interface("eth0", 2))
    del host.files["/proc/net/if_inet6"]
    assert looked(host)["net.interfaces"].value["eth0"]["addresses"] == ["10.0.0.5"]


# -- RDMA


def port(device="mlx5_0", number="1", state="4: ACTIVE", rate="400 Gb/sec (4X NDR)", layer="InfiniBand", **more):
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
        "/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0": AccessError("invalid argument")
    }
    nothing = {"state": None, "rate": None, "link_layer": None, "netdev": None}
    assert looked(machine(files))["net.ib"].value == {"mlx5_0/1": nothing}


def test_rates_with_a_fraction():
    assert looked(machine(port(rate="2.5 Gb/sec (1X SDR)")))["net.ib"].value["mlx5_0/1"]["rate"] == 312_500_000


def test_no_rdma_is_known_where_there_is_a_sysfs():
    assert looked(machine())["net.ib"].value == {}
    assert "there is no" in looked(Fake({}))["net.ib"].gap
    assert looked(machine({"/sys/class/infiniband/": DENIED}))["net.ib"].gap == "permission denied"


@pytest.mark.parametrize(
    "path",
    ["/sys/module/nvidia_peermem", "/sys/kernel/mm/memory_peers/nv_mem", "/sys/kernel/mm/memory_peers/nv_mem_nc"],
)
def test_a_module_for_peer_memory(path):
    found = looked(machine({f"{path}/version": "580.95\n"}))["net.peermem"]
    assert (found.value, found.source) == (True, path)


def test_no_module_for_peer_memory():
    assert looked(machine())["net.peermem"].value is False
    assert looked(Fake({}))["net.peermem"].gap == "there is no /sys/module"
    assert looked(machine({"/sys/module/nvidia_peermem/version": DENIED}))["net.peermem"].gap == "permission denied"


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
    for host in (Fake({}), machine(interface("eth0", 2))):
        assert tuple(fact.key for fact in network.probe_network(host)) == network.KEYS
