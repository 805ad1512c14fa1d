"""The command as a process: signals, closed streams, encodings, terminals, and what it loads."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
import time

import pytest

from tests.test_architecture import HEAVY, OPTIONAL

from .faked import closing, run, start

SLOW = """
def slow(*a, **k):
    try:
        sys.stderr.write("looking\\n")
        sys.stderr.flush()
        time.sleep(60)
    finally:
        sys.stderr.write("cleaned up\\n")
fake.check_machine = slow
"""


INTERRUPTED = "gpuready: interrupted: nothing was changed\n"
SIGNALS = [(signal.SIGINT, 130, INTERRUPTED), (signal.SIGTERM, 143, "")]


@pytest.mark.parametrize(("number", "code", "says"), SIGNALS)
def test_a_signal_ends_it_and_lets_it_clean_up(number, code, says):
    process = start("check", body=SLOW)
    assert process.stderr is not None
    assert process.stderr.readline() == b"looking\n"
    began = time.monotonic()
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == code and out == b"" and err == b"cleaned up\n" + says.encode()
    assert time.monotonic() - began < 60 / 2


@pytest.mark.parametrize(("number", "code", "says"), SIGNALS)
def test_a_signal_that_python_drops_is_not_lost(number, code, says):
    """An exception in a destructor, or in the bookkeeping of an import, ends nothing and is only printed."""
    body = f"""
class Deaf:
    def __del__(self):
        os.kill(os.getpid(), {int(number)})
        sum(range(10))
def deaf(*a, **k):
    Deaf()
    time.sleep(30)
fake.check_machine = deaf
"""
    began = time.monotonic()
    assert run("check", body=body) == (code, "", says)
    assert time.monotonic() - began < 30 / 2


def test_a_reader_that_has_gone_away_is_no_error():
    for size in ("", "fake.check_machine = lambda *a, **k: [report(name='n' * 10) for _ in range(3000)]"):
        reading, writing = os.pipe()
        os.close(reading)
        code, _, err = run("check", body=size, stdout=writing)
        os.close(writing)
        assert (code, err) == (1, "")


def test_a_full_disk_is_one_sentence():
    with open("/dev/full", "w") as full:
        code, _, err = run("check", stdout=full)
    assert (
        code == 2
        and err.startswith("gpuready: the answer could not be written: No space left on device")
        and err.count("\n") == 1
    )


def test_nobody_to_tell_that_the_disk_is_full():
    with open("/dev/full", "w") as full:
        assert run("check", stdout=full, stderr=full)[0] == 2


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1), (0, 1, 2)])
def test_closed_streams(closed):
    code, out, err = run("check", **closing(*closed))
    assert (code, err) == (1, "")
    assert bool(out) == (1 not in closed)
    assert run("--nonsense", **closing(*closed))[0] == 2


def test_a_file_is_never_opened_as_a_closed_stdout():
    body = """
def check(*a, **k):
    number = os.open("/dev/null", os.O_RDONLY)
    assert number > 2, number
    return [report()]
fake.check_machine = check
"""
    assert run("check", body=body, **closing(0, 1))[0] == 1


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_the_answer_is_in_what_the_stream_can_write(encoding):
    code, out, err = run("check", "-v", env={"PYTHONIOENCODING": encoding})
    assert (code, err) == (1, "")
    if encoding == "utf-8":
        assert "✗ gpu" in out and "it is wrong ✗" in out
    else:
        assert "x  gpu" in out and "it is wrong \\u2717" in out and out.isascii()
    brief = run("check", env={"PYTHONIOENCODING": encoding})[1]
    assert ("it is wrong ✗" in brief) is (encoding == "utf-8")


def test_off_a_terminal_there_is_no_colour_and_80_columns():
    _, out, _ = run("check")
    assert "\x1b" not in out and max(len(line) for line in out.splitlines()) == 80
    assert "\x1b[1;31m" in run("check", "--color", "always", env={"NO_COLOR": "1"})[1]


def on_terminal(*argv: str, columns: int = 120, **env: str) -> str:
    """What a terminal of this width is shown."""
    mine, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    process = start(*argv, env={"TERM": "xterm", **env}, stdout=theirs, stderr=subprocess.PIPE)
    os.close(theirs)
    shown = b""
    while True:
        try:
            more = os.read(mine, 65536)
        except OSError:
            break
        if not more:
            break
        shown += more
    process.communicate(timeout=60)
    os.close(mine)
    return shown.decode().replace("\r\n", "\n")


def test_colour_on_a_terminal_by_rule():
    assert "\x1b[1;31m" in on_terminal("check")
    assert "\x1b" not in on_terminal("check", NO_COLOR="1")
    assert "\x1b[1;31m" in on_terminal("check", NO_COLOR="")
    assert "\x1b" not in on_terminal("check", TERM="dumb")
    assert "\x1b" not in on_terminal("check", "--color", "never")
    assert "\x1b" not in on_terminal("check", "--json")


@pytest.mark.parametrize(("columns", "used"), [(60, 60), (90, 90), (200, 100), (10, 40), (0, 80)])
def test_as_wide_as_the_terminal_up_to_a_hundred(columns, used):
    shown = on_terminal("check", columns=columns, NO_COLOR="1")
    assert max(len(line) for line in shown.splitlines()) == used


def test_it_loads_next_to_nothing():
    body = """
import atexit
before = set(sys.modules)
atexit.register(lambda: sys.stderr.write(" ".join(sorted(set(sys.modules) - before))))
"""
    code, _, err = run("check", "-q", body=body)
    assert code == 1 and not set(err.split()) & (HEAVY | OPTIONAL)


def test_help_and_version_do_not_load_the_commands():
    body = "import atexit; atexit.register(lambda: sys.stderr.write(' '.join(sys.modules)))"
    loaded = run("--version", body=body)[2].split()
    assert "gpuready.cli.parser" in loaded
    assert not {"gpuready.commands.check", "gpuready.cli.help", "gpuready.render.check_report"} & set(loaded)
