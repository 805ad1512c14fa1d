"""``gpuready fleet`` as a user has it: over a fake ssh that runs real node programs; crashed, resumed, compared."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.fleet.faked import SSH, Bin
from tests.running import run_forked

from gpuready import rules
from gpuready.fleet.ssh_hosts import is_hostfile
from gpuready.model import Contract, Facts, Finding, Report, UndecidedRule
from gpuready.render import fleet as render
from gpuready.system import own_folders
from gpuready.workflow import fleet_node

SRC = str(Path(__file__).parents[2] / "src")


class FakeService:
    """Where the command is given."""

    def __init__(self, folder: Path):
        self.bin = Bin(folder)
        self.bin.put("ssh", SSH)
        self.cache = folder / "cache"
        self.env = {
            **self.bin.variables,
            "PYTHONPATH": SRC,
            "XDG_CACHE_HOME": str(self.cache),
            "HOME": str(folder),
            "TMPDIR": str(folder),  # a controller that is killed cannot clear up
        }

    def start(self, *words: str, **more: str) -> subprocess.Popen:
        argv = [sys.executable, "-m", "gpuready", "fleet", *words]
        return subprocess.Popen(
            argv, env={**self.env, **more}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def run(self, *words: str, **more: str) -> tuple[int, str, str]:
        code, out, err = run_forked(["fleet", *words], {**self.env, **more})
        assert "Traceback" not in err, err
        return code, out, err

    def json(self, *words: str, **more: str) -> dict:
        code, out, err = self.run(*words, "--json", **more)
        assert out, err
        found = json.loads(out)
        assert found["exit"] == code
        return found


@pytest.fixture
def service(tmp_path):
    return FakeService(tmp_path)


def test_drift_names_the_differing_node_and_the_silent_ones(service, tmp_path):
    """One node has another variable: it is told apart, with the value that the others have."""
    wrong = SSH.replace(
        'os.execvp("sh"', 'os.environ["NCCL_DEBUG"] = "INFO" if host == "good3" else "WARN"\nos.execvp("sh"'
    )
    service.bin.put("ssh", wrong)
    page = tmp_path / "fleet.html"
    words = (
        "drift",
        "--hosts",
        "good[1-5],off",
        "--python",
        sys.executable,
        "--timeout",
        "30",
        "--retries",
        "0",
        "-o",
        str(page),
    )
    found = service.json(*words)
    keys = {(d["key"], g["value"], g["nodes"]) for d in found["drift"] for g in d["groups"]}
    assert ("env.NCCL_DEBUG", "INFO", "good3") in keys, found["drift"]
    assert found["states"] == {"answered": "good[1-5]", "dead": "off"}
    assert found["nodes"] == 6 and any("hosts were named" in note for note in found["notes"])
    html = page.read_text()
    assert html.count("<code>good3</code>") == 3, "in its set of nodes, in its row of the nodes and under Drift"
    assert len(service.bin.asked_lines()) == 6 + 2, "details of one node of each group, and of no other"


def test_g18_a_controller_that_was_killed_asks_only_the_missing(service):
    # As ssh does, it ends when whoever asked has gone.
    slow = SSH.replace(
        'os.execvp("sh"',
        'asker, go = os.getppid(), os.environ["SSH_LOG"] + ".go"\n'
        'while host in ("good4", "good5") and not os.path.exists(go):\n'
        "    os._exit(255) if os.getppid() != asker else time.sleep(0.1)\n"
        'os.execvp("sh"',
    )
    service.bin.put("ssh", slow)
    words = ("check", "--hosts", "good[1-5]", "--python", sys.executable, "transformers")
    process = service.start(*words)
    runs = service.cache / "gpuready" / "fleet"
    until = time.monotonic() + 60
    while time.monotonic() < until:
        lines = [line for path in runs.glob("*/answers.jsonl") for line in path.read_text().splitlines(keepends=True)]
        entries = [json.loads(line) for line in lines if line.endswith("\n")]
        kept = {entry["node"] for entry in entries if not entry.get("for_now")}
        if len(kept) >= 3:
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert len(kept) == 3, "three of five had answered"
    service.bin.log.unlink()
    Path(f"{service.bin.log}.go").touch()
    folder = next(runs.iterdir())
    stranger = service.run("check", "--resume", str(folder), "--hosts", "good[3-6]")
    assert stranger[0] == 2 and "good6 was not in that run" in stranger[2], stranger
    other = service.run("check", "trl", "--resume", str(folder))
    assert other[0] == 2 and "that run was `gpuready fleet check transformers`" in other[2], other
    found = service.json("check", "--resume", str(folder))
    assert found["states"] == {"answered": "good[1-5]"}
    asked = {
        word
        for word in ("good1", "good2", "good3", "good4", "good5")
        if any(f"'{word}'" in line for line in service.bin.asked_lines())
    }
    assert asked == {"good4", "good5"} and any("3 nodes had answered before" in note for note in found["notes"])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["check", "--hosts", "-oProxyCommand=reboot"], "--hosts needs a value"),
        (["check", "--hosts=-oProxyCommand=reboot"], "begins with a dash"),
        (["check", "--hostfile", "/nowhere/hosts"], "does not exist"),
        (["check", "--engine", "ssh"], "ssh needs hosts"),
        (["check", "nosuchfolder"], "nosuchfolder is no framework that gpuready knows, and no file or folder here"),
        (["check", "trll"], "(nearest: trl"),
        (["check", "--hosts", "a", "-o", "x.pdf"], "-o x.pdf: a report of a fleet is written as .html, .json or .txt"),
        (["check", "--hosts", "a", "--parallel", "0"], "--parallel takes a number above 0"),
        (["check", "--hosts", "a", "--timeout", "nan"], "--timeout takes a number above 0"),
        (["check", "--hosts", "a", "--resume", "/nowhere"], "/nowhere/run.json does not exist"),
        (["drift", "--hosts", "a", "--reference", "/nowhere.json"], "does not exist"),
        (["check", "-q", "-v", "--hosts", "a"], "-q and -v cannot be combined"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(service, words, sentence):
    code, out, err = service.run(*words, SLURM_JOB_ID="")
    assert code == 2 and sentence in err and not out and len(err.strip().splitlines()) == 1, err


@pytest.mark.parametrize(("hosts", "count"), [("off1,off2", 0), ("good1,off1", 1)])
def test_bisect_among_silent_nodes_is_answered_with_their_reasons(service, hosts, count):
    code, out, _ = service.run(
        "bisect", "--hosts", hosts, "--python", sys.executable, "--retries", "0", SLURM_JOB_ID=""
    )
    assert code == 1 and "FLT001" in out and "no answer to a connection" in out
    assert f"no pair was run: bisect needs two nodes that answer, and has {count}" in " ".join(out.split())


@pytest.mark.parametrize("hosts", ["a", "o", "host", "off1", "a,o,off1"])
def test_the_name_of_a_node_does_not_garble_its_reason(service, hosts):
    service.bin.put("ssh", 'import sys\nsys.stderr.write("ssh: Could not resolve hostname x\\n")\nsys.exit(255)\n')
    code, out, _ = service.run("check", "--hosts", hosts, "--retries", "0", "trl", SLURM_JOB_ID="")
    assert code == 1 and "its name leads to no address" in out


def test_a_host_file_after_hosts_is_refused_with_the_flag_that_reads_it(service, tmp_path):
    file = tmp_path / "hosts"
    file.write_text("# the cluster\nn01 slots=8\nn02\n")
    code, out, err = service.run("check", "--hosts", str(file), SLURM_JOB_ID="")
    assert code == 2 and not out and f"{file} is a file with hosts: give it with --hostfile" in err
    assert not is_hostfile("2026-11-17 12:00:01 step 1 loss 3.2\n"), "a log that has the name of its node"


def test_without_any_engine_the_way_out_is_named(service):
    code, _, err = service.run("check", PATH="/nonexistent", SLURM_JOB_ID="", RAY_ADDRESS="")
    assert code == 2 and "--hosts n[01-16] or --hostfile FILE" in err


def test_the_prolog_judges_the_node_alone(service):
    """As slurmd starts it: hardly a variable, no terminal, the file system's root as the folder; mistakes drain nothing."""
    bare = {"PATH": "/usr/bin:/bin", "PYTHONPATH": SRC, "SLURMD_NODENAME": "n01", "SLURM_JOB_ID": "7"}
    argv = [sys.executable, "-m", "gpuready", "fleet", "check", "--prolog"]
    done = subprocess.run(argv, env=bare, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done
    for mistake in (["trasnformers"], ["--python", "/not/mounted/bin/python"], ["vllm", "--wants", "frob"]):
        code, out, err = service.run("check", "--prolog", *mistake)
        assert (code, out) == (0, "") and "not looked at, --prolog judges the node alone" in err, err
    assert not service.bin.asked_lines(), "nobody else is asked"


def test_rules_of_the_prolog_read_nothing_of_an_environment():
    judged = {rule.code for rule in fleet_node.check_this_node().judged}
    assert not [code for code in judged if code[:3] not in ("GPU", "DRV", "SYS", "CAP")]
    modules = map(rules.load_rule, rules.list_rule_modules())
    chosen = {rule.CODE for rule in modules if all(key.startswith(fleet_node.NODE_FACTS) for key in rule.READS)}
    assert {
        "GPU008",
        "GPU009",
        "GPU013",
        "GPU020",
        "GPU025",
        "DRV002",
        "DRV004",
        "DRV007",
        "DRV008",
        "DRV009",
        "DRV010",
    } < chosen
    assert not chosen & {"PKG001", "GPU001", "GPU004", "DRV001", "SYS005", "NET006"}


FULL_DISK = """
mount -t tmpfs -o size=4k none "$1" && mkdir "$1/full" && head -c 4096 /dev/zero >"$1/full/x"
mount -t tmpfs -o ro none "$2" && shift 2 && exec "$@"
"""


def test_a_disk_on_which_nothing_can_be_written_is_a_fault_of_the_node(tmp_path):
    names = [str(tmp_path / name) for name in ("small", "read-only")]
    for name in names:
        os.mkdir(name)
    look = f"from gpuready.system.own_folders import find_disk_fault as f\nfor one in {names!r}: print(f([one]))"
    words = ["unshare", "-rm", "sh", "-c", FULL_DISK, "sh", *names, sys.executable, "-c", look]
    done = subprocess.run(words, env={**os.environ, "PYTHONPATH": SRC}, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no mounts of its own here: {done.stderr.strip()[-200:]}")
    full, frozen = done.stdout.splitlines()
    assert full.endswith("/small: no space left on device") and frozen.endswith("/read-only: read-only file system")
    assert own_folders.find_disk_fault([str(tmp_path), str(tmp_path / "not-mounted")]) == ""


def reported(*findings, undecided=()) -> Report:
    return Report(Contract("node", "1"), Facts(()), findings, undecided)


def test_the_reason_of_a_drain_is_one_line_and_only_for_a_fault():
    wrong = [Finding(code, "error", f"{code} is wrong\x1b[2J" + "!" * 300) for code in ("GPU013", "SYS011")]
    text, _ = render.drain_reason(reported(*wrong))
    assert text.startswith("gpuready: GPU013 ") and "\x1b" not in text and len(text) <= 251 and text.count("\n") == 1
    short, _ = render.drain_reason(reported(*(one.replace(says="is wrong") for one in wrong)))
    assert short == "gpuready: GPU013 is wrong (also SYS011)\n"
    unseen = UndecidedRule("GPU001", "error", "nvidia-smi did not answer")
    assert render.drain_reason(reported(undecided=(unseen,))) == (
        "",
        "gpuready: can't tell: GPU001 nvidia-smi did not answer",
    )
    assert render.drain_reason(reported()) == ("", "")
