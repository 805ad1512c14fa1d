"""`gpuready run` with real processes: what it takes and refuses, what a rank is given, and what is kept of its words."""

from __future__ import annotations

import json
import socket
import subprocess
import sys

import pytest


def test_a_run_that_ends_well(stage):
    stage.script("import os, sys\nprint('hello', os.environ['RANK'], sys.argv, __name__, __file__)\n")
    done = stage.run("--nproc", "2", "--", "train.py", "--lr", "1")
    assert done.code == 0 and "done: 2 ranks" in done.out
    assert "[rank0]: hello 0 ['train.py', '--lr', '1'] __main__" in done.out
    assert stage.log(1).startswith("hello 1 ") and str(stage.folder / "train.py") in stage.log(1)


def test_the_variables_are_those_of_torchrun(stage):
    stage.script(
        "import json, os, zlib\nt = os.environ['GPUREADY_TOKEN'].encode()\nprint(json.dumps({**os.environ, 'SUM': [len(t), zlib.crc32(t)]}))\n"
    )
    done = stage.run("--nproc", "2", "--", "train.py")
    assert done.code == 0
    ranks = [json.loads(stage.log(rank)) for rank in (0, 1)]
    for rank, reported in enumerate(ranks):
        wanted = {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": "2",
            "LOCAL_WORLD_SIZE": "2",
            "GROUP_RANK": "0",
        }
        assert wanted.items() <= reported.items()
        assert reported["TORCHELASTIC_RESTART_COUNT"] == "0" and reported["OMP_NUM_THREADS"] == "1"
        assert "GPUREADY_ATTEND" not in reported, "the token of the run is nothing for a script"
        assert reported["GPUREADY_TOKEN"] == "[redacted]", "the secret of the roll-call"
    assert ranks[0]["SUM"] == ranks[1]["SUM"] and ranks[0]["SUM"][0] == 32
    assert ranks[0]["MASTER_PORT"] == ranks[1]["MASTER_PORT"] and ranks[0]["MASTER_ADDR"] == "127.0.0.1"


@pytest.mark.parametrize(
    ("name", "content", "mode", "says", "fix"),
    [
        ("gone.py", None, 0, "gone.py does not exist", "the path counts from the current folder"),
        ("run.sh", b"#!/bin/sh\r\necho hi\r\n", 0o755, "line ends of Windows (CRLF)", "sed -i"),
        ("run.sh", b"#!/bin/sh\necho hi\n", 0o644, "is not executable", "chmod +x"),
        ("run.sh", b"#!/opt/nowhere/sh\n", 0o755, "wants /opt/nowhere/sh", "first line"),
        ("prog", b"\x7fELF\x02\x01\x01" + bytes(11) + b"\x16\x00" + bytes(40), 0o755, "is built for s390x", "build it for"),
        ("none.py", b"", 0o644, "is empty", ""),
    ],
)  # fmt: skip
def test_a57_a_script_that_cannot_run(stage, name, content, mode, says, fix):
    if content is not None:
        (stage.folder / name).write_bytes(content)
        (stage.folder / name).chmod(mode)
    done = stage.run("--nproc", "2", "--", f"./{name}")
    assert done.code == 2 and says in done.words and fix in done.words and not (stage.folder / "logs").exists()


def test_secrets_and_escapes_go_no_further(stage):
    secret = "hf_" + "a1B2c3D4e5" * 4
    stage.script(
        f"import sys\nprint('token={secret} \\x1b[2J\\x1b]0;x\\x07 \\rbar', flush=True)\nraise ValueError('{secret}')\n"
    )
    done = stage.run("--nproc", "2", "--", "train.py")
    assert done.code == 1
    assert secret not in done.out + done.err + stage.log(0) and "\x1b" not in done.out and "[redacted]" in stage.log(0)


def test_the_port_is_taken_and_its_holder_is_named(stage):
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        done = stage.run("--nproc", "2", "--master", f"127.0.0.1:{port}", "--", stage.script("pass\n"))
    assert done.code == 1 and f"port {port} is taken by pid" in done.words and "--master 127.0.0.1:" in done.words


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--nproc", "0"], "--nproc takes a whole number from 1 on, not '0'"),
        (["--nproc", "x"], "--nproc takes a whole number from 1 on, not 'x'"),
        (["--nnodes", "2"], "--nnodes 2 needs --master HOST:PORT"),
        (["--nnodes", "2", "--node-rank", "2", "--master", "h:1234"], "--node-rank 2 is outside the 2 nodes"),
        (["--master", "here"], "--master takes HOST:PORT"),
        (["--master", "h:99999"], "--master"),
        (["--restarts", "-1"], "--restarts"),
        (["--window", "soon"], "--window takes seconds, not 'soon'"),
        (["--fork", "--nproc", "1"], "--fork cannot be"),
        (["--engine", "local", "--nnodes", "2"], "--engine local starts ranks on this node alone"),
    ],
)
def test_a_command_line_that_cannot_be(stage, flags, says):
    done = stage.run(*flags, "--", stage.script("import torch\n"))
    assert done.code == 2 and says in done.err and len(done.err.splitlines()) == 1


