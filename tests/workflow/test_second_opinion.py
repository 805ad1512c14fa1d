"""diagnose --ask: a program of the user's is asked only where no cause is found, and its answer is shown as its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import gpuready
from gpuready.commands.diagnose import DIAGNOSE
from gpuready.render.diagnosis import render_diagnosis_screen
from gpuready.workflow import second_opinion
from gpuready.workflow.diagnose import diagnose_logs

KEY = "hf_" + "abcdEFGHijklMNOPqrstUVWXyz0123456789"
QUOTE = "the frobnicator of node-7 went away after 12 beats"
LOG = f"""start with {KEY}
Traceback (most recent call last):
  File "/venv/lib/python3.12/site-packages/frob/engine.py", line 3, in beat
    call()
frob.FrobLostError: {QUOTE}
"""


def program(tmp_path: Path, body: str) -> str:
    """A real program that keeps its question beside itself."""
    path = tmp_path / "oracle.py"
    path.write_text(
        f"#!{sys.executable} -S\nimport sys\nq = sys.stdin.read()\nopen({str(path) + '.q'!r}, 'w').write(q)\n{body}\n"
    )
    os.chmod(path, 0o755)
    return str(path)


def asked(tmp_path: Path, body: str, log: str = LOG, **options):
    return diagnose_logs([[log.encode()]], look=False, ask=[program(tmp_path, body)], **options)


def test_an_answer_is_shown_as_its_own_and_changes_nothing(tmp_path):
    one = asked(tmp_path, f"print('The network, I think: {KEY}')")
    assert one.opinion.startswith("oracle.py: The network, I think: ") and KEY not in one.opinion
    assert one.replace(opinion="") == diagnose_logs([[LOG.encode()]], look=False)
    screen = render_diagnosis_screen(one)
    assert "opinion" in screen and "(not gpuready's) oracle.py: The network" in screen


def test_what_is_asked_is_shown_before_and_has_no_secret(tmp_path):
    shown: list[str] = []
    asked(tmp_path, "", show=shown.append)
    question = (tmp_path / "oracle.py.q").read_text()
    assert shown == [f"oracle.py is asked:\n{question}"]
    assert f"frob.FrobLostError: {QUOTE} (/venv/lib/python3.12/site-packages/frob/engine.py:3)" in question
    assert KEY not in question and "start with" in question


def test_no_more_than_thirty_lines_are_sent(tmp_path):
    asked(tmp_path, "", "".join(f"line {i} of some output\n" for i in range(500)) + LOG)
    lines = (tmp_path / "oracle.py.q").read_text().partition("## Lines of the log\n")[2]
    assert len(lines.splitlines()) == 30 and QUOTE in lines


@pytest.mark.parametrize(
    ("body", "note"),
    [("", "wrote nothing"), ("sys.exit(4)", "ended with 4"), ("import time; time.sleep(600)", "no answer: deadline")],
)
def test_no_answer_is_one_sentence(tmp_path, monkeypatch, body, note):
    if "sleep" in body:
        monkeypatch.setattr(second_opinion, "SECONDS", 0.5)
    one, plain = asked(tmp_path, body), diagnose_logs([[LOG.encode()]], look=False)
    assert note in one.notes[-1] and not one.opinion
    assert one.replace(notes=()) == plain.replace(notes=())


def test_a_program_that_is_not_there():
    one = diagnose_logs([[LOG.encode()]], look=False, ask=["no-such-oracle"])
    assert one.notes[-1] == "no-such-oracle, which was asked, gave no answer: not found"


OWN = 'Traceback (most recent call last):\n  File "/home/me/train.py", line 3, in <module>\n    rows["labels"]\n'


@pytest.mark.parametrize(
    "log", ["step 1 loss 2.0\nstep 2 loss 1.9\nTraining completed.\n", f"{OWN}KeyError: 'labels'\n", ""]
)
def test_it_is_not_asked_where_the_log_has_an_answer_or_nothing(tmp_path, log):
    asked(tmp_path, "", log)
    assert not (tmp_path / "oracle.py.q").exists()


def test_only_the_command_line_and_python_offer_it():
    parameter = DIAGNOSE.parameters["ask"]
    assert parameter.cli and parameter.python and not parameter.mcp and not parameter.web


def test_python_takes_the_command_as_one_word(tmp_path):
    words = f"{program(tmp_path, 'print(sys.argv[1:])')} --model 'a b'"
    assert gpuready.diagnose(text=LOG, look=False, ask=words).data["opinion"] == "oracle.py: ['--model', 'a b']"


def test_a_command_that_is_none_is_refused():
    with pytest.raises(Exception, match="--ask needs a program"):
        gpuready.diagnose(text=LOG, look=False, ask="'")
