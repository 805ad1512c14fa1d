"""The roll-call: real processes that meet on real ports, and everything that can be wrong with them."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache, wraps

import pytest

from tarmac import rollcall
from tarmac.cluster import Rendezvous
from tarmac.rollcall import beacon, endpoint, guest, wire
from tarmac.rollcall.hello import Hello, of, read, variables
from tarmac.rollcall.register import Fault, Register, spans
from tests.ranks import free_port, world
from tests.running import SRC
from tests.simulated import Crowd

ATTEND = """
import json, os, sys, time
from tarmac import cluster, rollcall
from tarmac.rollcall import hello
begun = time.monotonic()
r = cluster.discover(os.environ)
more = json.loads(os.environ.get("MORE", "{}"))
say = lambda said: print(said, file=sys.stderr)
try:
    a = rollcall.attend(r, hello.of(r, os.environ, **more), window=float(os.environ.get("WINDOW", "4")), token=os.environ.get("TARMAC_TOKEN", ""),
                        allow_skew="SKEW" in os.environ, say=say)
    print(json.dumps({"go": True, "nodes": a.nodes, "notes": a.notes, "s": time.monotonic() - begun}))
    time.sleep(float(os.environ.get("STAY", "0")))
except rollcall.Refused as no:
    print(json.dumps({"go": False, "said": str(no), "codes": [f.code for f in no.faults], "ranks": [f.ranks for f in no.faults], "s": time.monotonic() - begun}))
"""


WAITING: list = []


def together(test):
    """Most of these tests wait for clocks: they all wait at the same time, and pytest asks for each in turn."""
    WAITING.append(test)

    @wraps(test)
    def awaited():
        return _begun()[test].result()

    return awaited


@cache
def _begun() -> dict:
    pool = ThreadPoolExecutor(6)
    return {test: pool.submit(test) for test in WAITING}


def start(environ: dict) -> subprocess.Popen:
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(SRC), "TARMAC_HOSTNAME": "here"}
    env |= {k: str(v) for k, v in environ.items() if v is not None}
    return subprocess.Popen(
        [sys.executable, "-c", ATTEND], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ended(running: list[subprocess.Popen]) -> list[dict]:
    answers = []
    for one in running:
        out, err = one.communicate(timeout=60)
        assert "Traceback" not in err, err
        answers.append((json.loads(out) if out else {"go": None}) | {"err": err, "pid": one.pid})
    return answers


def meet(*ranks: dict) -> list[dict]:
    return ended([start(environ) for environ in ranks])


def awaited_only(pid: int, ranks: list[int], seconds: float = 20) -> None:
    """Wait until the roll-call of this process awaits these ranks alone: all others have come."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        conn = beacon.call(f"{beacon.BEACON}{pid}")
        if conn is not None:
            with conn:
                if guest.greet(conn, 5.0)["missing"] == ranks:
                    return
        time.sleep(0.05)
    raise AssertionError(f"the roll-call of {pid} never awaited {ranks} alone")


def refused(answers: list[dict], *words: str, code: str = "") -> str:
    """All were refused, with these words, and with the same answer."""
    assert [a["go"] for a in answers] == [False] * len(answers), answers
    for one in answers:
        for word in words:
            assert word in one["said"], one["said"]
        assert not code or code in one["codes"]
    return answers[0]["said"]


# -- all is well --------------------------------------------------------------------------------------


@together
def test_all_come_and_all_go():
    answers = meet(*world(3))
    assert [a["go"] for a in answers] == [True] * 3
    assert answers[1]["nodes"][0][1:] == ["here", 3]


def test_the_port_stays_open_for_the_store():
    """Nobody can take the port between the roll-call and torch's store."""
    port = free_port()
    rendezvous = [Rendezvous(rank, 2, rank, 2, address="127.0.0.1", port=port) for rank in range(2)]
    found = {}
    other = threading.Thread(
        target=lambda: found.update(one=rollcall.attend(rendezvous[1], of(rendezvous[1], {}), window=5))
    )
    other.start()
    host = rollcall.attend(rendezvous[0], of(rendezvous[0], {}), window=5)
    other.join()
    with host.listener as listener:
        assert listener.getsockname()[1] == port and found["one"].listener is None
        with pytest.raises(OSError, match="in use"):
            endpoint.listen(port)
        with socket.create_connection(("127.0.0.1", port), 1):
            pass


