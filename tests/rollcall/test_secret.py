"""No stranger joins: every job has a secret, tells nothing without it, and marks what a peer says."""

from __future__ import annotations

import os
import socket
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from gpuready import rollcall
from gpuready.cluster import Rendezvous
from gpuready.rollcall import beacon, client, endpoint, job_secret, wire
from gpuready.rollcall.hello import Hello, make_hello
from gpuready.rollcall.rank_register import RankRegister
from tests.rollcall.strangers import EVIL, TWO_HOSTS, Job, gone, greet, intrude

# -- on one host, without a word from the user --------------------------------------------------------


@pytest.mark.parametrize(
    "more",
    [{}, {"trouble": "x", "fix": EVIL, "trouble_code": "NET016"}, {"world_size": 3}, {"rank": 0}, {"left": 0.0}],
    ids=["rank", "trouble", "world", "rank-0", "window"],
)
def test_a_stranger_takes_no_rank_and_stops_no_job(more):
    job = Job()
    job.start(0)
    for token in ("", "guessed"):
        assert b'"elsewhere":"secret"' in intrude(job.port, token, **more)
    job.start(1)
    answers = job.end()
    assert gone(answers), answers
    assert EVIL not in str(answers) and job_secret.OPEN_NOTE not in answers[0].notes


