"""Plain hosts over ssh: every way in which one fails is named, and the others are complete (G17, E29, E33)."""

from __future__ import annotations

import sys

import pytest
from tests.deadlines import HANG_S
from tests.fleet.faked import SSH, Bin

from gpuready.fleet import ssh_hosts
from gpuready.fleet.answer_collector import AnswerCollector
from gpuready.system.process import parallel_programs
from gpuready.system.process.parallel_programs import ProgramEnd, ProgramTask, run_programs

REQUEST = {"schema": 1, "do": "fingerprint", "token": "t1", "options": {}}


@pytest.fixture
def bin_(tmp_path):
    made = Bin(tmp_path)
    made.put("ssh", SSH)
    return made


def asked(bin_: Bin, names: str, deadline: float = 60.0, parallel: int = 8, request: dict | None = None):
    nodes = ssh_hosts.parse_host_list(names)
    fleet = ssh_hosts.SshTransport(nodes, "t1", python=sys.executable, parallel=parallel, variables=bin_.variables)
    answers: dict = {}

    def heard(answer):
        assert answer.node not in answers, "one answer for each node"
        answers[answer.node] = answer

    fleet.ask_nodes(nodes, request or REQUEST, deadline, heard)
    return answers


def test_g17_every_way_to_fail_has_its_name_and_the_rest_is_complete(bin_, monkeypatch):
    monkeypatch.setattr(ssh_hosts, "CONNECT", 1)
    names = (
        "good1,banner,changed,stranger,password,off,closed,nameless,stuck,dns,bare,broken,silent,old,user@good2:2222"
    )
    found = asked(bin_, names, 10.0)
    assert len(found) == 15
    kinds = {name: answer.kind for name, answer in found.items()}
    assert [n for n, kind in kinds.items() if kind == "answered"] and kinds["good1"] == "answered"
    assert kinds["banner"] == "answered" and kinds["good2:2222"] == "answered"
    said = {
        "changed": ("refused", "host key has changed"),
        "stranger": ("refused", "host key is not known"),
        "password": ("refused", "without a password"),
        "off": ("dead", "no answer to a connection"),
        "closed": ("dead", "nothing listens"),
        "nameless": ("dead", "leads to no address"),
        "stuck": ("slow", "never began"),
        "dns": ("slow", "never began"),
        "bare": ("absent", "gpuready needs Python 3.10 or newer"),
        "broken": ("refused", "ended with 3: Fatal Python error"),
        "silent": ("garbled", "no answer was in what it wrote"),
        "old": ("refused", "and gpuready needs 9.10 or newer"),
    }
    for name, (kind, words) in said.items():
        assert (found[name].kind, words in found[name].why) == (kind, True), found[name]
    assert found["stuck"].seconds < HANG_S / 2
    assert len(found["good1"].body) <= 512


def test_a_server_that_says_nothing_is_no_dropped_packet():
    silent = ProgramEnd(
        "n1", 255, "Connection timed out during banner exchange\r\nConnection to 10.0.0.7 port 22 timed out"
    )
    dropped = ProgramEnd("n1", 255, "ssh: connect to host n1 port 22: Connection timed out")
    said = [ssh_hosts.classify_ssh_failure(ended, False, "python3")[1] for ended in (silent, dropped)]
    assert "says nothing" in said[0] and said[1] == ssh_hosts.NO_CONNECTION


def test_who_waits_for_a_processor_here_is_not_late(monkeypatch):
    """Sixty ssh at once on two busy cores: what each has waited for a core is taken off."""
    tasks = [ProgramTask(key, ("sleep", "0.6"), 9.0) for key in ("queued", "slow")]
    ends: dict[str, str] = {}
    for task in tasks:
        wait = 9.0 if task.key == "queued" else 0.0
        monkeypatch.setattr(parallel_programs, "_seconds_queued", lambda pid, wait=wait: wait)
        run_programs(
            [task],
            1,
            lambda key, text: False,
            lambda one: ends.update({one.key: one.end}),
            None,
            lambda key, seconds: seconds > 0.2,
        )
    assert ends == {"queued": "", "slow": "deadline"}


