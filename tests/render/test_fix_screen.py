"""The screens of `gpuready fix`."""

from __future__ import annotations

import pytest

from gpuready.model import Contract, Fact, Facts, Report
from gpuready.model.plan import FixItem, FixOutcome
from gpuready.model.report import UndecidedRule
from gpuready.render.fix import format_fix_line, render_fix_proposal, render_fix_screen
from gpuready.render.layout import Screen, display_width
from tests.render.machines import HOSTILE

ITEMS = (
    FixItem(1, "install torch 2.14.1 built for cu126", "gpuready", ("DRV001", "PKG003"), ("too old", "8 packages"),
            (("uv", "pip", "install", "--python", "/a b/bin/python", "torch==2.14.1+cu126"),), "gpuready fix --undo"),
    FixItem(2, "install driver 580 or newer", "you", ("DRV002",), ("the driver is older than the torch wheel needs",),
            (("sudo", "apt-get", "install", "nvidia-driver-580"), ("sudo", "reboot"))),
)  # fmt: skip
PLANNED = FixOutcome("dry-run", "axolotl 0.21", "/opt/venv", "venv", ITEMS)
DONE = PLANNED.replace(verdict="partly", items=(ITEMS[0].replace(state="applied"), ITEMS[1]), undo=("gpuready", "fix"))


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("outcome", [PLANNED, DONE], ids=["planned", "done"])
def test_no_line_is_too_wide(outcome, width):
    for text in (render_fix_screen(outcome, Screen(width)), render_fix_proposal(outcome, Screen(width))):
        assert all(display_width(line) <= width for line in text.splitlines()), text


def test_what_why_undo_and_who():
    text = render_fix_proposal(PLANNED, Screen(80))
    assert "DRV001: too old" in text and "undo  gpuready fix --undo" in text and "by gpuready" in text
    assert "by you" in text and "     $ sudo apt-get install nvidia-driver-580\n     $ sudo reboot" in text
    assert "'/a b/bin/python'" in text, "a path is quoted for the shell"


def test_what_was_done_and_what_is_for_the_person():
    text = render_fix_screen(DONE, Screen(80))
    assert text.startswith("partly fixed") and "done" in text and "$ sudo reboot" in text
    assert "uv pip install" not in text, "what gpuready ran is in -v"
    assert "uv pip install" in render_fix_screen(DONE, Screen(80), True)
    assert format_fix_line(DONE) == "partly fixed: 1 change made, nothing left\n"


def test_hostile_text_cannot_leave_its_line():
    wild = FixItem(1, HOSTILE, "you", (HOSTILE,), (HOSTILE,), ((HOSTILE,),), HOSTILE, HOSTILE)
    text = render_fix_screen(PLANNED.replace(items=(wild,), environment=HOSTILE, says=HOSTILE), Screen(80))
    assert "\x1b" not in text and "\x07" not in text


def test_what_could_not_be_checked_afterwards_is_not_called_fine():
    missing = (Fact("import.damage", None, "a test", gap="no answer within 8 s"),)
    open_rule = UndecidedRule("PKG042", "error", "Importing torch or the framework fails", missing)
    report = Report(Contract("axolotl", "0.21"), Facts([], "machine"), undecided=(open_rule,))
    assert report.verdict == "undecided"
    text = render_fix_screen(DONE.replace(verdict="fixed", report=report), Screen(80))
    assert "no problems found" not in text and "no error is left, and 1 check could not be made" in text


def test_a_long_change_is_continued_below_its_text():
    item = ITEMS[0].replace(does="make a new environment with Python 3.12 and install axolotl with its packages there")
    lines = render_fix_screen(PLANNED.replace(items=(item,)), Screen(80)).splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("  1  make"))
    assert lines[first].endswith("by gpuready") and lines[first + 1].startswith("     ") and "there" in lines[first + 1]
    assert "  environment  /opt/venv (venv)" in lines


def test_a_dry_run_with_nothing_to_change_says_so():
    assert render_fix_screen(PLANNED.replace(items=()), Screen(80)).startswith("nothing to fix ")
    assert render_fix_screen(PLANNED.replace(items=ITEMS[1:]), Screen(80)).startswith(
        "nothing that gpuready can change"
    )
