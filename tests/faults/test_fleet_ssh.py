"""`gpuready fleet` over real OpenSSH to eight hosts that are network name spaces: faults of hosts, and of links."""

from __future__ import annotations

import json
import time

import pytest

from tests import target_environment
from tests.faults import fleets
from tests.faults.fleets import SRC, Hosts, gpuready, ip, kept

pytestmark = pytest.mark.faults
COUNT = 8
HOSTS = "10.78.0.[11-18]"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hosts")
    made = Hosts(folder, COUNT)
    yield made
    made.close()


def fleet(hosts: Hosts, *words: str) -> tuple[dict, float]:
    """The answer of gpuready fleet at the desk, and its seconds."""
    began = time.monotonic()
    env = {"PYTHONPATH": str(SRC), "XDG_CACHE_HOME": str(hosts.folder / "cache"), "SLURM_JOB_ID": ""}
    done = hosts.service(gpuready("fleet", *words, "--json"), **env)
    assert "Traceback" not in done.stderr and done.stdout, done.stderr
    return json.loads(done.stdout), time.monotonic() - began


def test_every_host_answers_and_those_without_a_shared_disk_too(hosts, seen):
    found, seconds = fleet(hosts, "check", "transformers", "--hosts", HOSTS, "--python", target_environment.python())
    assert found["states"] == {"answered": HOSTS} and found["transport"] == "ssh"
    hosts.stop(2)
    hosts.serve(2, before=f"mount -t tmpfs none {SRC}")
    time.sleep(1)
    again, later = fleet(hosts, "check", "transformers", "--hosts", HOSTS, "--python", target_environment.python())
    assert again["states"] == {"answered": HOSTS}, again["reasons"]
    hosts.stop(2)
    hosts.serve(2)
    time.sleep(1)
    kept("ssh: check on 8 hosts", seconds=round(seconds, 2), seconds_with_one_that_is_sent_gpuready=round(later, 2))
    seen("ssh", "8 hosts answer, one is sent gpuready", "8 answered", later)


def test_g17_dead_slow_and_refusing_hosts_are_named_apart(hosts, seen):
    """Host 1 has another key, host 2 wants a password, host 3 no sshd, host 4 is cut off, host 5 hangs after login, host 6 has a banner."""
    banner = hosts.folder / "banner"
    banner.write_text("#" * 70 + "\nAuthorised use only\n")
    hang = hosts.folder / "hang"
    hang.write_text("#!/bin/sh\necho welcome\nexec sleep 600\n")
    hang.chmod(0o755)
    for at in (1, 2, 3, 5, 6):
        hosts.stop(at)
    hosts.serve(1, HostKey=f"{hosts.folder}/other")
    hosts.serve(2, AuthorizedKeysFile="none", PasswordAuthentication="yes")
    hosts.serve(5, ForceCommand=str(hang))
    hosts.serve(6, Banner=str(banner))
    ip("-n", hosts.space(4), "link", "set", "wire", "down")
    time.sleep(1)
    found, seconds = fleet(hosts, "drift", "--hosts", HOSTS, "--timeout", "10", "--retries", "1")
    ip("-n", hosts.space(4), "link", "set", "wire", "up")
    for at in (1, 2, 5, 6):
        hosts.stop(at)
    for at in (1, 2, 3, 5, 6):
        hosts.serve(at)
    time.sleep(1)
    assert found["states"] == {
        "answered": "10.78.0.[11,17-18]",
        "refused": "10.78.0.[12-13]",
        "dead": "10.78.0.[14-15]",
        "slow": "10.78.0.16",
    }, found["reasons"]
    whys = {nodes: reason for reason, nodes in found["reasons"].items()}
    assert "host key has changed" in whys["10.78.0.12"] and "without a password" in whys["10.78.0.13"]
    assert "nothing listens" in whys["10.78.0.14"] and "never began" in whys["10.78.0.16"], whys
    kept("ssh: five hosts of eight fail in five ways", seconds=round(seconds, 2), states=found["states"])
    seen("G17", "dead, slow and refusing hosts apart", str(found["states"]), seconds)


@pytest.mark.parametrize("fault", ["nothing", "link", "node", "both"])
def test_g15_the_bad_node_and_the_bad_link_among_eight(hosts, seen, fault):
    """gloo over the wires: hosts 2 and 5 lose their link, host 7 loses all but the desk."""
    cuts = []
    if fault in ("link", "both"):
        cuts.append((2, 5))
    if fault in ("node", "both"):
        cuts += [(7, other) for other in range(7)]
    python = target_environment.python()
    patience = f"{25 + 4 * fleets.measure_torch_start(python, 8):.0f}"  # a start that is only slow is no bad link
    for one, other in cuts:
        hosts.cut(one, other)
    try:
        found, seconds = fleet(hosts, "bisect", "--hosts", HOSTS, "--python", python, "--timeout", patience)
    finally:
        for one, other in cuts:
            hosts.mend(one, other)
    accused = {(one["kind"], *sorted(one["names"])) for one in found["suspects"] if one["confirmed"]}
    wanted = set()
    if fault in ("link", "both"):
        wanted.add(("link", "10.78.0.13", "10.78.0.16"))
    if fault in ("node", "both"):
        wanted.add(("node", "10.78.0.18"))
    assert accused == wanted, json.dumps(found["suspects"])
    assert found["rounds"] <= 8
    kept(f"ssh: bisect on 8 hosts with gloo, broken: {fault}", seconds=round(seconds, 1), rounds=found["rounds"],
         accused=sorted(" ".join(one) for one in accused))  # fmt: skip
    seen("G15", f"broken: {fault}", str(sorted(accused)), seconds)
