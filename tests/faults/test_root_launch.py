"""Starts over broken networks: two hosts that are network name spaces of this test, and the wires between them.

They need root, and are run by ``make faults`` alone. Nothing leaves the machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from tests.rollcall.meeting import ATTEND
from tests.running import SRC

pytestmark = pytest.mark.faults
PORT = 29555
ONE, OTHER = "10.77.0.1", "10.77.0.2"


class Hosts:
    """Network name spaces, each with a wire to a switch, which is one more of them."""

    def __init__(self, count: int = 2) -> None:
        self.names = tuple(f"gpuready{os.getpid()}{letter}" for letter in "abc"[:count])
        self.switch = f"gpuready{os.getpid()}s"
        for name in (*self.names, self.switch):
            self.ip("netns", "add", name)
        self.ip("-n", self.switch, "link", "add", "plane", "type", "bridge")
        self.ip("-n", self.switch, "link", "set", "plane", "up")
        for at, name in enumerate(self.names):
            self.wired(f"port{at}", self.switch, "wire", name)
            self.ip("-n", self.switch, "link", "set", f"port{at}", "master", "plane")
            self.inside(at, "link", "set", "lo", "up")
            self.inside(at, "addr", "add", f"10.77.0.{at + 1}/24", "dev", "wire")

    def wired(self, one: str, here: str, other: str, there: str) -> None:
        """A cable from an interface of one name space to one of another."""
        ends = ["type", "veth", "peer", "name", other, "netns", there]
        self.ip("link", "add", one, "netns", here, *ends)
        self.ip("-n", here, "link", "set", one, "up")
        self.ip("-n", there, "link", "set", other, "up")

    def ip(self, *words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def inside(self, at: int, *words: str) -> None:
        self.ip("-n", self.names[at], *words)

    def local_after(self, at: int) -> None:
        """Rules of ours come before the kernel's own, which would take in what is meant for this host."""
        self.inside(at, "rule", "add", "pref", "3", "lookup", "local")
        self.inside(at, "rule", "del", "pref", "0")

    def start(self, at: int, environ: dict, before: list[str] | None = None) -> subprocess.Popen:
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SRC), "GPUREADY_HOSTNAME": f"host-{at}"}
        env |= {k: str(v) for k, v in environ.items()}
        argv = ["ip", "netns", "exec", self.names[at], *(before or []), sys.executable, "-c", ATTEND]
        return subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def close(self) -> None:
        for name in (*self.names, self.switch):
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


@pytest.fixture
def hosts():
    yield from _made(2)


@pytest.fixture
def three():
    yield from _made(3)


def _made(count: int):
    if os.geteuid() != 0:
        pytest.skip("NOT ROOT: nothing of this file is tested; run `make faults` as root")
    try:
        made = Hosts(count)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"NO NETWORK NAME SPACES ({error}): nothing of this file is tested")
    yield made
    made.close()


def nodes(address: str = ONE, count: int = 2, **more: str) -> list[dict]:
    shared = {
        "WORLD_SIZE": count,
        "LOCAL_WORLD_SIZE": 1,
        "LOCAL_RANK": 0,
        "MASTER_ADDR": address,
        "MASTER_PORT": PORT,
        "WINDOW": 20,
    }
    return [shared | {"RANK": rank} | more for rank in range(count)]


def met(running: list[subprocess.Popen]) -> list[dict]:
    found = []
    for one in running:
        out, err = one.communicate(timeout=60)
        assert "Traceback" not in err, err
        found.append(json.loads(out))
    return found


def noted(seen, case: str, expected: str, answers: list[dict]) -> None:
    seen(case, expected, answers[-1].get("said", "go").replace("\n", " "), max(a["s"] for a in answers))


def test_two_hosts_meet_and_try_their_wire(hosts, seen):
    answers = met([hosts.start(at, one) for at, one in enumerate(nodes())])
    assert all(a["go"] for a in answers) and [n[1] for n in answers[0]["nodes"]] == ["host-0", "host-1"]
    noted(seen, "two hosts", "both go", answers)


def test_a01_an_address_without_a_route(hosts, seen):
    answers = met([hosts.start(at, one) for at, one in enumerate(nodes("10.99.0.1"))])
    assert (
        "10.99.0.1 is not an address of rank 0's host" in answers[0]["said"]
        and f"set MASTER_ADDR={ONE}" in answers[0]["said"]
    )
    assert "rank 1 (host-1, pid" in answers[1]["said"] and "cannot reach rank 0 at 10.99.0.1" in answers[1]["said"]
    assert all(a["s"] < 6 for a in answers)
    noted(seen, "A01", "no route, within 5 s", answers)


def test_a01_an_address_that_nobody_has(hosts, seen):
    answers = met([hosts.start(at, one) for at, one in enumerate(nodes("10.77.0.9"))])
    assert all(not a["go"] and "10.77.0.9" in a["said"] and a["s"] < 7 for a in answers), answers
    noted(seen, "A01", "no answer, within 5 s", answers)


def test_a03_a_name_that_is_another_address_elsewhere(hosts, seen, tmp_path):
    each = nodes("rank-zero")
    running = []
    for at, address in enumerate((ONE, "10.77.0.9")):
        table = tmp_path / f"hosts-{at}"
        table.write_text(f"127.0.0.1 localhost\n{address} rank-zero\n")
        cover = ["unshare", "-m", "sh", "-c", f'mount --bind {table} /etc/hosts && exec "$@"', "sh"]
        running.append(hosts.start(at, each[at] | {"WINDOW": 6}, cover))
    answers = met(running)
    assert "10.77.0.9" in answers[1]["said"] and answers[1]["s"] < 6
    assert f"takes rank-zero for {ONE}" in answers[0]["said"]
    both = f"rank 1: 10.77.0.9 does not answer; rank 0 takes rank-zero for {ONE}"
    seen("A03", "each rank shows what the name is there", both, answers[1]["s"])