def test_e33_what_a_node_says_is_not_believed_at_once(bin_, monkeypatch):
    monkeypatch.setattr(parallel_programs, "EXIT_GRACE_S", 0.2)
    found = asked(bin_, "endless,long,nan,deep,types,liar")
    gather = AnswerCollector(ssh_hosts.parse_host_list("endless,long,nan,deep,types,liar,good1"))
    for answer in found.values():
        gather.add_answer(answer)
    assert found["endless"].kind == "garbled" and found["long"].kind == "garbled"
    assert [gather.node_state(name)[0] for name in found] == ["garbled"] * 6
    assert not gather.records


def test_a_node_without_a_shared_disk_gets_gpuready_as_one_file_and_keeps_nothing(bin_):
    found = asked(bin_, "lone1,lone2", 60.0)
    assert {a.kind for a in found.values()} == {"answered"}, found
    assert len(bin_.asked_lines()) in (3, 4), "the first is asked twice; once one needs it, the next get it at once"
    assert not list(bin_.lone.iterdir())


def test_no_more_at_once_than_allowed(bin_, tmp_path):
    count = tmp_path / "count"
    count.mkdir()
    source = (
        "import os, sys, time\n"
        f"mine = '{count}/' + str(os.getpid())\n"
        "open(mine, 'w').close()\n"
        f"open('{tmp_path}/most', 'a').write(str(len(os.listdir('{count}'))) + '\\n')\n"
        "time.sleep(0.05); os.unlink(mine); sys.exit(1)\n"
    )
    bin_.put("ssh", source)
    assert len(asked(bin_, "n[01-24]", parallel=3)) == 24
    assert max(map(int, (tmp_path / "most").read_text().split())) <= 3


@pytest.mark.parametrize(
    "name",
    [
        "-oProxyCommand=reboot",
        "root@-oProxyCommand=x",
        "-x@host",
        "a;b",
        "a b",
        "$(id)",
        "a'b",
        "@host",
        "host:99999",
        "ä",
        "a\nb",
    ],
)
def test_e29_a_name_that_is_a_flag_or_a_word_of_the_shell_is_refused(name):
    with pytest.raises(ValueError) as refused:
        ssh_hosts.parse_host_list(name)
    assert "\n" not in str(refused.value)
    if not set(name) & set(" \n"):
        with pytest.raises(ValueError, match=r"hosts\.txt line 2"):
            ssh_hosts.parse_hostfile(f"good1\n{name}\n", "hosts.txt")


def test_e29_the_host_stands_behind_two_dashes(bin_):
    asked(bin_, "user@off7")
    words = bin_.asked_lines()[0]
    assert "'--', 'user@off7', \"exec " in words


def test_a_host_file_as_colossalai_deepspeed_and_mpi_have_it():
    text = "# ours\nhost1\n\n  host2   # the second\nhost3 slots=8\nn[08-10] gpus=4\nme@host4:2222\n[fe80::1]:22\n"
    found = ssh_hosts.parse_hostfile(text, "hosts.txt")
    assert [node.name for node in found] == ["host1", "host2", "host3", "n08", "n09", "n10", "host4:2222", "fe80::1:22"]
    assert [node.gpus for node in found[:6]] == [0, 0, 8, 4, 4, 4]
    assert found[6].labels == {"user": "me", "port": "2222"} and found[6].address == "host4"
    for bad, words in (("# none\n", "names no host"), ("x[1-\n", "hosts.txt line 1")):
        with pytest.raises(ValueError, match=words):
            ssh_hosts.parse_hostfile(bad, "hosts.txt")


def test_the_parcel_is_the_same_bytes_each_time_and_runs_alone(tmp_path, monkeypatch):
    import shutil
    import subprocess

    from gpuready.fleet import node_payload

    here = tmp_path / "gpuready"
    shutil.copytree(node_payload.PACKAGE, here, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(node_payload, "PACKAGE", str(here))
    once = node_payload.pack_gpuready()
    node_payload._packed_cache.clear()
    assert node_payload.pack_gpuready() == once
    path = tmp_path / "gpuready.pyz"
    path.write_bytes(once)
    ran = subprocess.run([sys.executable, "-I", "-S", str(path), "--version"], capture_output=True, text=True, cwd="/")
    assert ran.returncode == 0 and ran.stdout.startswith("gpuready "), ran.stderr
