"""Slurm through programs that stand in for it: states, deadlines, failing tasks, names (G12, G14, E30)."""

from __future__ import annotations

import sys

import pytest
from tests.fleet.faked import Bin

from gpuready import system
from gpuready.fleet import slurm
from gpuready.fleet.slurm import SlurmTransport
from gpuready.fleet.transport import TransportUnavailable

SINFO = """
import sys
print('''n01|idle|gpu*|10.0.0.1|gpu:h100:8(S:0-1)|none
n01|idle|all|10.0.0.1|gpu:h100:8(S:0-1)|none
n02|mixed|gpu*|n02|gpu:8|none
n03|drained|gpu*|n03|gpu:8|Xid 79
n04|down*|gpu*|n04|(null)|Not responding
n05|reserved|gpu*|n05|gpu:8|none
n06|powering_up|gpu*|n06|gpu:8|none
n07|idle~|gpu*|n07|gpu:8|none
n08|allocated#|gpu*|n08|gpu:8|none
n09|maint|gpu*|n09|gpu:8|none
n10|idle$|gpu*|n10|gpu:8|none
n11|draining@|gpu*|n11|gpu:8|reboot ASAP
n12|some_new_state|gpu*|n12|gpu:8|none
-oProxyCommand=x|idle|gpu*|x|(null)|none
broken line''')
"""
STATES = {
    "n01": "up", "n02": "up", "n03": "drained", "n04": "down", "n05": "reserved", "n06": "booting", "n07": "booting",
    "n08": "booting", "n09": "reserved", "n10": "reserved", "n11": "drained", "n12": "unknown",
}  # fmt: skip

SRUN = r"""
import os, subprocess, sys
words = [w for w in sys.argv[1:] if w.startswith("--")]
at = next(i for i, w in enumerate(sys.argv[1:], 1) if not w.startswith("--"))
program = sys.argv[at:]
with open(os.environ["SSH_LOG"], "a") as log:
    log.write(repr(sys.argv[1:]) + "\n")
names = next(w for w in words if w.startswith("--nodelist=")).partition("=")[2].split(",")
assert "--kill-on-bad-exit=0" in words and "--wait=0" in words and "--label" in words
data = sys.stdin.buffer.read()
if os.environ.get("ALL_OR_NOTHING") and len(names) > 1:
    sys.stderr.write("srun: error: Unable to allocate resources: Requested nodes are busy\n")
    sys.exit(1)
kids = []
for task, name in enumerate(names):
    env = {**os.environ, "SLURMD_NODENAME": name, "SLURM_PROCID": str(task)}
    if name in os.environ.get("FAILING", "").split(","):
        sys.stderr.write(f"srun: error: {name}: task {task}: Exited with exit code 9\n")
        continue
    if name in os.environ.get("LOST", "").split(","):
        sys.stderr.write(f"srun: error: Task launch for StepId=7.0 failed on node {name}: Communication connection failure\n")
        continue
    kid = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
    kid.stdin.write(data); kid.stdin.close()
    kids.append((task, kid))
for task, kid in kids:
    for line in kid.stdout:
        sys.stdout.write(f"{task}: {line.decode()}")
        sys.stdout.flush()
sys.exit(9)
"""


@pytest.fixture
def bin_(tmp_path, monkeypatch):
    made = Bin(tmp_path)
    made.put("sinfo", SINFO)
    made.put("srun", SRUN)
    for name, value in made.variables.items():
        monkeypatch.setenv(name, value)
    return made


def fleet(only: str = "", **environ: str) -> SlurmTransport:
    return SlurmTransport(system.LiveHost(), "t1", node_list=only, python=sys.executable, environ=environ)


def asked(transport: SlurmTransport, nodes: list, deadline: float = 60.0) -> dict:
    answers: dict = {}

    def heard(answer):
        assert answer.node not in answers
        answers[answer.node] = answer

    transport.ask_nodes(nodes, {"schema": 1, "do": "fingerprint", "token": "t1"}, deadline, heard)
    return answers