@pytest.mark.parametrize("address", ["::1", "[::1]", "localhost", " 127.0.0.1 ", "127.0.0.2"])
def test_a13_a14_other_ways_to_write_this_host(address):
    if ":" in address and not socket.has_ipv6:
        pytest.skip("NO IPV6 on this host")
    assert all(a["go"] for a in meet(*[w | {"MASTER_ADDR": address} for w in world(2)]))


@together
def test_a20_a_late_rank_is_waited_for_and_named():
    ranks = world(2, WINDOW="20")
    first = start(ranks[0])
    assert "waiting for rank 1 of 2" in first.stderr.readline()  # which comes after some seconds alone
    assert all(a["go"] for a in ended([first, start(ranks[1])]))


@together
def test_the_first_to_come_wait_for_rank_0():
    ranks = world(3, WINDOW="20")
    early = [start(one) for one in ranks[1:]]
    time.sleep(1.0)
    assert all(a["go"] for a in ended([start(ranks[0]), *early]))


# -- who is there -------------------------------------------------------------------------------------


@together
def test_a18_a_missing_rank_is_named_on_every_rank():
    answers = meet(*world(3, WINDOW="2")[:2])
    refused(
        answers,
        "2 of 3 ranks came within 2 s; missing: rank 2 (expected on node 0, local rank 2)",
        code="NET016",
    )
    assert all(a["s"] < 2 + 5 for a in answers)


@together
def test_a18_rank_0_is_missing():
    answers = meet(*world(3, WINDOW="2")[1:])
    refused(answers, "cannot reach rank 0 at 127.0.0.1", "refused", "start rank 0", code="NET016")
    assert all(a["s"] < 2 + 5 for a in answers)


@together
def test_a18_the_task_of_slurm_is_named():
    slurm = {
        "SLURM_JOB_ID": 1,
        "SLURM_STEP_ID": 0,
        "SLURM_NTASKS": 3,
        "SLURM_NNODES": 1,
        "SLURM_NODELIST": "here",
        "SLURM_TASKS_PER_NODE": 3,
    }
    ranks = [
        slurm
        | {
            "SLURM_PROCID": r,
            "SLURM_LOCALID": r,
            "SLURM_NODEID": 0,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": p,
            "WINDOW": 2,
        }
        for p in [free_port()]
        for r in range(2)
    ]
    refused(meet(*ranks), "missing: rank 2 (expected on here, local rank 2, srun task 2)")


@together
def test_a28_world_sizes_differ():
    ranks = world(2)
    ranks[1] |= {"WORLD_SIZE": 3, "LOCAL_WORLD_SIZE": 3}
    answers = meet(*ranks)
    refused(answers, "believes that there are 3 ranks", "rank 0 (here, pid", "same WORLD_SIZE", code="NET006")
    assert all(a["s"] < 3.5 for a in answers)


@together
def test_a30_two_processes_are_one_rank():
    ranks = world(3, WINDOW="20")
    answers = meet(ranks[0], ranks[1], ranks[1])
    said = refused(answers, "two processes claim to be rank 1", code="NET006")
    assert {f"here:{answers[1]['pid']}", f"here:{answers[2]['pid']}"} == set(re.findall(r"here:\d+", said))
    assert all(a["s"] < 5 for a in answers)


@together
def test_a31_two_processes_are_rank_0():
    ranks = world(3, WINDOW="20")
    answers = meet(ranks[0], ranks[0], ranks[1])
    said = refused(answers, "two processes claim to be rank 0", code="NET006")
    assert {f"here:{a['pid']}" for a in answers[:2]} == set(re.findall(r"here:\d+", said))


