"""The progress display: one line on a terminal, plain lines elsewhere; Ctrl-C says what is left; errors are JSON with --json."""

from __future__ import annotations

import json
import os
import pty
import re
import signal

import pytest

from gpuready.cli import progress, run_command_line
from gpuready.cli.parser import parse_command_line
from gpuready.cli.progress import format_progress
from gpuready.commands import load_command
from gpuready.commands.declaration import Request
from gpuready.render.layout import Screen
from gpuready.system.process.termination import note_interrupt

from .faked import run, start


@pytest.mark.parametrize(
    ("state", "says"),
    [
        (("resolving packages", 0, 0, 0.2), "resolving packages"),
        (("resolving packages", 37, 0, 4.0), "resolving packages: 37 so far, 0:04"),
        (("nodes (check)", 250, 1000, 60.0), "nodes (check): 250 of 1,000 (25 %), 1:00, about 3:00 left"),
        (("nodes (check)", 1000, 1000, 3723.0), "nodes (check): 1,000 of 1,000 (100 %), 1:02:03"),
        (("judging GPUs", 1, 90, 1.5), "judging GPUs: 1 of 90 (1 %), 0:01"),
    ],
)
def test_what_how_far_and_how_long(state, says):
    assert format_progress(*state) == says


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def shown_plainly(capsys, states, at_once=False):
    clock = Clock()
    display = progress.ProgressDisplay(Screen(80), False, clock)
    for clock.now, *state in states:
        display.show(*state, at_once=at_once)
    display.clear()
    return capsys.readouterr().err.splitlines()


def test_short_work_is_silent_where_there_is_no_terminal(capsys):
    assert not shown_plainly(capsys, [(0, "judging GPUs", 0, 9), (2.9, "judging GPUs", 8, 9)])


def test_long_work_has_a_line_now_and_then(capsys):
    states = [(at, "measuring", at, 100) for at in range(40)]
    assert shown_plainly(capsys, states) == [
        f"gpuready: measuring: {at} of 100 ({at} %), 0:{at:02}, about {left} left"
        for at, left in ((3, "1:37"), (13, "1:27"), (23, "1:17"), (33, "1:07"))
    ]


def test_each_step_of_an_install_is_a_line_at_once(capsys):
    states = [(0, "create the environment", 1, 2), (0.5, "install 41 packages", 2, 2), (0.6, "Resolved 41 packages")]
    assert shown_plainly(capsys, states, at_once=True) == [
        "gpuready: create the environment: 1 of 2 (50 %)",
        "gpuready: install 41 packages: 2 of 2 (100 %)",
        "gpuready: Resolved 41 packages",
    ]


def test_the_parts_of_one_total_share_a_clock(capsys):
    states = [(at, f"fetching {at}.whl", at, 10) for at in (0, 4, 5)]
    assert shown_plainly(capsys, states)[-1] == "gpuready: fetching 5.whl: 5 of 10 (50 %), 0:05, about 0:05 left"


def test_a_terminal_has_one_line_that_is_cut_to_its_width_and_cleared(monkeypatch):
    written = []
    monkeypatch.setattr(progress, "_write_to_terminal", written.append)
    before = signal.getsignal(signal.SIGALRM)
    display = progress.ProgressDisplay(Screen(40), True, Clock())
    display.show("x" * 60 + "\n\x1b[2J")
    display.clear()
    assert signal.getsignal(signal.SIGALRM) == before and signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert written[0].startswith("\r\x1b[K") and len(written[0]) < 45 and "\x1b[2J" not in written[0]
    assert written[-1] == "\r\x1b[K" and len(written) == 2
    display.clear()
    assert len(written) == 2, "what is clear is not cleared again"


@pytest.mark.parametrize(("switches", "is_live", "shown"), [
    ({}, False, True), ({"quiet": True}, True, False), ({"json": True}, False, True), ({"json": True}, True, True),
])  # fmt: skip
def test_who_sees_it(switches, is_live, shown):
    class Session:
        def show_progress(self, *state):
            seen.append(state)

    seen: list[object] = []
    session = Session()
    session.is_live = is_live
    Request(load_command("bench"), (), switches, session).show_progress("measuring", 1, 2)
    assert bool(seen) == shown


