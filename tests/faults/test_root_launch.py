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

from tests.running import SRC
from tests.test_rollcall import ATTEND

pytestmark = pytest.mark.faults
PORT = 29555
ONE, OTHER = "10.77.0.1", "10.77.0.2"


class Hosts:
    """Two network name spaces with a wire between them."""

    def __init__(self) -> None:
        self.names = (f"tarmac{os.getpid()}a", f"tarmac{os.getpid()}b")
        for name in self.names:
            self.ip("netns", "add", name)
        self.ip(
            "link",
            "add",
            "wire",
            "netns",
            self.names[0],
            "type",
            "veth",
            "peer",
            "name",
            "wire",
            "netns",
            self.names[1],
        )
        for at, address in enumerate((ONE, OTHER)):
            self.inside(at, "link", "set", "lo", "up")
            self.inside(at, "link", "set", "wire", "up")
            self.inside(at, "addr", "add", f"{address}/24", "dev", "wire")

    def ip(self, *words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def inside(self, at: int, *words: str) -> None:
        self.ip("-n", self.names[at], *words)

    def local_after(self, at: int) -> None:
        """Rules of ours come before the kernel's own, which would take in what is meant for this host."""
        self.inside(at, "rule", "add", "pref", "3", "lookup", "local")
        self.inside(at, "rule", "del", "pref", "0")

    def start(self, at: int, environ: dict, before: list[str] | None = None) -> subprocess.Popen:
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SRC), "TARMAC_HOSTNAME": f"host-{at}"}
        env |= {k: str(v) for k, v in environ.items()}
        argv = ["ip", "netns", "exec", self.names[at], *(before or []), sys.executable, "-c", ATTEND]
        return subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def close(self) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


@pytest.fixture
def hosts():
    if os.geteuid() != 0:
        pytest.skip("NOT ROOT: nothing of this file is tested; run `make faults` as root")
    try:
        made = Hosts()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"NO NETWORK NAME SPACES ({error}): nothing of this file is tested")
    yield made
    made.close()


def nodes(address: str = ONE, **more: str) -> list[dict]:
    shared = {
        "WORLD_SIZE": 2,
        "LOCAL_WORLD_SIZE": 1,
        "LOCAL_RANK": 0,
        "MASTER_ADDR": address,
        "MASTER_PORT": PORT,
        "WINDOW": 20,
    }
    return [shared | {"RANK": rank} | more for rank in range(2)]


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
        "10.99.0.1 is no address of rank 0's host" in answers[0]["said"]
        and f"set MASTER_ADDR={ONE}" in answers[0]["said"]
    )
    assert (
        "rank 1 (host-1, pid" in answers[1]["said"]
        and "cannot reach rank 0 at 10.99.0.1" in answers[1]["said"]
    )
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
    noted(seen, "A03", "each rank shows what the name is there", answers)


def test_a38_an_interface_that_is_down(hosts, seen):
    hosts.inside(1, "link", "add", "spare", "type", "veth", "peer", "name", "spare2")
    code = "import os; from tarmac.rollcall import ways; print(ways.fault(os.environ, 'rank 1', 1, 'gloo'))"
    begun = time.monotonic()
    ran = subprocess.run(["ip", "netns", "exec", hosts.names[1], sys.executable, "-c", code], capture_output=True, text=True,
                         env={"PATH": os.environ["PATH"], "PYTHONPATH": str(SRC), "GLOO_SOCKET_IFNAME": "spare"})  # fmt: skip
    assert (
        "the interface spare of rank 1, which GLOO_SOCKET_IFNAME names, is down or has no address"
        in ran.stdout
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
        assert "rank 0 (host-0, pid" in one["said"] and "cannot send data to rank 1 (host-1" in one["said"], (
            one
        )
        assert (
            "no answer" in one["said"]
            and "the other way works" in one["said"]
            and "NET017" in one["codes"]
            and one["s"] < 10
        )
    noted(seen, "A39", "the direction named, within 8 s", answers)


def test_a40_only_the_port_of_the_rendezvous_is_open(hosts, seen):
    hosts.inside(
        1, "rule", "add", "pref", "1", "iif", "wire", "ipproto", "tcp", "sport", str(PORT), "lookup", "local"
    )
    hosts.inside(1, "rule", "add", "pref", "2", "iif", "wire", "ipproto", "tcp", "blackhole")
    hosts.local_after(1)
    answers = met([hosts.start(at, one) for at, one in enumerate(nodes())])
    for one in answers:
        assert (
            not one["go"]
            and "cannot send data to" in one["said"]
            and "open ports" in one["said"]
            and one["s"] < 12
        ), one
    noted(seen, "A40", "the ports to open, within 10 s", answers)


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