@together
def test_a30_a_twin_that_comes_when_the_job_has_begun_is_sent_away():
    ranks = world(2, STAY="6")
    running = [start(one) for one in ranks]
    time.sleep(1.5)
    late = meet(ranks[1] | {"WINDOW": 3})[0]
    assert not late["go"]
    begun = ended(running)
    assert all(a["go"] for a in begun)
    assert f"rank 1 of this job is pid {begun[1]['pid']}" in late["said"]


@together
def test_a_rank_that_dies_while_it_waits_is_named_at_once():
    ranks = world(3, WINDOW="30")
    running = [start(one) for one in ranks[:2]]
    awaited_only(running[0].pid, [2])
    running[1].kill()
    answers = ended(running)
    assert (
        "went away during the roll-call" in answers[0]["said"]
        and f"rank 1 (here, pid {answers[1]['pid']})" in answers[0]["said"]
    )
    assert answers[0]["s"] < 8


@together
def test_rank_0_that_dies_is_named_by_the_others():
    ranks = world(3, WINDOW="30")
    running = [start(one) for one in ranks[:2]]
    awaited_only(running[0].pid, [2])
    running[0].kill()
    answers = ended(running)
    assert f"rank 0 (here, pid {answers[0]['pid']}) went away" in answers[1]["said"] and answers[1]["s"] < 8


@together
def test_a_rank_in_trouble_stops_all_at_once():
    ranks = world(3, WINDOW="30")
    ranks[2] |= {
        "MORE": json.dumps(
            {
                "trouble": "local rank 2 needs device 2, and 1 is visible",
                "fix": "fewer",
                "trouble_code": "NET012",
            }
        )
    }
    answers = meet(*ranks)
    refused(
        answers, "rank 2 (here, pid", "cannot start: local rank 2 needs device 2", "fix: fewer", code="NET012"
    )
    assert all(a["s"] < 5 for a in answers)


# -- what they are ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            {"versions": {"torch": "2.12.1"}},
            ("the version of torch differs", "2.13.0 on rank 0, 2.12.1 on rank 1"),
        ),
        (
            {"versions": {"torch": "2.13.0", "nccl": "2.27.3"}},
            ("the version of nccl differs", "(not set) on rank 0"),
        ),
        ({"device": "cuda"}, ("the type of device differs", "cpu on rank 0, cuda on rank 1")),
        ({"code": {"script": "abc"}}, ("the script differs",)),
    ],
)
def test_a48_a50_ranks_that_are_not_alike(more, words):
    ranks = world(2, MORE=json.dumps({"versions": {"torch": "2.13.0"}}), WINDOW="20")
    ranks[1] |= {"MORE": json.dumps({"versions": {"torch": "2.13.0"}} | more)}
    answers = meet(*ranks)
    refused(answers, *words)
    assert all(a["s"] < 5 for a in answers)


@together
def test_a48_skew_that_is_allowed_is_a_note():
    ranks = world(2, SKEW="1", MORE=json.dumps({"versions": {"torch": "2.13.0"}}))
    ranks[1] |= {"MORE": json.dumps({"versions": {"torch": "2.12.1"}})}
    answers = meet(*ranks)
    assert all(a["go"] for a in answers) and "2.12.1 on rank 1" in answers[1]["notes"][0]


@together
def test_a49_variables_that_differ():
    ranks = world(3, NCCL_ALGO="Ring")
    ranks[2] |= {"NCCL_ALGO": "Tree"}
    refused(meet(*ranks), "the variable NCCL_ALGO differs between ranks: Ring on ranks 0-1, Tree on rank 2")


def test_a49_variables_that_may_differ():
    names = variables(
        {
            "NCCL_SOCKET_IFNAME": "eth0",
            "NCCL_DEBUG": "INFO",
            "NCCL_PROTO": "LL",
            "HOME": "x",
            "GLOO_SOCKET_IFNAME": "lo",
        }
    )
    assert names == {"NCCL_PROTO": "LL"}