SLOW_ON_TERMINAL = """
from gpuready.commands import check
def slow(request):
    request.show_progress("measuring", 3, 12)
    time.sleep(2.5)
    return check.Result.from_text("done\\n")
check.CHECK = check.CHECK.replace(run=slow); check.COMMANDS = (check.CHECK,)
"""


def test_the_line_ticks_while_a_step_takes_long_and_is_gone_before_the_answer():
    main, terminal = pty.openpty()
    process = start("check", body=SLOW_ON_TERMINAL, stdout=terminal, stderr=terminal)
    os.close(terminal)
    text = b""
    try:
        while piece := os.read(main, 4096):
            text += piece
    except OSError:
        pass  # the terminal is closed
    assert process.wait(60) == 0
    assert b"measuring: 3 of 12 (25 %)" in text and re.search(rb"0:0[1-9], about", text)
    assert text.endswith(b"\r\x1b[Kdone\r\n")


# -- Ctrl-C ----------------------------------------------------------------------------------------------------


def test_an_interrupt_says_what_is_left():
    body = """
from gpuready.system.process.termination import note_interrupt
def interrupted(*a, **k):
    error = KeyboardInterrupt()
    note_interrupt(error, "the unfinished environment was removed")
    raise error
fake.check_machine = interrupted
"""
    said = "gpuready: interrupted: the unfinished environment was removed\n"
    assert run("check", body=body) == (130, "", said)
    code, out, err = run("check", "--json", body=body)
    assert (code, err) == (130, said)
    assert json.loads(out)["error"] == {
        "kind": "interrupted", "message": "interrupted: the unfinished environment was removed", "exit": 130,
    }  # fmt: skip


def test_the_first_note_stays_and_errors_take_none():
    error = KeyboardInterrupt()
    note_interrupt(error, "first")
    note_interrupt(error, "second")
    assert str(error) == "first"
    failure = ValueError()
    note_interrupt(failure, "text")
    assert str(failure) == ""


# -- errors as JSON ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "kind", "part"),
    [
        (["check", "--jso", "--json"], "refused", "has no flag '--jso'"),
        (["chekc", "--json"], "refused", "the nearest is check"),
        (["fit", "no-such-model", "--json"], "refused", "no-such-model"),
        (["check", "trl", "--on", "/none.json", "--json"], "refused", "/none.json does not exist"),
        (["check", "trl", "--on", "/none.json", "--format", "json"], "refused", "/none.json does not exist"),
        (["plan", "--format=json"], "refused", "takes FRAMEWORK"),
    ],
)
def test_an_error_is_one_object_on_stdout_and_one_sentence_on_stderr(argv, kind, part, capsys):
    assert run_command_line(argv) == 2
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert set(document) == {"schema", "gpuready", "error"}
    assert document["error"]["kind"] == kind and document["error"]["exit"] == 2
    assert part in document["error"]["message"] and said.err == f"gpuready: {document['error']['message']}\n"


def test_without_json_stdout_stays_empty(capsys):
    assert run_command_line(["check", "--format", "jsn"]) == 2
    assert run_command_line(["run", "--nope", "--", "train.py", "--json"]) == 2, "the script's own word"
    assert run_command_line(["run", "--nope", "train.py", "--json"]) == 2
    assert capsys.readouterr().out == ""


def test_a_crash_and_a_lack_of_time_are_objects_too():
    code, out, _ = run("check", "--json", body="def bad(*a, **k): raise RuntimeError('odd')\nfake.check_machine = bad")
    assert code == 2 and json.loads(out)["error"]["kind"] == "failed"
    code, out, _ = run("check", "--json", body="def bad(*a, **k): raise TimeoutError('NVML')\nfake.check_machine = bad")
    assert code == 124 and json.loads(out)["error"] == {"kind": "timeout", "message": "out of time: NVML", "exit": 124}


# -- another word ------------------------------------------------------------------------------------------------


def test_doctor_is_a_word_for_check():
    assert parse_command_line(["doctor", "trl", "-q"]) == parse_command_line(["check", "trl", "-q"])
    assert parse_command_line(["help", "doctor"]) == parse_command_line(["help", "check"])