def test_g12_every_state_is_shown_with_slurms_reason(bin_):
    found = {node.name: node for node in fleet().list_nodes()}
    assert {name: node.state for name, node in found.items()} == STATES
    assert found["n01"].gpus == 8 and found["n01"].address == "10.0.0.1" and found["n01"].labels["partition"] == "gpu"
    assert found["n03"].why == "Slurm has it drained: Xid 79" and "Not responding" in found["n04"].why
    assert "powering up" in found["n08"].why


def test_g12_nodes_that_slurm_will_not_give_are_named_and_not_waited_for(bin_):
    transport = fleet()
    answers = asked(transport, [n for n in transport.list_nodes() if n.name not in ("n12", "n02")])
    kinds = {name: answer.kind for name, answer in answers.items()}
    assert kinds.pop("n01") == "answered" and kinds.pop("n04") == "dead"
    assert set(kinds.values()) == {"refused"} and "drained" in answers["n03"].why
    assert "--nodelist=n01" in bin_.asked_lines()[0] and len(bin_.asked_lines()) == 1


def test_g12_a_sinfo_that_hangs_is_bounded(bin_, monkeypatch):
    bin_.put("sinfo", "import time\ntime.sleep(600)\n")
    monkeypatch.setattr(slurm, "SINFO", 0.5)
    with pytest.raises(ValueError, match=r"sinfo: no answer within 0.5 s; name the nodes with --nodes"):
        fleet().list_nodes()
    named = fleet("n[01-02]").list_nodes()
    assert [node.state for node in named] == ["unknown", "unknown"]
    assert {a.kind for a in asked(fleet("n[01-02]"), named).values()} == {"answered"}


def test_g14_a_task_that_fails_leaves_the_others_alone(bin_, monkeypatch):
    monkeypatch.setenv("FAILING", "n02")
    monkeypatch.setenv("LOST", "n03")
    transport = fleet("n[01-04]")
    nodes = [node.replace(state="up") for node in transport.list_nodes()]
    answers = asked(transport, nodes)
    assert [answers[f"n0{i}"].kind for i in range(1, 5)] == ["answered", "dead", "dead", "answered"]
    assert "Exited with exit code 9" in answers["n02"].why or "srun" in answers["n02"].why
    assert answers["n03"].why == "srun: Communication connection failure"


def test_a_program_that_names_itself_is_named_once(bin_):
    says = 'import sys\nsys.exit("{0}: fatal: Could not establish a configuration source")\n'
    bin_.put("srun", says.format("srun"))
    nodes = [node.replace(state="up") for node in fleet("n[01-02]").list_nodes()]
    whys = {answer.why for answer in asked(fleet("n[01-02]"), nodes).values()}
    assert whys == {"srun: fatal: Could not establish a configuration source"}
    bin_.put("sinfo", says.format("sinfo"))
    with pytest.raises(TransportUnavailable, match=r"^sinfo: fatal: Could not establish"):
        fleet("").list_nodes()


def test_one_node_that_is_busy_does_not_spoil_it_for_all(bin_, monkeypatch):
    monkeypatch.setenv("ALL_OR_NOTHING", "1")
    transport = fleet("n[01-02]")
    answers = asked(transport, transport.list_nodes())
    assert {a.kind for a in answers.values()} == {"answered"} and len(bin_.asked_lines()) == 3


@pytest.mark.parametrize("name", ["n01;reboot", "$(id)", "-N9", "n01 --uid=0", "n01\n#SBATCH --uid=0", "a`b`"])
def test_e30_a_node_list_that_is_no_list_of_names_is_refused(bin_, name):
    with pytest.raises(ValueError):
        fleet(SLURM_JOB_ID="1", SLURM_JOB_NODELIST=name).list_nodes()


def test_e30_the_command_has_no_shell_and_no_script(bin_):
    words = fleet(SLURM_JOB_ID="1", SLURM_JOB_NAME="x; reboot").srun_command(["n01", "n02"], 60.0)
    assert words[0] == "srun" and "--nodelist=n01,n02" in words and "--overlap" in words
    assert not any("reboot" in word for word in words) and words[-4:-1] == (sys.executable, "-I", "-c")
    assert "--immediate=20" in fleet().srun_command(["n01"], 60.0)