@together
def test_two_ranks_on_one_device():
    ranks = world(2)
    for one in ranks:
        one["MORE"] = json.dumps({"device": "cuda", "gpu": "GPU-1234"})
    refused(
        meet(*ranks),
        "rank 0 (here, pid",
        "and rank 1 (here, pid",
        "are on one device",
        "GPU-1234",
        code="NET012",
    )


@together
def test_a43_a_clock_that_is_wrong_is_only_noted():
    ranks = world(2)
    ranks[1] |= {"MORE": json.dumps({"clock": time.time() + 3600})}
    answers = meet(*ranks)
    assert all(a["go"] for a in answers) and re.search(
        r"the clock of rank 1 .* is \+3[56]\d\d s off", answers[0]["notes"][0]
    )


def test_a44_hosts_of_one_name():
    register = Register(Rendezvous(0, 2, address="a", port=1))
    for rank in range(2):
        register.enter(Hello(rank, 2, 0, "node", 10 + rank, f"machine-{rank}", data=(f"10.0.0.{rank}", 1)))
    assert not register.broken and [name for _, name, _ in register.nodes()] == [
        "node (10.0.0.0)",
        "node (10.0.0.1)",
    ]
    assert "2 machines call themselves node" in register.notes()[0]


@together
def test_a45_an_odd_host_name_moves_no_cursor():
    for name in ("<script>alert(1)</script>", "a\x1b[2Jb" + "x" * 300, "näme\u202e\na"):
        ranks = world(3, WINDOW="1", TARMAC_HOSTNAME=name)
        ranks[1] |= {"WORLD_SIZE": 4, "LOCAL_WORLD_SIZE": 4}
        for one in meet(*ranks[:2]):
            assert not one["go"] and one["said"].isprintable() and len(one["said"]) < 1000


# -- where they look ----------------------------------------------------------------------------------


@together
def test_a02_a_name_that_does_not_resolve():
    answers = meet(*[w | {"MASTER_ADDR": "no-such-host.invalid", "WINDOW": 30} for w in world(2)])
    refused(answers, "no-such-host.invalid", code="NET016")
    assert "/etc/hosts" in answers[1]["said"] and all(a["s"] < 5 + 3 for a in answers)


@together
def test_a05_another_port_than_rank_0():
    ranks = world(2, WINDOW="30")
    wrong = free_port()
    ranks[1] |= {"MASTER_PORT": wrong}
    answers = meet(*ranks)
    refused(
        answers,
        f"looks for rank 0 at 127.0.0.1:{wrong} (refused)",
        f"listens on port {ranks[0]['MASTER_PORT']}",
        code="NET016",
    )
    assert all(a["s"] < 6 for a in answers)


@together
def test_a05_jobs_that_start_side_by_side_leave_each_other_alone():
    """A rank that waits for its own late rank 0 must not take that of another job for it."""
    one, other = world(2, WINDOW="20", TARMAC_RUN_ID="one"), world(2, WINDOW="20", TARMAC_RUN_ID="other")
    running = [start(one[0]), start(other[1])]
    time.sleep(3)
    answers = ended([*running, start(one[1]), start(other[0])])
    assert all(a["go"] for a in answers), answers


class Service:
    """Something else on a port: it takes connections and answers with ``words``, if any."""

    def __init__(self, words: bytes | None) -> None:
        self.listener = endpoint.listen(0)
        self.port = self.listener.getsockname()[1]
        self.words, self.kept = words, []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                conn, _ = self.listener.accept()
            except OSError:
                return
            self.kept.append(conn)
            if self.words is not None:
                conn.sendall(self.words)
                conn.close()