def test_a38_an_interface_that_is_down(hosts, seen):
    hosts.inside(1, "link", "add", "spare", "type", "veth", "peer", "name", "spare2")
    code = "import os; from gpuready.rollcall import interface_check; print(interface_check.find_interface_fault(os.environ, 'rank 1', 1, 'gloo'))"
    begun = time.monotonic()
    ran = subprocess.run(["ip", "netns", "exec", hosts.names[1], sys.executable, "-c", code], capture_output=True, text=True,
                         env={"PATH": os.environ["PATH"], "PYTHONPATH": str(SRC), "GLOO_SOCKET_IFNAME": "spare"})  # fmt: skip
    assert (
        "the interface spare of rank 1, which GLOO_SOCKET_IFNAME names, is down or has no address" in ran.stdout
        and "NET002" in ran.stdout
    )
    seen("A38", "the interface named", ran.stdout.strip(), time.monotonic() - begun)


def test_a39_data_passes_in_one_direction_only(hosts, seen):
    """Host 1 takes data at an address that host 0 can send to, and from where nothing comes back."""
    hosts.inside(1, "addr", "add", "10.88.0.2/32", "dev", "lo")
    hosts.inside(0, "route", "add", "10.88.0.2/32", "via", OTHER)
    hosts.inside(1, "rule", "add", "pref", "1", "iif", "wire", "to", "10.88.0.2", "blackhole")
    hosts.local_after(1)
    each = nodes()
    each[1] |= {"MORE": json.dumps({"data": ["10.88.0.2", 0]})}
    answers = met([hosts.start(at, one) for at, one in enumerate(each)])
    for one in answers:
        assert "rank 0 (host-0, pid" in one["said"] and "cannot send data to rank 1 (host-1" in one["said"], one
        assert (
            "no answer" in one["said"]
            and "the other way works" in one["said"]
            and "NET017" in one["codes"]
            and one["s"] < 10
        )
    noted(seen, "A39", "the direction named, within 8 s", answers)


def test_a40_only_the_port_of_the_rendezvous_is_open(hosts, seen):
    hosts.inside(1, "rule", "add", "pref", "1", "iif", "wire", "ipproto", "tcp", "sport", str(PORT), "lookup", "local")
    hosts.inside(1, "rule", "add", "pref", "2", "iif", "wire", "ipproto", "tcp", "blackhole")
    hosts.local_after(1)
    answers = met([hosts.start(at, one) for at, one in enumerate(nodes())])
    for one in answers:
        assert (
            not one["go"] and "cannot send data to" in one["said"] and "open ports" in one["said"] and one["s"] < 12
        ), one
    noted(seen, "A40", "the ports to open, within 10 s", answers)


def test_a41_large_packets_are_lost_on_the_way(hosts, seen):
    """A port of the switch takes 1,400 bytes, and nobody is told: small pieces pass, large ones vanish."""
    hosts.inside(1, "link", "set", "wire", "gso_max_segs", "1")
    hosts.inside(0, "link", "set", "wire", "gso_max_segs", "1")
    for at in (0, 1):
        tune = ["ip", "netns", "exec", hosts.names[at], "ethtool", "-K", "wire", "tso", "off", "gso", "off"]
        subprocess.run(tune, capture_output=True, check=False)
    hosts.ip("-n", hosts.switch, "link", "set", "port1", "mtu", "1400")
    answers = met([hosts.start(at, one) for at, one in enumerate(nodes())])
    for one in answers:
        assert not one["go"] and "64 B pass, 64 KiB stall" in one["said"] and "MTU" in one["said"], one
        assert "rank 1 (host-1, pid" in one["said"] and "NET017" in one["codes"] and one["s"] < 12, one
    noted(seen, "A41", "small pieces pass and large ones stall, within 10 s", answers)


def test_a42_one_link_of_three_is_slow(three, seen):
    """Hosts 1 and 2 have a cable of their own between them, of 1 Mbit/s; everything else goes over the switch."""
    three.wired("slow", three.names[1], "slow", three.names[2])
    for at, other in ((1, 3), (2, 2)):
        three.inside(at, "route", "add", f"10.77.0.{other}/32", "dev", "slow", "src", f"10.77.0.{at + 1}")
        limit = ["qdisc", "add", "dev", "slow", "root", "tbf", "rate", "1mbit", "burst", "4kb", "latency", "2s"]
        subprocess.run(["tc", "-n", three.names[at], *limit], check=True, capture_output=True)
    answers = met([three.start(at, one) for at, one in enumerate(nodes(count=3))])
    for one in answers:
        (note,) = [said for said in one["notes"] if "NET019" in said]
        assert "the link between rank 1 (host-1, pid" in note and "and rank 2 (host-2, pid" in note, note
        assert one["go"] and "and the others" in note and one["s"] < 10
    seen("A42", "the slow link named, against its peers", note, max(a["s"] for a in answers))


def test_a54_the_host_of_rank_0_goes_away(hosts, seen):
    each = nodes()
    each[1] |= {"WORLD_SIZE": 3}
    each[0] |= {"WORLD_SIZE": 3}
    running = [hosts.start(at, one) for at, one in enumerate(each)]
    time.sleep(1.5)
    running[0].kill()
    out, _ = running[1].communicate(timeout=30)
    answer = json.loads(out)
    assert "rank 0 (host-0, pid" in answer["said"] and "went away" in answer["said"] and answer["s"] < 10
    running[0].wait()
    noted(seen, "A54", "rank 0 named, within 10 s", [answer])