def test_a_script_is_needed(stage):
    done = stage.run("--nproc", "2")
    assert done.code == 2 and "needs the script of the job, after --, such as" in done.err


def test_dry_run_shows_every_variable_and_starts_nothing(stage):
    stage.script("open('ran', 'w')\n")
    done = stage.run("--nproc", "2", "--dry-run", "--", "train.py", "--x")
    assert done.code == 0 and not (stage.folder / "ran").exists() and not (stage.folder / "logs").exists()
    result = " ".join(done.out.split())  # where lines break depends on the folder that the tests lie in
    assert all(
        name in result for name in ("MASTER_PORT", "RANK=1", "LOCAL_RANK=1", "as torchrun sets it", "train.py --x")
    )
    result = stage.run("--nproc", "2", "--dry-run", "--json", "--", "train.py").found
    assert result["seats"][1]["RANK"] == "1" and all(row["why"] for row in result["variables"])


def test_programs_and_modules_run_too(stage):
    stage.script("#!/bin/sh\necho shell $RANK $1\n", "job.sh", 0o755)
    done = stage.run("--nproc", "2", "--", "./job.sh", "x")
    assert done.code == 0 and "[rank1]: shell 1 x" in done.out
    (stage.folder / "pack").mkdir()
    (stage.folder / "pack" / "__main__.py").write_text("import sys\nprint('module', sys.argv[1:], __name__)\n")
    done = stage.run("--nproc", "2", "--", "-m", "pack", "y")
    assert done.code == 0 and "[rank0]: module ['y'] __main__" in done.out
    done = stage.run("--nproc", "1", "--", sys.executable, "-m", "pack", "z")
    assert done.code == 0 and "module ['z'] __main__" in done.out


def test_what_runs_at_exit_still_finds_its_names(stage):
    stage.script(
        "import atexit, pickle\nclass Thing: pass\ndef last(): print('at exit', pickle.loads(pickle.dumps(Thing())).__class__.__module__)\natexit.register(last)\n"
    )
    done = stage.run("--nproc", "2", "--", "train.py")
    assert done.code == 0 and done.out.count("at exit __main__") == 2


def test_python_exits_as_python_does(stage):
    plain = stage.script("import sys\nsys.exit('a sentence')\n")
    done = stage.run("--nproc", "1", "--", plain)
    assert done.code == 1 and "a sentence" in stage.log(0)
    stage.script("def f():\n    raise KeyError('x')\nf()\n", "raises.py")
    stage.run("--nproc", "1", "--", "raises.py", "--log-dir", "other")
    alone = subprocess.run([sys.executable, str(stage.folder / "raises.py")], capture_output=True, text=True)
    assert stage.log(0).endswith(alone.stderr)


def test_ranks_draw_different_numbers(stage):
    stage.script("import random, os\nprint(random.random(), os.urandom(4).hex())\n")
    assert stage.run("--nproc", "2", "--", "train.py").code == 0
    assert stage.log(0) != stage.log(1)


def test_a_flood_is_kept_whole(stage):
    stage.script("import os\nfor i in range(5000): print(i, 'x' * 50)\n")
    done = stage.run("--nproc", "2", "-q", "--", "train.py")
    assert done.code == 0
    for rank in (0, 1):
        assert [int(line.split()[0]) for line in stage.log(rank).splitlines()] == list(range(5000))


def test_a_framework_is_checked_first_and_its_variables_are_set(stage):
    """Where it is not installed nothing is started; without the preflight the script gets what the contract sets."""
    stage.script("import os\nprint('connections', os.environ.get('CUDA_DEVICE_MAX_CONNECTIONS'))\n")
    done = stage.run("colossalai", "--nproc", "1", "--", "train.py")
    assert done.code == 1 and "✗ framework colossalai" in done.words and "connections" not in done.words, done.words
    done = stage.run("colossalai", "--nproc", "1", "--no-preflight", "--", "train.py")
    assert done.code == 0 and "connections 1" in done.words