@together
def test_a06_the_port_is_taken():
    service = Service(None)
    answer = meet(world(2, service.port)[0])[0]
    said = refused(
        [answer], f"cannot listen on port {service.port}", f"pid {os.getpid()} of", "listening", code="NET018"
    )
    assert int(re.search(r"MASTER_PORT=(\d+)", said)[1]) != service.port and answer["s"] < 5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (None, "takes the connection and says nothing"),
        (b"HTTP/1.0 400 Bad request\r\nServer: x\r\n", "it says HTTP/1.0 400 Bad request\\r;"),
        (b"\x1b[2J\x00\xff garbage without an end", "it says \\x1b[2J\\x00ÿ garbage"),
        (b"", "it closes the connection"),
        (b"SSH-2.0-OpenSSH_9.2p1\r\n", "SSH-2.0-OpenSSH"),
    ],
    ids=["silent", "http", "garbage", "closes", "ssh"],
)
def test_a07_a08_something_else_answers(words, said):
    service = Service(words)
    answer = meet(world(2, service.port)[1] | {"WINDOW": 30})[0]
    assert not answer["go"] and "something else than rank 0 answers" in answer["said"] and answer["s"] < 7
    assert said in answer["said"] and f"pid {os.getpid()}" in answer["said"]


@together
def test_a09_the_roll_call_of_another_job():
    port = free_port()
    ours, theirs = (
        world(2, port, TARMAC_RUN_ID="ours", WINDOW="3"),
        world(2, port, TARMAC_RUN_ID="theirs", WINDOW="3"),
    )
    answers = meet(ours[0], theirs[1])
    assert "belongs to run ours of 2 ranks" in answers[1]["said"] and "is of run theirs" in answers[1]["said"]
    assert "missing: rank 1" in answers[0]["said"] and "turned away: rank 1 (here" in answers[0]["said"]


@together
def test_a53_a_wrong_token():
    ranks = world(2, TARMAC_TOKEN="right", WINDOW="3")
    assert all(a["go"] for a in meet(*ranks))
    answers = meet(ranks[0], ranks[1] | {"TARMAC_TOKEN": "wrong"})
    assert (
        "does not take the token" in answers[1]["said"] and answers[0]["said"].count("has another token") == 1
    )
    assert "right" not in "".join(a["said"] for a in answers) and "wrong" not in answers[0]["said"]


@together
def test_a04_a_loopback_address_for_several_nodes():
    shared = {
        "WORLD_SIZE": 2,
        "LOCAL_WORLD_SIZE": 1,
        "LOCAL_RANK": 0,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": free_port(),
        "WINDOW": 30,
    }
    first = meet(shared | {"RANK": 0})[0]
    said = refused([first], "rank 0 (here, pid", "advertises a loopback address to 2 nodes", code="NET008")
    assert "MASTER_ADDR" in said and first["s"] < 6
    other = meet(shared | {"RANK": 1})[0]
    refused([other], "looks for rank 0 on its own host", code="NET008")
    assert other["s"] < 5


@together
def test_a04_several_nodes_on_one_host_are_fine():
    shared = {
        "WORLD_SIZE": 2,
        "LOCAL_WORLD_SIZE": 1,
        "LOCAL_RANK": 0,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": free_port(),
    }
    assert all(a["go"] for a in meet(*[shared | {"RANK": rank} for rank in range(2)]))


# -- strangers ----------------------------------------------------------------------------------------


def pester(port: int, until: threading.Event) -> int:
    """Connections that send rubbish, too much, nothing, or letter by letter."""
    draw, sent, kept = random.Random(5), 0, []
    while not until.is_set():
        try:
            conn = socket.create_connection(("127.0.0.1", port), 0.5)
            kept.append(conn)
            conn.settimeout(0.5)
            kind = draw.randrange(5)
            if kind == 0:
                conn.sendall(draw.randbytes(3000) + b"\n")
            elif kind == 1:
                conn.sendall(wire.WORD + b"x\n" + b"y" * (1 << 20))
            elif kind == 2:
                conn.sendall(wire.WORD + b"x\n" + b' {"rank": "zero"}\n')
            elif kind == 3:
                conn.sendall(wire.WORD[:5])
            sent += 1
        except OSError:
            time.sleep(0.01)
        if len(kept) > 100:
            kept.pop(0).close()
    for conn in kept:
        conn.close()
    return sent


