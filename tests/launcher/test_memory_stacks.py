"""Stacks from another process's memory: forked, stopped, holding the GIL, started by itself; and what moves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuready.launcher.memory_stacks import StackReader
from gpuready.launcher.rank_watch import RankWatch
from tests.running import SRC

SCRIPT = """
import ctypes, os, subprocess, sys, threading, time
sys.path.insert(0, sys.argv[1])
from gpuready.launcher.memory_stacks import StackReader
def background(): time.sleep(60)
def stand_here():
    time.sleep(60)
def hold_gil():
    ctypes.PyDLL(None).sleep(60)
def wéird():
    time.sleep(60)
reader = StackReader()
for function in (stand_here, hold_gil, wéird):
    pid = os.fork()
    if not pid:
        threading.Thread(target=background, daemon=True).start()
        function()
    deadline = time.monotonic() + 60
    while function.__name__ not in "".join(reader.read_stacks(pid, True)) and time.monotonic() < deadline: time.sleep(0.02)
    os.kill(pid, 19)
    print(*reader.read_stacks(pid, True), sep="\\n")
    print("background" in str(reader.read_stacks(pid, True)), reader.read_position(pid, True, {}) is not None, flush=True)
    os.kill(pid, 9)
"""


def _pythons() -> list[str]:
    """This Python, and others that are installed beside it; ranks run 3.10 or newer."""
    others = sorted(Path(sys.base_prefix).parent.glob("3.[1-9][0-9]*/bin/python"))
    return [sys.executable, *(str(one) for one in others if str(one.parent.parent) != sys.base_prefix)]


@pytest.mark.parametrize("python", _pythons())
def test_the_stacks_of_a_process_that_cannot_answer(python, tmp_path):
    (tmp_path / "t.py").write_text(SCRIPT, encoding="utf-8")
    done = subprocess.run([python, str(tmp_path / "t.py"), str(SRC)], capture_output=True, text=True, timeout=240)
    assert "Error" not in done.stderr, done.stderr[-800:]
    for line, name in ((7, "stand_here"), (9, "hold_gil"), (11, "wéird")):
        assert f'line {line} in {name}\n  File "{tmp_path}/t.py", line' in done.stdout, done.stdout
    assert done.stdout.count("True True") == 3


def test_a_program_of_its_own_and_one_that_is_no_python():
    reader = StackReader()
    code = "import time\ndef load():\n    time.sleep(60)\nload()\n"
    child = subprocess.Popen([sys.executable, "-c", code])
    other = subprocess.Popen(["sleep", "60"])
    try:
        deadline = time.monotonic() + 60
        while "in load" not in "".join(reader.read_stacks(child.pid, False)):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert reader.read_stacks(other.pid, False) == [] and reader.read_stacks(2**22 - 1, True) == []
    finally:
        for process in (child, other):
            process.kill()
            process.wait()


MOVES = {
    "sleep": ("time.sleep(60)", False),
    "loop": ("while True: pass", True),
    "write": ("f = open(os.devnull, 'w')\nwhile True:\n    f.write('x' * 9000); f.flush(); time.sleep(0.1)", True),
    "child": ("subprocess.run([sys.executable, '-c', 'while True: pass'])", True),
}


@pytest.mark.parametrize("kind", MOVES)
def test_what_moves_and_what_does_not(kind):
    line, moves = MOVES[kind]
    code = f"import os, subprocess, sys, time\nprint('on', flush=True)\n{line}\n"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout is not None and process.stdout.readline()
        time.sleep(0.3)
        watch = RankWatch(process.pid, False, StackReader(), time.monotonic())
        watch.look(time.monotonic())
        watch.look(time.monotonic())  # what the first look was new to
        time.sleep(0.5)
        state, seconds, still, ran, roamed, waits, *_ = watch.look(time.monotonic())
        assert (still == 0.0) == moves and not waits and state and seconds >= 0.0, (still, ran, roamed)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
