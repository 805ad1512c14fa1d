"""Ctrl-C in prove and fleet, as a process: what was done, what was stopped, how to go on, and that nothing half is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.bench import strays
from tests.fleet.faked import SSH, Bin
from tests.running import QUIET, SRC

WITHIN = 60.0
HANGING_TORCH = """
import os, subprocess, sys
if sys.argv[0] != "-c":  # the import that is tried before the proofs ends well
    child = subprocess.Popen(["sleep", "98765"])
    open(os.environ["BEGUN"], "w").close()
    child.wait()
"""


def start(folder: Path, *words: str, **variables: str) -> subprocess.Popen[str]:
    env = {**QUIET, "PYTHONPATH": str(SRC), "HOME": str(folder), "TMPDIR": str(folder / "tmp"), **variables}
    (folder / "tmp").mkdir()
    command = [sys.executable, "-c", "from gpuready.cli import main; main()", *words]
    return subprocess.Popen(
        command,
        env={**env, "MARK": mark(folder)},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def mark(folder: Path) -> str:
    return f"interrupt-{os.getpid()}-{folder.name}"


def interrupt_after(process: subprocess.Popen[str], line: str, is_begun: Callable[[str], bool]) -> tuple[int, str, str]:
    """Press Ctrl-C once the process has written a line and its work has begun; return its exit code and all that it wrote."""
    assert process.stderr is not None
    said = ""
    while line not in said:
        more = process.stderr.readline()
        assert more, said
        said += more
    until = time.monotonic() + WITHIN
    while not is_begun(said) and time.monotonic() < until:
        time.sleep(0.02)
    assert process.poll() is None and is_begun(said)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=WITHIN)
    return process.returncode, out, said + err


def assert_nothing_left(folder: Path) -> None:
    until = time.monotonic() + WITHIN
    while strays(mark(folder)) and time.monotonic() < until:
        time.sleep(0.02)
    assert strays(mark(folder)) == [] and os.listdir(folder / "tmp") == []


@pytest.fixture
def hanging_torch(tmp_path):
    """An environment whose torch starts a program and never ends."""
    site = tmp_path / "env/lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    for name, text in (
        ("torch/__init__.py", HANGING_TORCH),
        ("torch/version.py", "__version__ = '2.15.0'\ncuda = None\n"),
        ("torch-2.15.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 2.15.0\n"),
    ):
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    (tmp_path / "env/bin").mkdir()
    (tmp_path / "env/bin/python").symlink_to(Path(sys.executable).resolve())
    (tmp_path / "env/pyvenv.cfg").write_text(f"home = {Path(sys.executable).resolve().parent}\n")
    return tmp_path


def test_prove_says_how_far_it_was_and_leaves_no_process_and_no_evidence(hanging_torch):
    folder = hanging_torch
    begun = folder / "begun"
    words = ("prove", "--cpu", "matmul-bf16", "--python", "env", "-o", "evidence.json")
    code, out, err = interrupt_after(start(folder, *words, BEGUN=str(begun)), "", lambda said: begun.exists())
    sentence = "0 of 1 proofs had ended, the running ones were stopped, and no evidence was written"
    assert code == 130 and out == "" and err.splitlines()[-1] == f"gpuready: interrupted: {sentence}", err
    assert "Traceback" not in err
    assert_nothing_left(folder)
    assert not (folder / "evidence.json").exists()


def has_answer(said: str) -> bool:
    folder = Path(said.partition("answers are kept in ")[2].partition(";")[0])
    return any("good1" in path.read_text() for path in folder.glob("*.jsonl"))


def test_fleet_keeps_the_answers_and_says_how_to_resume(tmp_path):
    programs = Bin(tmp_path)
    programs.put("ssh", SSH)
    keep = {name: programs.variables[name] for name in ("PATH", "SSH_LOG", "LONE_TMP")}
    words = ("fleet", "drift", "--hosts", "good1,dns2", "--retries", "0")
    code, out, err = interrupt_after(start(tmp_path, *words, **keep), "answers are kept in ", has_answer)
    assert code == 130 and out == "" and "Traceback" not in err, err
    last = err.splitlines()[-1]
    folder = last.partition("--resume ")[2].partition(" ")[0]
    assert last.startswith("gpuready: interrupted: 1 of 2 nodes had answered") and last.endswith(" asks the others")
    assert_nothing_left(tmp_path)
    answers = [json.loads(line) for path in Path(folder).glob("*.jsonl") for line in path.read_text().splitlines()]
    assert [answer["node"] for answer in answers] == ["good1"] and json.loads((Path(folder) / "run.json").read_text())