def test_a_stranger_learns_nothing():
    job = Job(window=2)
    job.start(0)
    conn, greeting = greet(job.port)
    conn.close()
    assert greeting.keys() == {"salt", "name", "open"} and greeting["open"] is False
    assert "lacks the job's secret" not in str(job.end()) and "missing: rank 1" in job.answers[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_the_beacon_tells_another_user_nothing():
    job = Job(window=3)
    job.start(0)
    conn, greeting = greet(job.port)
    conn.close()
    name = beacon.find_beacon(greeting["name"])
    pid = os.fork()
    if not pid:
        os.setuid(65534)
        other = socket.socket(socket.AF_UNIX)
        other.settimeout(60)
        try:
            other.connect("\0" + name)
            other.sendall(wire.GREETING + b"x\n")
            os._exit(1 if other.recv(9999) else 0)
        except ConnectionError:
            os._exit(0)
        finally:
            os._exit(2)
    assert os.waitpid(pid, 0)[1] == 0
    with beacon.connect_beacon(name) as own:
        assert client.exchange_greeting(own, 60.0)["token"]
    job.end()


def test_a_false_rank_0_is_not_joined():
    """Who took the port before rank 0 answers as it would, and has no proof."""
    for name in ("", "0" * job_secret.ID_LENGTH):
        job, port = Job(window=2), None
        with endpoint.listen_on_port(0) as listener:
            port = listener.getsockname()[1]
            job.ranks[1] = job.ranks[1].replace(port=port)
            job.start(1)
            conn, _ = listener.accept()
            with conn:
                conn.recv(999)
                greeting = {"salt": "s", "name": name, "open": True}
                conn.sendall(wire.GREETING + wire.encode_message(greeting, "", ""))
                conn.settimeout(60)
                assert conn.recv(999) == b""  # not even its hello
        assert "GPUREADY_TOKEN" in job.end()[1] and "NET018" in job.answers[1]


def test_a_job_on_one_host_listens_there_alone():
    secret = job_secret.hold_secret(Job().ranks[0], "")
    assert rollcall._choose_bind_address(Job().ranks[0], secret, ("127.0.0.1",)) == "127.0.0.1"
    several = Job(**TWO_HOSTS).ranks[0]
    assert rollcall._choose_bind_address(several, job_secret.JobSecret("t"), ("127.0.0.1",)) == ""
    open_secret = job_secret.JobSecret("t", "n", is_open=True)
    assert rollcall._choose_bind_address(several, open_secret, ("127.0.1.1",)) == ""
    (own, *_), far = endpoint.list_own_addresses() or ("127.0.0.1",), "192.0.2.1"
    for addresses, chosen in (((own,), own if own != "127.0.0.1" else ""), ((own, "::1"), ""), ((far,), "")):
        assert rollcall._choose_bind_address(several, open_secret, addresses) == chosen
    with endpoint.listen_on_port(0, host="127.0.0.1") as listener:
        assert listener.getsockname()[0] == endpoint.listening_address(listener) == "127.0.0.1"


# -- on several hosts ---------------------------------------------------------------------------------


def test_a_token_keeps_strangers_out(other_hosts):
    job = Job("a token", **TWO_HOSTS)
    job.start(0)
    assert b'"elsewhere":"token"' in intrude(job.port, trouble="x", fix=EVIL)
    job.start(1)
    answers = job.end()
    assert gone(answers) and job_secret.OPEN_NOTE not in answers[0].notes


def test_a_shared_disk_carries_the_secret(other_hosts, monkeypatch):
    monkeypatch.setattr(job_secret, "is_network_disk", lambda folder: True)
    job = Job(**TWO_HOSTS)
    job.start(0)
    assert b'"elsewhere":"secret"' in intrude(job.port, trouble="x", fix=EVIL)
    (file,) = other_hosts.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    job.start(1)
    assert gone(job.end()) and list(other_hosts.iterdir()) == []


def test_a_rank_without_the_shared_disk_is_told(other_hosts, monkeypatch):
    monkeypatch.setattr(job_secret, "is_network_disk", lambda folder: True)
    monkeypatch.setattr(job_secret, "read_secret_file", lambda name: "")
    job = Job(window=3, **TWO_HOSTS)
    job.start(0)
    job.start(1)
    assert "asks for the job's secret" in job.end()[1]
    assert "the same GPUREADY_TOKEN" in job.answers[1] and list(other_hosts.iterdir()) == []


def test_a_secret_file_of_another_or_open_to_others_is_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = "a" * job_secret.ID_LENGTH
    file = tmp_path / f".gpuready-rollcall-{name}"
    file.write_text("planted")
    file.chmod(0o644)
    assert job_secret.read_secret_file(name) == ""
    file.chmod(0o600)
    assert job_secret.read_secret_file(name) == "planted"
    monkeypatch.setattr(os, "getuid", lambda: 4242)
    assert job_secret.read_secret_file(name) == ""
    assert not any(map(job_secret.is_secret_name, ("../../etc/shadow", "", None, "A" * 24, "a" * 23)))


def test_without_any_secret_it_says_that_it_is_open(other_hosts):
    job = Job(**TWO_HOSTS)
    job.start(0)
    job.start(1)
    answers = job.end()
    assert gone(answers) and all(job_secret.OPEN_NOTE in answers[rank].notes for rank in range(2))


def test_an_open_roll_call_marks_what_a_peer_says(other_hosts):
    job = Job(**TWO_HOSTS)
    job.start(0)
    assert b'"refused"' in intrude(job.port, trouble=f"x; fix: {EVIL}", fix=EVIL, trouble_code="; fix")
    said = job.end()[0]
    assert said.startswith("rank 1 (evil, pid 1) cannot start: it says '") and f"advises '{EVIL}'" in said
    assert said.endswith("; fix: look at the output of rank 1")


def test_an_open_rank_0_gives_no_fix_of_ours(other_hosts):
    job = Job(window=2, **TWO_HOSTS)
    with endpoint.listen_on_port(0) as listener:
        job.ranks[1] = job.ranks[1].replace(port=listener.getsockname()[1])
        job.start(1)
        conn, _ = listener.accept()
        with conn:
            conn.recv(999)
            greeting = {"salt": "s", "name": "0" * job_secret.ID_LENGTH, "open": True}
            conn.sendall(wire.GREETING + wire.encode_message(greeting, "", ""))
            conn.recv(9999)
            fault = {"code": "NET016", "says": "all is lost\x1b[2J", "fix": EVIL, "ranks": [0]}
            conn.sendall(wire.encode_message({"refused": [fault]}, "", ""))
    said = job.end()[1]
    assert "says 'all is lost" in said and said.isprintable()
    assert EVIL not in said.rpartition("; fix: ")[2] and "look at the output of rank 0" in said


# -- what is derived, and what is quoted --------------------------------------------------------------


def test_the_token_of_a_launcher():
    key = {"OMPI_MCA_orte_precondition_transports": "b7c9-11f0"}
    assert job_secret.find_job_token(key) == "b7c9-11f0"
    assert job_secret.find_job_token(key | {"GPUREADY_TOKEN": "mine"}) == "mine"
    assert job_secret.find_job_token(key | {"SLURM_JOB_ID": "7"}) == "" == job_secret.find_job_token({})


def test_which_disks_other_hosts_have(tmp_path):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "1 0 8:1 / / rw - ext4 /dev/sda rw\n2 1 0:4 / /home rw shared:1 - nfs4 server:/home rw\n"
        "3 2 0:5 / /home/x/local rw - tmpfs none rw\n4 1 0:6 / /a\\040b rw - lustre mgs:/a rw\n"
    )
    found = {
        f: job_secret.is_network_disk(f, str(mounts)) for f in ("/", "/home/x", "/home/x/local/y", "/homes", "/a b")
    }
    assert found == {"/": False, "/home/x": True, "/home/x/local/y": False, "/homes": False, "/a b": True}


def test_a_disk_that_does_not_answer_gives_no_secret(monkeypatch):
    monkeypatch.setattr(job_secret, "DISK_SECONDS", 0.1)
    monkeypatch.setattr(job_secret, "_write_secret_files", lambda *_: iter(lambda: time.sleep(1), 0))
    secret = job_secret.hold_secret(Job(**TWO_HOSTS).ranks[0], "")
    assert secret.is_open and secret.files == ()


