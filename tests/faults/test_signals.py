"""D60 and D63: a check that is told to end, or that nobody reads any more: signals, pipes, closed and full streams."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import time

import pytest

from tests.faults.bench import Ended, strays

REPORTED = "gpuready: it was told to end (SIGTERM): the answer has what was learned until then\n"


def hanging(machine, *argv, **options):
    """A check that hangs at nvidia-smi, once all other looks are done."""
    begun = machine.folder / "begun"
    machine.program("nvidia-smi", f": > {begun}\nsleep 98765 &\nsleep 98765")
    heard = {"preexec_fn": lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL)}  # also where we run under nohup
    process = machine.start("check", "transformers", *argv, marker="bench-d63", **{**heard, **options})
    until = time.monotonic() + 30
    while not begun.exists() and time.monotonic() < until:
        time.sleep(0.01)
    running, since = strays("bench-d63"), time.monotonic()
    while time.monotonic() < min(since + 0.3, until):  # until nothing has begun or ended for a while
        time.sleep(0.05)
        if (now := strays("bench-d63")) != running:
            running, since = now, time.monotonic()
    return process


def ended(machine, process):
    """How it ended, and that nothing of it is left."""
    began = time.monotonic()
    out, err = process.communicate(timeout=60)  # of 98765 seconds
    taken = time.monotonic() - began
    until = time.monotonic() + 20
    while strays("bench-d63") and time.monotonic() < until:
        time.sleep(0.02)
    assert strays("bench-d63") == [] and os.listdir(machine.tmp) == [] == machine.list_left_in_home()
    return Ended(process.returncode, out or b"", err or b"", taken)


def ended_in_the_middle(machine, *numbers, argv=(), **options):
    """The check is sent signals while nvidia-smi hangs: what it then says, and how long it takes to."""
    process = hanging(machine, *argv, **options)
    for number in numbers:
        process.send_signal(number)
    return ended(machine, process)


def test_d63_it_is_interrupted_in_the_middle(machine):
    found = ended_in_the_middle(machine, signal.SIGINT)
    assert (found.code, found.out, found.err) == (130, "", "gpuready: interrupted: nothing was changed\n")


def test_d63_it_is_terminated_in_the_middle_and_tells_what_it_knows(machine):
    machine.variables["CUDA_VISIBLE_DEVICES"] = ""
    found = ended_in_the_middle(machine, signal.SIGTERM, argv=["--json"])
    assert (found.code, found.err) == (143, REPORTED)
    assert found.found["verdict"] in ("not-ready", "undecided")
    assert found.value("os.kernel") and found.value("torch.version") == "2.13.0+cu126"
    assert "interrupted" in found.gap("gpu.count") and "GPU001" in found.undecided


def test_d63_the_screen_of_a_check_that_was_terminated(machine):
    found = ended_in_the_middle(machine, signal.SIGTERM)
    assert found.code == 143 and "interrupted" in found.out and "\nready" not in found.out
    assert found.out.startswith("can't tell: ") and "Ubuntu 22.04" in found.out


def test_d26_an_import_that_hangs_ends_with_the_check_and_does_not_begin_again(machine):
    begun = machine.folder / "imports"
    machine.program("python", f"echo begun >> {begun}\nsleep 98765", "/venv/bin")
    process = machine.start("check", "transformers", "--json", marker="bench-d63")
    until = time.monotonic() + 30
    while not begun.exists() and time.monotonic() < until:
        time.sleep(0.01)
    process.terminate()
    found = ended(machine, process)
    assert (found.code, found.err) == (143, REPORTED) and begun.read_text() == "begun\n"
    assert "PKG042" not in found.codes and "PKG042" in found.undecided


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_d63_a_second_signal_ends_it_at_once(machine, second):
    """The answer, or nothing; half of it never, and no word of Python's. Of two that come together Python takes Ctrl-C first."""
    found = ended_in_the_middle(machine, signal.SIGTERM, second)
    assert found.code in ((143,) if second == signal.SIGTERM else (130, 143))
    first = "gpuready: interrupted: nothing was changed\n" if found.code == 130 else ""
    assert found.err in ("", REPORTED, first) and (found.out == "" or found.out.startswith("can't tell: "))


def test_d63_the_terminal_is_closed(machine):
    """What it had started goes with it, and a file that takes the answer has what was learned."""
    found = ended_in_the_middle(machine, signal.SIGHUP)
    assert (found.code, found.err) == (129, REPORTED.replace("SIGTERM", "SIGHUP"))
    assert "interrupted" in found.out and "\nready" not in found.out


def test_d63_under_nohup_a_terminal_that_closes_is_nothing(machine):
    process = hanging(machine, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    process.send_signal(signal.SIGHUP)
    time.sleep(0.3)
    assert process.poll() is None
    process.terminate()
    assert ended(machine, process).code == 143


def test_d63_its_terminal_is_gone_when_the_answer_is_written(machine):
    """Writing to a terminal that was closed fails; there is nobody to tell that either."""
    ours, theirs = pty.openpty()
    process = hanging(machine, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.close(ours)
    process.send_signal(signal.SIGHUP)
    assert ended(machine, process).code == 129


def test_d63_it_is_terminated_and_nobody_reads(machine):
    with open("/dev/full", "w") as full:
        found = ended_in_the_middle(machine, signal.SIGTERM, stdout=full)
    assert found.code == 143 and found.err.count("\n") == 1 and found.err.startswith("gpuready: ")


# -- whoever reads it -------------------------------------------------------------------------------------


def test_d60_a_reader_that_has_gone_away(machine):
    reading, writing = os.pipe()
    os.close(reading)
    ran = machine.run("check", "transformers", stdout=writing)
    os.close(writing)
    assert (ran.code, ran.out, ran.err) == (0, "", "")


@pytest.mark.parametrize("argv", [("check", "transformers", "-v"), ("probe", "-o", "-")])
def test_d60_only_the_first_line_is_read(machine, argv):
    """As in ``gpuready check | head -1``: the pipe closes while the answer is written."""
    process = machine.start(*argv)
    head = subprocess.Popen(["head", "-1"], stdin=process.stdout, stdout=subprocess.PIPE)
    process.stdout.close()
    line = head.communicate(timeout=30)[0]
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=30) == 0 and line.count(b"\n") == 1 and err == b""


def test_d60_a_stream_that_takes_nothing_more(machine):
    with open("/dev/full", "w") as full:
        ran = machine.run("check", "transformers", stdout=full)
        mute = machine.run("check", "transformers", stdout=full, stderr=full)
    assert ran.code == mute.code == 2
    assert ran.err == "gpuready: the answer could not be written: No space left on device\n"


@pytest.mark.parametrize("closed", [(1,), (2,), (0, 1, 2)])
def test_d60_streams_that_are_closed(machine, closed):
    ran = machine.run("check", "transformers", preexec_fn=lambda: [os.close(number) for number in closed])
    assert ran.code == 0 and ran.err == "" and bool(ran.out) == (1 not in closed)