def test_a52_rubbish_disturbs_nobody():
    ranks = world(3, WINDOW="20")
    first, stop = start(ranks[0]), threading.Event()
    time.sleep(0.5)
    pestering = threading.Thread(target=pester, args=(ranks[0]["MASTER_PORT"], stop))
    pestering.start()
    time.sleep(2)
    with open(f"/proc/{first.pid}/statm") as file:
        resident = int(file.read().split()[1]) * resource.getpagesize()
    answers = ended([first, *[start(one) for one in ranks[1:]]])
    stop.set()
    pestering.join()
    assert all(a["go"] for a in answers), answers
    assert all(re.search(r"\d+ connections that were no rank's", " ".join(a["notes"])) for a in answers)
    assert resident < 100 << 20


@together
def test_a52_a_line_without_end_is_cut_off():
    rendezvous = Rendezvous(0, 2, 0, 2, address="127.0.0.1", port=free_port())
    done = {}

    def hold():
        try:
            rollcall.attend(rendezvous, of(rendezvous, {}), window=2)
        except rollcall.Refused as no:
            done["said"] = str(no)

    holding = threading.Thread(target=hold)
    holding.start()
    time.sleep(0.3)
    with (
        socket.create_connection(("127.0.0.1", rendezvous.port), 1) as conn,
        pytest.raises(OSError, match=r"reset|Broken"),
    ):
        for _ in range(200):
            conn.sendall(b"z" * (1 << 16))
    holding.join()
    assert "missing: rank 1" in done["said"]
    assert "turned away: 1 connection that was no rank's" in done["said"]


@pytest.mark.parametrize("count", [256, 1000])
def test_a51_many_ranks_at_once(count):
    rendezvous = Rendezvous(0, count, 0, 8, address="127.0.0.1", port=free_port())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * count + 300:
        pytest.skip(f"TOO FEW FILES: {hard} may be open")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    crowd = Crowd(rendezvous.port, range(1, count), count)
    running = threading.Thread(target=lambda: time.sleep(0.2) or crowd.run(30))
    running.start()
    try:
        mine = Hello(
            0,
            count,
            0,
            "node-0",
            1000,
            "machine-0",
            clock=time.time(),
            versions={"torch": "2.13.0", "python": "3.11"},
        )
        found = rollcall.attend(rendezvous, mine, window=30)
        running.join()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    found.listener.close()
    assert len(found.hosts) == -(-count // 8) and len(crowd.told) == count - 1
    assert all("go" in said for said in crowd.told.values())


def test_a47_too_few_files_for_the_world():
    from tarmac.rollcall.host import room

    code = "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)); from tarmac.rollcall.host import room; print(room(1000))"
    ran = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(SRC)}, capture_output=True, text=True
    )
    assert (
        "may open 64 files (at most 64), and 1000 ranks need 1128 [SYS006]" in ran.stdout
        and "ulimit -n 1128" in ran.stdout
    )
    assert room(2) is None


@pytest.mark.parametrize(
    "data",
    [
        [], {}, {"rank": 0}, {"rank": "0", "world_size": 2}, {"rank": True, "world_size": 2}, {"rank": 1, "world_size": 2, "versions": [1]},
        {"rank": 1, "world_size": 2, "host": 7}, {"rank": 1, "world_size": 2, "data": ["x"]}, {"rank": 1, "world_size": 2, "clock": "now"},
        {"rank": 10**12, "world_size": 2}, {"rank": 1, "world_size": 2, "variables": {"a": {}}},
    ],
)  # fmt: skip
def test_a_hello_that_is_none(data):
    with pytest.raises((ValueError, TypeError)):
        read(data)


# -- parts --------------------------------------------------------------------------------------------


def test_ranks_in_short():
    assert spans([3, 1, 2, 7, 0]) == "0-3, 7" and spans([]) == ""
    assert spans(range(0, 100, 2)).endswith("…")


def test_a_fault_reads_as_a_sentence():
    assert (
        str(Fault("NET018", "the port is taken", "take another"))
        == "the port is taken [NET018]; fix: take another"
    )


def test_a_thousand_faults_are_a_short_text():
    register = Register(Rendezvous(0, 2, address="a", port=1))
    for rank in range(1000):
        register.enter(Hello(rank, 3, 0, "node", rank))
    assert len(register.faults()) == 9 and "992 faults more, of ranks 8-999" in str(register.faults()[-1])


