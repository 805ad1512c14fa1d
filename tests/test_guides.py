"""The numbers of the guides are those of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuready.fleet import outliers
from gpuready.launcher import hang_watch, peer_nodes, standstill, supervisor
from gpuready.rollcall import rank_register
from gpuready.runtime import launch

GUIDES = Path(__file__).parents[1] / "docs" / "how-to"
NUMBERS = {
    "launch": {"The start window is {:.0f} s": rank_register.WINDOW_SECONDS, "`seed={}` by default": launch.DEFAULT_SEED},
    "run": {
        "(state T) | {:.0f} s": hang_watch.STOPPED_SECONDS,
        "| holds the GIL | {:.0f} s": hang_watch.GIL_SECONDS,
        "where it may be read | {:.0f} s": hang_watch.KERNEL_SECONDS,
        "all ranks: nobody moves | {:.0f} s": standstill.STILL_SECONDS,
        "while others wait or spin | {:.0f} s": standstill.OUTSIDE_SECONDS,
        "an endless loop | {:.0f} s": standstill.ALONE_SECONDS,
        "an evaluation, a checkpoint | {:.0f} min": standstill.ROAMING_SECONDS / 60,
        "a pulled cable | {:.0f} s": hang_watch.SILENT_SECONDS,
        "under torchrun {:.0f} s | certain": peer_nodes.SILENT_SECONDS,
        "by its processor or its disk | {:.0f} s": hang_watch.SLOW_SECONDS,
        "waits for {:.0f} minutes": hang_watch.KILL_SECONDS / 60,
        "gets {:.0f} s for its exit handlers": supervisor.CLEAN_UP_SECONDS,
        "ranks get the signal and {:.0f} s": supervisor.INTERRUPT_GRACE_SECONDS,
    },
    "fleet": {"The test looks for a loss of {:.0f} %": 100 * outliers.LOSS_SOUGHT, "if it is {:.0f} % below the best": 100 * outliers.FEW_LOSS},
}  # fmt: skip
"""Numbers of the guides, and where the code has them."""


@pytest.mark.parametrize("guide", NUMBERS)
def test_the_numbers_of_a_guide_are_those_of_the_code(guide):
    text = " ".join((GUIDES / f"{guide}.md").read_text().split())
    wrong = [said.format(value) for said, value in NUMBERS[guide].items() if said.format(value) not in text]
    assert not wrong, wrong
