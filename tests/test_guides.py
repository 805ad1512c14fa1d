"""Every block of the guides launch, run, slurm, ray and fleet has tests that hold what it promises (guide_promises.toml), and they are there."""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path

import pytest

from gpuready import rollcall
from gpuready.fleet import outliers
from gpuready.launcher import hang_watch, liveness, peer_nodes, standstill, supervisor
from gpuready.runtime import launch
from tests.guide_blocks import read_blocks

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent
PROMISES: dict[str, dict[str, list[str] | str]] = tomllib.loads((HERE / "guide_promises.toml").read_text())


@cache
def known_cases() -> set[str]:
    tables = [tomllib.loads((HERE / "faults" / name).read_text()) for name in ("cases.toml", "watched_cases.toml")]
    return {case["id"] for table in tables for case in table["case"]}


@cache
def list_tests(path: str) -> set[str]:
    return set(re.findall(r"^def (test_\w+)", (HERE / path).read_text(), re.M)) if (HERE / path).exists() else set()


@pytest.mark.parametrize("guide", PROMISES)
def test_every_block_is_held_by_tests(guide):
    missing = [block[:70] for block in read_blocks(guide) if not [n for n in PROMISES[guide] if block.startswith(n)]]
    assert not missing, missing


@pytest.mark.parametrize("guide", PROMISES)
def test_every_promise_is_still_in_its_guide(guide):
    gone = [name for name in PROMISES[guide] if not any(block.startswith(name) for block in read_blocks(guide))]
    assert not gone, gone


@pytest.mark.parametrize("guide", PROMISES)
def test_what_holds_a_promise_is_there(guide):
    wrong = []
    for name, holders in PROMISES[guide].items():
        for one in holders if isinstance(holders, list) else []:
            path, _, test = one.partition("::")
            wrong += [] if one in known_cases() or test in list_tests(path) else [(name, one)]
    assert not wrong, wrong


def test_the_five_guides_are_there_and_few_blocks_promise_nothing():
    assert list(PROMISES) == ["launch", "run", "slurm", "ray", "fleet"]
    blocks = [holders for guide in PROMISES.values() for holders in guide.values()]
    assert sum(isinstance(holders, str) for holders in blocks) <= 8 and len(blocks) >= 150


NUMBERS = {
    "launch": {"The start window is {:.0f} s": rollcall.WINDOW_SECONDS, "`seed={}` by default": launch.DEFAULT_SEED},
    "run": {
        "(state T) | {:.0f} s": liveness.STOPPED_SECONDS,
        "| holds the GIL | {:.0f} s": liveness.GIL_SECONDS,
        "where it may be read | {:.0f} s": liveness.KERNEL_SECONDS,
        "all ranks: nobody moves | {:.0f} s": standstill.STILL_SECONDS,
        "while others wait or spin | {:.0f} s": standstill.OUTSIDE_SECONDS,
        "an endless loop | {:.0f} s": standstill.ALONE_SECONDS,
        "an evaluation, a checkpoint | {:.0f} min": standstill.ROAMING_SECONDS / 60,
        "a pulled cable | {:.0f} s": liveness.SILENT_SECONDS,
        "under torchrun {:.0f} s | certain": peer_nodes.SILENT_SECONDS,
        "by its processor or its disk | {:.0f} s": liveness.SLOW_SECONDS,
        "waits for {:.0f} minutes": hang_watch.KILL_SECONDS / 60,
        "gets {:.0f} s to end by itself": supervisor.CLEAN_UP_SECONDS,
        "ranks get the signal and {:.0f} s": supervisor.INTERRUPT_GRACE_SECONDS,
    },
    "fleet": {"The test looks for a loss of {:.0f} %": 100 * outliers.LOSS_SOUGHT, "if it is {:.0f} % below the best": 100 * outliers.FEW_LOSS},
}  # fmt: skip
"""Numbers of the guides, and where the code has them."""


@pytest.mark.parametrize("guide", NUMBERS)
def test_the_numbers_of_a_guide_are_those_of_the_code(guide):
    text = " ".join(read_blocks(guide))
    wrong = [said.format(value) for said, value in NUMBERS[guide].items() if said.format(value) not in text]
    assert not wrong, wrong