def test_every_word_of_a_peer_is_quoted():
    words = f"1; fix: {EVIL}"
    register = RankRegister(Rendezvous(0, 2, address="a", port=1))
    register.add_own_hello(Hello(0, 2, 0, "a", 1, "m0"))
    peer = {"host": words, "device": words, "backend": words, "gpu": words, "versions": {words: words, "torch": words}}
    register.add_hello(Hello(1, 2, 0, pid=2, machine="m1", variables={words: words}, code={words: words}, **peer))
    register.add_hello(Hello(5, 9, **peer))
    text = "\n".join([*map(str, register.list_faults()), *register.list_notes()])
    assert EVIL in text and text.count(words) == text.count(f"'{words}'")


class Store:
    """The store of torchrun's agent, to which anyone may write."""

    def __init__(self, seconds: float = 60.0) -> None:
        self.values: dict[str, bytes] = {}
        self.changed, self.seconds = threading.Condition(), seconds

    def set(self, key: str, value: str) -> None:
        with self.changed:
            self.values[key] = value.encode()
            self.changed.notify_all()

    def get(self, key: str) -> bytes:
        with self.changed:
            if not self.changed.wait_for(lambda: key in self.values, self.seconds):
                raise RuntimeError("wait timeout")
            return self.values[key]


@pytest.mark.parametrize("token", ["token", ""])
def test_under_torchrun_rank_0_tells_its_port_in_the_agents_store(token):
    """On one host the kernel names the user of the other side, so that no token is needed."""
    ranks = [Rendezvous(rank, 2, rank, 2, port=1, run_id="r", agent_store=True, nodes=1) for rank in range(2)]
    store = Store()
    with ThreadPoolExecutor() as pool:
        attending = [
            pool.submit(rollcall.attend_over_store, store, one, make_hello(one, {}), window=60.0, token=token)
            for one in ranks
        ]
        answers = {rank: job.result() for rank, job in enumerate(attending)}
    assert gone(answers) and job_secret.OPEN_NOTE not in answers[0].notes
    assert answers[0].listener is None and int(store.get("gpuready/r/0/port")) > 1


def test_who_hears_no_port_in_the_agents_store_says_so():
    ranks = [Rendezvous(rank, 2, rank, 2, port=1, run_id="r", agent_store=True, nodes=1) for rank in range(2)]
    with pytest.raises(rollcall.RollcallRefused, match="did not hear in torchrun's store where rank 0 listens"):
        rollcall.attend_over_store(Store(0.1), ranks[1], make_hello(ranks[1], {}), window=60.0)


# -- what was said before, or to another ---------------------------------------------------------------


def record_job(token: str) -> list[bytes]:
    """Let somebody between the ranks record what rank 0 says in a job that goes well."""
    job, said = Job(token=token), []
    with endpoint.listen_on_port(0) as listener:
        real, job.ranks[1] = job.port, job.ranks[1].replace(port=listener.getsockname()[1])
        job.start(0)
        greet(job.port)[0].close()  # it listens
        job.start(1)
        rank, _ = listener.accept()
        with rank, socket.create_connection(("127.0.0.1", real)) as server, ThreadPoolExecutor(1) as pool:
            pool.submit(_pass_on, rank, server, [])
            _pass_on(server, rank, said)
            rank.shutdown(socket.SHUT_RDWR)
    assert gone(job.end()), job.answers
    return b"".join(said).splitlines(keepends=True)


def _pass_on(source: socket.socket, sink: socket.socket, kept: list[bytes]) -> None:
    try:
        while data := source.recv(1 << 16):
            kept.append(data)
            sink.sendall(data)
    except OSError:
        return


@pytest.mark.parametrize("trick", ["replay", "reflect"])
def test_a_rank_believes_only_replies_to_its_own_hello(trick):
    """Who recorded an earlier job of the same token cannot play rank 0, nor can who sends a rank its own words."""
    said = record_job("tok") if trick == "replay" else [wire.GREETING + wire.encode_message({"salt": "s"}, "", "")]
    job = Job(token="tok", window=2)
    with endpoint.listen_on_port(0) as listener:
        job.ranks[1] = job.ranks[1].replace(port=listener.getsockname()[1])
        job.start(1)
        conn, _ = listener.accept()
        with conn, conn.makefile("rb") as lines:
            assert lines.readline().startswith(wire.GREETING)
            conn.sendall(said[0])
            hello = lines.readline()
            conn.sendall(b"".join(said[1:]) or hello)
            answer = job.end()[1]
    assert str(answer).startswith("rank 0 (127.0.0.1) did not answer"), answer
