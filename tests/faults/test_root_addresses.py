"""Starts between hosts whose names, clocks and address families do not agree, and one of ten thousand ranks.

They need root, and are run by ``make faults`` alone. Nothing leaves the machine.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gpuready import rollcall
from gpuready.cluster import Rendezvous
from gpuready.rollcall.hello import Hello
from gpuready.rollcall.job_secret import OPEN_NOTE
from tests.faults.test_root_launch import ONE, hosts, met, nodes, noted
from tests.ranks import free_port
from tests.running import SRC

__all__ = ["hosts"]

pytestmark = pytest.mark.faults
SIX = "fd77::1"
ROOT = Path(__file__).parents[2]


def without_six(hosts, at: int) -> None:
    off = ["sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6"]
    subprocess.run(["ip", "netns", "exec", hosts.names[at], *off], check=True, capture_output=True)


def test_a15_an_address_of_a_family_that_one_host_lacks(hosts, seen):
    hosts.inside(0, "addr", "add", f"{SIX}/64", "dev", "wire", "nodad")
    without_six(hosts, 1)
    answers = met([hosts.start(at, one | {"WINDOW": 5}) for at, one in enumerate(nodes(SIX))])
    said = answers[1]["said"]
    assert f"cannot reach rank 0 at {SIX}" in said and "that is IPv6, and this host has only 10.77.0.2" in said
    assert answers[1]["s"] < 6 and not answers[0]["go"]
    noted(seen, "A15", "the family that is missing, and what this host has", answers[1:])


def test_a16_ipv6_comes_first_and_is_disabled(hosts, seen, tmp_path):
    """The name has an address of each family on both hosts, and one of them has IPv6 switched off."""
    hosts.inside(0, "addr", "add", f"{SIX}/64", "dev", "wire", "nodad")
    without_six(hosts, 1)
    table = tmp_path / "hosts"
    table.write_text(f"127.0.0.1 localhost\n{SIX} rank-zero\n{ONE} rank-zero\n")
    cover = ["unshare", "-m", "sh", "-c", f'mount --bind {table} /etc/hosts && exec "$@"', "sh"]
    answers = met([hosts.start(at, one, cover) for at, one in enumerate(nodes("rank-zero"))])
    assert all(a["go"] for a in answers) and all(a["s"] < 6 for a in answers)
    noted(seen, "A16", "IPv4 is used", answers)


@pytest.mark.parametrize("skew", [3600, -3600])
def test_a43_a_clock_that_is_an_hour_off(hosts, built, seen, skew):
    """The clock of the second host is another for all that it runs; who goes and who not is decided without it."""
    each = nodes()
    each[1] |= {"LD_PRELOAD": built(Path(__file__).parent / "clock.c", "libclock.so"), "FAKE_SKEW": skew}
    answers = met([hosts.start(at, one) for at, one in enumerate(each)])
    note = next(one for one in answers[0]["notes"] if "clock" in one)
    off = int(re.search(r"the clock of rank 1 .* is ([+-]\d+) s off", note)[1])
    assert all(a["go"] for a in answers) and abs(off - skew) < 60
    seen("A43", "a note with the skew; all go", note, max(a["s"] for a in answers))


def test_a44_two_hosts_of_one_name(hosts, seen):
    named = ["unshare", "-u", "sh", "-c", 'hostname node && exec "$@"', "sh"]
    each = [one | {"GPUREADY_HOSTNAME": ""} for one in nodes()]
    answers = met([hosts.start(at, one, named) for at, one in enumerate(each)])
    note = next(one for one in answers[0]["notes"] if "machines" in one)
    assert all(OPEN_NOTE in a["notes"] for a in answers)
    assert all(a["go"] for a in answers) and "2 machines call themselves node" in note
    names = {name for _, name, _ in answers[1]["nodes"]}
    assert len(names) == 2 and all(name.startswith("node (") for name in names)
    seen("A44", "told apart, with a note", note, max(a["s"] for a in answers))


CROWD = """
import sys
from tests.simulated_ranks import SimulatedRanks
port, count = int(sys.argv[1]), int(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
told = SimulatedRanks(port, range(1, count), count, "a token").run(240)
print(sum("go" in said for said in told.values()))
"""


@pytest.mark.parametrize(("count", "within"), [(256, 2.0), (10_000, 5.0)])
def test_a51_many_ranks_at_once(seen, count, within):
    """The seconds are from the first rank that calls to the verdict. The crowd is one process, on the same cores."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count + 1000, max(hard, count + 1000)))
    except (ValueError, OSError) as error:
        pytest.skip(f"TOO FEW FILES: {error}")
    rendezvous = Rendezvous(0, count, 0, 8, address="127.0.0.1", port=free_port())
    words = [sys.executable, "-c", CROWD, str(rendezvous.port), str(count)]
    crowd = subprocess.Popen(words, cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{SRC}:{ROOT}"}, text=True,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
    assert crowd.stdout.readline() == "ready\n"
    calls = threading.Timer(0.2, lambda: (crowd.stdin.write("\n"), crowd.stdin.flush()))
    calls.start()
    began = time.monotonic()
    mine = Hello(0, count, 0, "node-0", 1000, "machine-0", clock=time.time())
    try:
        found = rollcall.attend_rollcall(
            rendezvous, mine.replace(versions={"torch": "2.13.0", "python": "3.11"}), window=60, token="a token"
        )
        taken = time.monotonic() - began - 0.2
        called = int(crowd.communicate(timeout=300)[0])
    finally:
        calls.cancel()
        crowd.kill()
        crowd.wait()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    found.listener.close()
    assert called == count - 1
    seen(f"A51/{count}", f"all are called within {within:g} s", f"{count:,} ranks called in {taken:.2f} s", taken)
