"""The screen of `gpuready plan --fix`."""

from __future__ import annotations

import re

import pytest

from gpuready.model import Fact, FixStep, Requirement
from gpuready.model.plan import Plan, PlanAlternative, PlanConflict, PlanReason
from gpuready.render import plan as render
from gpuready.render.layout import Screen, display_width
from gpuready.render.plan import render_fix_plan_screen
from tests.render.machines import HOSTILE

PLAN = Plan(
    "axolotl", "0.21", "plan", machine="gpu-07", python="3.12.3", torch="2.14.1+cu126",
    steps=(
        FixStep("install torch 2.14.1 built for cu126", ("uv", "pip", "install", "torch==2.14.1+cu126"), "ask", note="no root needed"),
        FixStep("set A=1", (), "safe", note="in the shell that starts the job"),
        FixStep("start the container with its GPUs: docker run --gpus all and more words than fit", (), "manual", note="outside the container"),
    ),
    because=(
        PlanReason("DRV001", "step 1 fixes DRV001: the driver is older than the torch wheel needs", "", 1, "fixes"),
        PlanReason("PKG019", "step 1 prevents PKG019: made for another torch", "", 1, "prevents"),
        PlanReason("SYS015", "step 2 fixes SYS015: set to a value that axolotl does not accept", "", 2, "fixes"),
        PlanReason("GPU001", "step 3 should fix GPU001: no NVIDIA GPU found", "", 3, "should fix"),
    ),
    notes=("nobody can tell beforehand",), options={"fix": True}, catalog="2026-11-15",
)  # fmt: skip
IMPOSSIBLE = PLAN.replace(
    verdict="impossible",
    conflicts=(
        PlanConflict("GPU005 cannot be fixed here: too old", (Fact("gpu.capability", ("7.0",), "NVML"),), about="GPU005", needs=
                 (Requirement("gpu.capability", ">=8.0", cite="README:1"),)),
    ),
    opens=(PlanAlternative("gpu", "use GPUs of compute capability 8.0", "fixes GPU005", about="GPU005"),),
)  # fmt: skip


def test_each_step_has_its_command_and_its_findings():
    text = render_fix_plan_screen(PLAN, verbose=True)
    first, second, third = re.split(r"\n  [123]  ", text)[1:]
    assert "asks first" in first and "$ uv pip install torch==2.14.1+cu126" in first
    assert "fixes DRV001, prevents PKG019" in first and "SYS015" not in first
    assert "safe\n" in second and "fixes SYS015" in second
    assert "by hand" in third and "outside the container" in third and "should fix GPU001" in third
    assert text.endswith("do it:        gpuready fix axolotl\ncheck again:  gpuready check axolotl\n")
    assert (
        text.startswith("fix: 3 steps for DRV001, SYS015, GPU001 ")
        and "  nothing was changed; afterwards torch" in text
    )


def test_without_v_a_step_names_only_codes():
    text = render_fix_plan_screen(PLAN)
    assert "     fixes DRV001, prevents PKG019\n" in text and "older than the torch wheel" not in text
    assert text.endswith("details:      gpuready plan axolotl --fix -v\n")
    elsewhere = PLAN.replace(options={"fix": True, "on": "m.json"})
    assert "gpuready fix" not in render_fix_plan_screen(elsewhere), "a recorded machine cannot be changed from here"


def test_what_stays_is_named_and_the_rest_still_told():
    text = render_fix_plan_screen(IMPOSSIBLE)
    assert "not possible: GPU005 cannot be fixed here" in text and "gpu.capability  >= 8.0" in text
    assert "elsewhere: use GPUs of compute capability 8.0" in text and "1  install torch" in text
    assert "not possible: GPU005 would stay" in text


def test_nothing_to_do():
    nothing = PLAN.replace(steps=(), because=(), notes=())
    assert "nothing to change" in render_fix_plan_screen(nothing) and "check again" not in render_fix_plan_screen(
        nothing
    )


def test_the_screen_of_a_plan_is_this_one_where_it_mends():
    assert render.render_plan_screen(PLAN) == render_fix_plan_screen(PLAN)
    assert render.format_plan_line(PLAN) == "axolotl 0.21: 3 steps to fix it\n"


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("plan", [PLAN, IMPOSSIBLE], ids=["plan", "impossible"])
def test_lines_keep_to_the_width(plan, width):
    for line in render_fix_plan_screen(plan, Screen(width=width)).splitlines():
        assert display_width(line) <= width, line


def test_hostile_text_is_shown_not_sent():
    evil = PLAN.replace(
        machine=HOSTILE, steps=(FixStep(HOSTILE, ("echo", HOSTILE), "ask", note=HOSTILE),), notes=(HOSTILE,),
        because=(PlanReason("X", f"step 1 fixes X: {HOSTILE}", "", 1, "fixes"),),
    )  # fmt: skip
    for line in render_fix_plan_screen(evil).splitlines():
        assert line.isprintable()
