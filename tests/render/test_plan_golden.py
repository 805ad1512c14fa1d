"""The screens of plan, contract and explain, whole, at 60, 80 and 120 columns; ``--update-golden`` writes them anew."""

from __future__ import annotations

import pytest

from gpuready.model import Fact, FixStep, Requirement
from gpuready.model.plan import (
    KernelPlan,
    LockedPackage,
    Plan,
    PlanAlternative,
    PlanConflict,
    PlanReason,
    RejectedChoice,
)
from gpuready.render import contract, explain, plan
from gpuready.render.layout import Screen

from .planned import UNRESOLVED
from .test_golden import check_against, width
from .test_mending import IMPOSSIBLE as FIX_IMPOSSIBLE
from .test_mending import PLAN as FIX
from .test_pages import CONTRACT, REPORTED

SCREENS = {"narrow": Screen(width=60), "plain": Screen(), "wide": Screen(width=120)}
PATH = "/home/somebody/projects/training/.venv/bin/python"
POSSIBLE = UNRESOLVED.replace(
    machine="h100x8", platform="x86_64-manylinux_2_28", resolved="resolved", catalog="2026-11-15",
    options={"on": "h100x8", "wants": "fp8", "find-links": ["/srv/wheels of the lab"]},
    packages=UNRESOLVED.packages | {"torchvision": "0.28.0+cu126", "numpy": "2.3.1", "peft": "0.21.2"},
    lock=tuple(LockedPackage(name, "1.0") for name in ("torch", "transformers", "numpy")),
    kernels=(
        KernelPlan("flash-attn", "2.9.1", "build", "no wheel for torch 2.13 and CUDA 12.6", seconds=(1200, 2400)),
        KernelPlan("bitsandbytes", "0.50.2", "index", "on PyPI", steps=(FixStep("install it"),)),
    ),
    steps=(*UNRESOLVED.steps, FixStep("check it", ("gpuready", "check", "transformers", "--python", PATH), "safe")),
    because=(PlanReason("torch", "2.13.0: the newest that fits", "transformers 5.22.2 METADATA:11"),),
    fell=(
        RejectedChoice("torch 2.15.0+cu130", "outside < 2.15"),
        RejectedChoice("torch 2.14.1+cu130", "older than 2.15"),
    ),
    notes=("the wheels of xformers are for CUDA 12 alone",),
)  # fmt: skip
NOT_POSSIBLE = Plan(
    "vllm", "0.32", "impossible", machine="v100x2", catalog="2026-11-15",
    conflicts=(
        PlanConflict("vllm 0.32 needs compute capability >= 7.5, and this machine has 7.0",
                     (Fact("gpu.capability", ("7.0", "7.0"), "catalogue: Tesla V100-SXM2-16GB"),),
                     (Requirement("gpu.capability", ">=7.5", cite="docs/getting_started/installation/gpu.md:9"),)),
    ),
    opens=(
        PlanAlternative("gpu", "use a GPU such as NVIDIA A40 (8.6)", "vllm 0.32 with torch 2.13.0+cu130 and Python 3.13",
                        ("gpuready", "plan", "vllm", "--on", "a40x2")),
    ),
)  # fmt: skip
DRAWN = {
    "plan": lambda screen: plan.render_plan_screen(POSSIBLE, screen),
    "plan_verbose": lambda screen: plan.render_plan_screen(POSSIBLE, screen, verbose=True),
    "plan_impossible": lambda screen: plan.render_plan_screen(NOT_POSSIBLE, screen),
    "plan_fix": lambda screen: plan.render_plan_screen(FIX, screen),
    "plan_fix_verbose": lambda screen: plan.render_plan_screen(FIX, screen, verbose=True),
    "plan_fix_impossible": lambda screen: plan.render_plan_screen(FIX_IMPOSSIBLE, screen),
    "contract": lambda screen: contract.render_contract_screen(CONTRACT, screen),
    "explain": lambda screen: explain.render_rule_page(REPORTED, screen),
}


@pytest.mark.parametrize("kind", SCREENS)
@pytest.mark.parametrize("name", DRAWN)
def test_the_screen_is_the_golden_one(name, kind, request):
    shown = DRAWN[name](SCREENS[kind])
    assert all(width(line) <= SCREENS[kind].width and line == line.rstrip() for line in shown.splitlines())
    check_against(f"{name}.{kind}.txt", shown, request)


def test_the_answer_comes_first():
    assert DRAWN["plan"](Screen()).startswith("plan: torch 2.13.0+cu126, Python 3.12 ")
    assert DRAWN["plan_impossible"](Screen()).startswith("not possible: no known versions fit ")
    assert DRAWN["plan_fix"](Screen()).startswith("fix: 3 steps for DRV001, SYS015, GPU001 ")


def test_reasons_and_rejected_choices_are_details():
    brief, loud = DRAWN["plan"](Screen()), DRAWN["plan_verbose"](Screen())
    for detail in ("METADATA:11", "not chosen", "no wheel for torch 2.13", "catalogue of 2026-11-15", "manylinux"):
        assert detail not in brief and detail in loud
    assert "install it:  gpuready install transformers --on h100x8 --wants fp8 \\\n" in brief
    assert "             --find-links '/srv/wheels of the lab' -e .venv\n" in brief


def test_why_no_older_version_fits_is_in_the_details():
    older = tuple(PlanConflict(f"vllm 0.{minor} needs compute capability >= 7.5") for minor in (31, 30))
    several = NOT_POSSIBLE.replace(conflicts=(*NOT_POSSIBLE.conflicts, *older), options={"on": "v100x2"})
    short = plan.render_plan_screen(several, Screen())
    assert "vllm 0.31" not in short and "2 more conflicts (-v)" in short
    assert "details:  gpuready plan vllm --on v100x2 -v" in short and "$ gpuready plan vllm --on a40x2" in short
    assert "vllm 0.30" in plan.render_plan_screen(several, Screen(), verbose=True)
