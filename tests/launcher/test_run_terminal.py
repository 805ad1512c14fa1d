"""`gpuready run` on a terminal: a status line for each node, and a terminal that is closed."""

from __future__ import annotations

from tests.launcher.stage import Terminal

LINES = "import time\nfor i in range(4): print('line', i, flush=True); time.sleep(1)\n"
SLEEPS = "import time\nprint('ready', flush=True)\ntime.sleep(300)\n"


def test_a_status_line_is_drawn_and_drawn_again(stage):
    terminal = Terminal(stage)
    stage.script(LINES)
    process = stage.start("--nproc", "2", "--no-preflight", "--", "train.py")
    drawn = terminal.read_all()
    assert stage.ended(process).code == 0, drawn
    assert drawn.count("2 of 2 ranks") >= 2 and "\x1b[1A\x1b[J" in drawn and drawn.count("line 3") == 2, drawn


def test_a_terminal_that_is_closed_ends_the_run_and_nothing_stays(stage):
    terminal = Terminal(stage)
    stage.script(SLEEPS)
    process = stage.start("--nproc", "2", "--no-preflight", "--", "train.py")
    for rank in (0, 1):
        stage.until("ready", rank)
    terminal.close()
    assert stage.ended(process).code == 129
