"""Starts between hosts whose names, clocks and address families do not agree, and one of ten thousand ranks.

They need root, and are run by ``make faults`` alone. Nothing leaves the machine.
"""

from __future__ import annotations

import re
import resource
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tarmac import rollcall
from tarmac.cluster import Rendezvous
from tarmac.rollcall.hello import Hello
from tests.faults.test_root_launch import ONE, hosts, met, nodes, noted
from tests.ranks import free_port
from tests.simulated import Crowd

__all__ = ["hosts"]

pytestmark = pytest.mark.faults
SIX = "fd77::1"


def without_six(hosts, at: int) -> None:
    off = ["sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6"]
    subprocess.run(["ip", "netns", "exec", hosts.names[at], *off], check=True, capture_output=True)


def test_a15_an_address_of_a_family_that_one_host_lacks(hosts, seen):
    hosts.inside(0, "addr", "add", f"{SIX}/64", "dev", "wire", "nodad")
    without_six(hosts, 1)
    answers = met([hosts.start(at, one | {"WINDOW": 5}) for at, one in enumerate(nodes(SIX))])
    said = answers[1]["said"]
    assert (
        f"cannot reach rank 0 at {SIX}" in said and "that is IPv6, and this host has only 10.77.0.2" in said
    )
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
    (note,) = answers[0]["notes"]
    off = int(re.search(r"the clock of rank 1 .* is ([+-]\d+) s off", note)[1])
    assert all(a["go"] for a in answers) and abs(off - skew) < 60
    seen("A43", "a note with the skew; all go", note, max(a["s"] for a in answers))


def test_a44_two_hosts_of_one_name(hosts, seen):
    named = ["unshare", "-u", "sh", "-c", 'hostname node && exec "$@"', "sh"]
    each = [one | {"TARMAC_HOSTNAME": ""} for one in nodes()]
    answers = met([hosts.start(at, one, named) for at, one in enumerate(each)])
    (note,) = answers[0]["notes"]
    assert all(a["go"] for a in answers) and "2 machines call themselves node" in note
    names = {name for _, name, _ in answers[1]["nodes"]}
    assert len(names) == 2 and all(name.startswith("node (") for name in names)
    seen("A44", "told apart, with a note", note, max(a["s"] for a in answers))


@pytest.mark.parametrize(("count", "within"), [(256, 2.0), (10_000, 5.0)])
def test_a51_many_ranks_at_once(seen, count, within):
    """The seconds are from the first rank that calls to the verdict; the crowd is one process and shares the cores."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (2 * count + 1000, max(before[1], 2 * count + 1000)))
    except (ValueError, OSError) as error:
        pytest.skip(f"TOO FEW FILES: {error}")
    rendezvous = Rendezvous(0, count, 0, 8, address="127.0.0.1", port=free_port())
    crowd = Crowd(rendezvous.port, range(1, count), count)
    running = threading.Thread(target=lambda: time.sleep(0.2) or crowd.run(60))
    running.start()
    began = time.monotonic()
    mine = Hello(0, count, 0, "node-0", 1000, "machine-0", clock=time.time())
    try:
        found = rollcall.attend(
            rendezvous, mine.but(versions={"torch": "2.13.0", "python": "3.11"}), window=60
        )
        taken = time.monotonic() - began - 0.2
        running.join()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    found.listener.close()
    assert len(crowd.told) == count - 1 and all("go" in said for said in crowd.told.values())
    seen(
        f"A51/{count}",
        f"all are called within {within:g} s",
        f"{count:,} ranks called in {taken:.2f} s",
        taken,
    )
