"""The screen of what changed between two machines."""

from __future__ import annotations

import pytest

from gpuready.check.changes import FactChange, RuleFlip
from gpuready.model import Fact
from gpuready.render.facts import render_fact_changes
from gpuready.render.layout import Screen

NAMES = tuple(f"NAME_{number}" for number in range(30))


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ((*NAMES, "LANG"), "added LANG"),
        (NAMES[1:], "removed NAME_0"),
        ((*NAMES[1:], "LANG"), "added LANG; removed NAME_0"),
        ((), "and 22 more -> none"),
    ],
)
def test_of_a_long_list_only_what_differs(now, said):
    change = FactChange("env.names", Fact("env.names", NAMES, "here"), Fact("env.names", now, "here"))
    text = " ".join(render_fact_changes([change], Screen(200)).split())
    assert said in text and (said.startswith("and") or "NAME_7" not in text)


def test_outcomes_have_the_words_of_a_check():
    flips = (RuleFlip("DRV001", "holds", "undecided"), RuleFlip("DRV002", "", "error"))
    change = FactChange("driver.version", Fact("driver.version", "1", "x"), Fact("driver.version", "2", "x"), flips)
    text = render_fact_changes([change], Screen(80))
    assert "DRV001: passed -> can't tell" in text and "DRV002: does not apply -> error" in text
