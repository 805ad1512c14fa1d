"""Where a framework's wheels are for CUDA alone, a plan for ROCm is the image of its project."""

from __future__ import annotations

from functools import cache

import pytest

from gpuready import workflow
from gpuready.render.files import render_plan_file
from gpuready.workflow.plan import plan_frameworks
from tests.plan.stated import found_wrong


@pytest.mark.parametrize(
    ("spec", "on", "image"),
    [
        ("vllm", "mi300x", "vllm/vllm-openai-rocm:latest"),
        ("vllm==0.18.0", "mi250x", "vllm/vllm-openai-rocm:v0.18.0"),
        ("vllm==0.18", "rx9070xt", "vllm/vllm-openai-rocm:v0.18.1"),
        ("sglang", "mi300x", "lmsysorg/sglang:v0.5.12-rocm720-mi30x"),
        ("sglang==0.5.9", "mi355x", "lmsysorg/sglang:v0.5.9-rocm720-mi35x"),
    ],
)
def test_a_plan_for_rocm_is_the_image_of_the_project_and_check_agrees(spec, on, image):
    plan = plan_frameworks([spec], on=on, resolve=False).plans[0]
    assert (plan.verdict, plan.image, plan.torch, plan.lock) == ("plan", image, "", ())
    assert plan.steps[-1].run[-1] == image
    assert found_wrong(workflow.check_machine([spec], on=on)[0]) == "clear"


@pytest.mark.parametrize(
    ("spec", "on", "what_if", "verdict"),
    [
        ("vllm", "mi100", {}, "undecided"),
        ("vllm==0.11.0", "mi300x", {}, "undecided"),
        ("sglang==0.5.23", "mi300x", {}, "undecided"),
        ("sglang", "mi250x", {}, "undecided"),
        ("vllm", "mi300x", {"torch": "2.13.0"}, "undecided"),
        ("vllm", "mi300x", {"os": "windows11"}, "not-ready"),
    ],
)
def test_where_no_image_of_the_project_serves_nothing_is_promised(spec, on, what_if, verdict):
    assert found_wrong(workflow.check_machine([spec], on=on, what_if=what_if)[0]) == verdict
    assert plan_frameworks([spec], on=on, what_if=what_if, resolve=False).verdict == "impossible"


def test_an_image_of_another_version_is_offered_where_the_asked_one_has_none():
    plan = plan_frameworks(["sglang==0.5.23"], on="mi300x", resolve=False).plans[0]
    assert "sglang on the default index is for CUDA" in plan.conflicts[0].says
    assert plan.opens[0].run[-1] == "lmsysorg/sglang:v0.5.12-rocm720-mi30x"


def test_a_plan_that_is_an_image_stands_apart_and_writes_no_file():
    result = plan_frameworks(["vllm", "transformers"], on="mi300x", resolve=False)
    assert [plan.is_image_alone for plan in result.plans] == [True, False]
    assert len(result.environments) == 2
    with pytest.raises(ValueError, match="comes as the image vllm/vllm-openai-rocm:latest"):
        render_plan_file(result.plans[0], "conda")


@pytest.mark.parametrize(
    ("on", "torch", "version", "build", "verdict"),
    [
        ("mi300x", "2.13.0", "2.13.0+rocm7.2", "rocm", "clear"),
        ("mi300x", "2.8.0+rocm6.4", "2.8.0+rocm6.4", "rocm", "clear"),
        ("mi300x", "2.13.0+cu130", "2.13.0+cu130", "cuda", "not-ready"),
        ("h100", "2.8.0+rocm6.4", "2.8.0+rocm6.4", "rocm", "not-ready"),
        ("m3max", "2.13.0", "2.13.0", "cpu", "clear"),
        ("b580", "2.13.0+xpu", "2.13.0+xpu", "xpu", "undecided"),
    ],
)
def test_a_stated_torch_is_the_build_of_the_platform(on, torch, version, build, verdict):
    report = workflow.check_machine(["transformers"], on=on, what_if={"torch": torch})[0]
    stated = {fact.key: fact.value for fact in report.facts}
    assert (stated["package.torch"], stated["torch.build"], found_wrong(report)) == (version, build, verdict)


