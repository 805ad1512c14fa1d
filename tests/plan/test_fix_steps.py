"""The steps of a fix: one that several findings ask for is listed once."""

from __future__ import annotations

from gpuready.model import FixStep
from gpuready.plan.change import FixChange
from gpuready.plan.fix import merge_fix_steps


def test_a_step_that_two_findings_have_is_listed_once():
    step = FixStep("use another GPU", (), "manual")
    other = FixStep("install kite", ("uv", "pip", "install", "kite"), "ask")
    first, second, third = (
        FixChange(step, 9, (("fact", "gpu.capability", "9.0"),), "GPU005"),
        FixChange(other, 1, (("package", "kite", "1"),), "PKG002"),
        FixChange(step, 9, (("fact", "gpu.capability", "9.0"),), "CAP001"),
    )
    assert merge_fix_steps((first, second, third)) == [(step, [first, third]), (other, [second])]