def test_a41_small_pieces_pass_and_large_ones_do_not():
    from tarmac.rollcall import dial

    def stall():
        conn, _ = made.accept()
        conn.sendall(conn.recv(dial.SMALL))
        kept.append(conn)

    kept: list = []
    made = endpoint.listen(0)
    with made:
        stalling = threading.Thread(target=stall)
        stalling.start()
        heard = {0: dial.all_of([(1, "127.0.0.1", made.getsockname()[1])]), 1: [[0, "", 0.1]]}
        stalling.join()
        kept[0].close()
    plan = {0: [(1, "10.0.0.2", 5)], 1: [(0, "10.0.0.1", 5)]}
    (found,) = dial.faults(plan, heard, {0: "rank 0 (a)", 1: "rank 1 (b)"})
    assert (
        "64 B pass, 64 KiB stall" in found.says and "the other way works" in found.says and "MTU" in found.fix
    )


def test_a42_a_slow_link_is_told_by_its_peers():
    from tarmac.rollcall import dial

    names = {rank: f"rank {rank} (host-{rank})" for rank in range(4)}
    fast, slow = 0.001, 0.5
    heard = {0: [[1, "", fast], [3, "", fast]], 1: [[0, "", fast], [2, "", slow]], 2: [[1, "", slow], [3, "", fast]], 3: [[0, "", fast], [2, "", 9.9]]}  # fmt: skip
    (said,) = dial.slow(heard, names)
    assert (
        said
        == "the link between rank 1 (host-1) and rank 2 (host-2) is slow: 0.262 MB/s, and the others 131 MB/s [NET019]"
    )
    heard[2][0][2] = heard[1][1][2] = 0.004
    assert not dial.slow(heard, names), "four times its peers is no reason to speak"
    assert "0.262 MB/s [NET019]" in dial.slow({0: [[1, "", slow]], 1: [[0, "", slow]]}, names)[0]
    assert not dial.slow({0: [[1, "no route", 0.0]], 1: ["x", [0], [2, 3, "4"]]}, names)


def test_who_holds_a_port():
    with endpoint.listen(0) as made:
        found = endpoint.holder(made.getsockname()[1])
    assert found.pid == os.getpid() and found.command and found.state == "listening"
    assert endpoint.holder(1) is None


def test_interfaces_and_addresses():
    assert endpoint.interfaces()["lo"][0] in (True, False)
    assert endpoint.is_local("127.0.0.1") and not endpoint.is_local("198.51.100.7")
    assert not any(map(endpoint.is_loopback, endpoint.addresses()))


def test_reaching_never_hangs():
    assert endpoint.reach("127.0.0.1", free_port(), 1).why == "refused"
    assert endpoint.reach("no-such-host.invalid", 80, 1).why == "name"


def test_a15_rank_0_listens_in_both_families():
    with endpoint.listen(0) as made:
        for address in ("127.0.0.1", "::1") if endpoint.is_local("::1") else ("127.0.0.1",):
            assert endpoint.reach(address, made.getsockname()[1], 1).ok


def test_a16_a_family_that_does_not_work_is_passed_over(monkeypatch):
    """The resolver gives IPv6 first, and nothing is there."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        port = made.getsockname()[1]
        both = [(int(socket.AF_INET6), ("::1", port, 0, 0)), (int(socket.AF_INET), ("127.0.0.1", port))]
        monkeypatch.setattr(endpoint, "resolve", lambda *_: both)
        conn, told = endpoint.connect("rank-zero", port, 3)
        assert told.ok and conn.getpeername()[0] == "127.0.0.1"
        conn.close()


def test_a_seal_is_of_its_token_and_number():
    line = wire.packed({"a": 1}, "token", "salt").rstrip(b"\n")
    assert wire.opened(line, "token", "salt") == {"a": 1}
    for token, salt in (("other", "salt"), ("token", "other"), ("", "salt")):
        with pytest.raises(PermissionError):
            wire.opened(line, token, salt)