@pytest.mark.parametrize(
    ("spec", "on", "what_if", "wants", "verdict"),
    [
        ("transformers==4.57.3", "mi300x", {}, None, "clear"),
        ("transformers==4.46.3", "m3max", {}, None, "clear"),
        ("transformers==5.1.0", "h100", {}, "cpu", "clear"),
        ("transformers==4.57.3", "b580", {}, None, "undecided"),
        ("vllm", "b580", {}, None, "undecided"),
        ("sglang", "910b", {}, None, "undecided"),
        ("sglang", "gaudi3", {}, None, "not-ready"),
        ("vllm", "h100", {}, "cpu", "not-ready"),
        ("transformers", "h100", {"torch": "2.8.0+cu128"}, "cpu", "clear"),
        ("transformers", "h100", {"torch": "2.8.0+cpu"}, None, "not-ready"),
    ],
)
def test_what_a_framework_is_for_is_not_taken_from_one_line_alone(spec, on, what_if, wants, verdict):
    """A page may say of its line that it is for CUDA; a build for CUDA computes on a CPU too."""
    assert found_wrong(workflow.check_machine([spec], on=on, what_if=what_if, wants=wants)[0]) == verdict
    planned = plan_frameworks([spec], on=on, what_if=what_if, wants=wants, resolve=False).verdict
    assert planned == ("plan" if verdict == "clear" else "impossible")


@cache
def plan_newest(framework: str, system: str) -> str:
    return plan_frameworks([framework], on="rtx4090", what_if={"os": system}, resolve=False).verdict


@pytest.mark.parametrize(
    ("spec", "what_if", "verdict"),
    [
        ("axolotl==0.20.0", {"os": "windows11"}, "not-ready"),  # between two lines that both leave Windows out
        ("axolotl==0.9.2", {"os": "windows11"}, "not-ready"),
        ("axolotl==0.20.0", {"os": "wsl"}, "clear"),
        ("colossalai==0.4.9", {"os": "windows11"}, "not-ready"),
        ("transformers==4.57.3", {"os": "windows11"}, "clear"),
    ],
)
def test_a_system_that_every_line_leaves_out_is_left_out_by_the_versions_between(spec, what_if, verdict):
    assert found_wrong(workflow.check_machine([spec], on="rtx4090", what_if=what_if)[0]) == verdict
    assert plan_newest(spec.partition("==")[0], what_if["os"]) == ("plan" if verdict == "clear" else "impossible")


@pytest.mark.parametrize(
    ("spec", "torch"), [("verl", "+rocm7.2"), ("colossalai", "2.5.1+rocm6.2"), ("transformers==4.30.2", "+rocm")]
)
def test_releases_that_pin_no_torch_or_an_older_one_have_builds_for_rocm(spec, torch):
    plan = plan_frameworks([spec], on="mi300x", resolve=False).plans[0]
    assert plan.verdict == "plan" and torch in plan.torch
    assert found_wrong(workflow.check_machine([spec], on="mi300x")[0]) == "clear"


@pytest.mark.parametrize(
    ("on", "torch", "verdict"),
    [
        ("mi355x", "2.8.0+rocm6.4", "not-ready"),
        ("mi300x", "2.8.0+rocm6.4", "clear"),
        ("mi355x", "2.13.0+rocm7.2", "clear"),
    ],
)
def test_a_torch_of_a_rocm_before_the_gpu_does_not_fit(on, torch, verdict):
    assert found_wrong(workflow.check_machine(["transformers"], on=on, what_if={"torch": torch})[0]) == verdict
    planned = plan_frameworks(["transformers"], on=on, what_if={"torch": torch}, resolve=False).verdict
    assert planned == ("plan" if verdict == "clear" else "impossible")


@pytest.mark.parametrize(("spec", "arch"), [("vllm==99.0.0", "x86_64"), ("vllm==0.20.0", "aarch64")])
def test_no_image_is_made_up_for_a_release_or_a_machine_that_has_none(spec, arch):
    found = plan_frameworks([spec], on="mi300x", what_if={"arch": arch}, resolve=False).plans[0]
    assert found.verdict == "impossible" and not found.image
