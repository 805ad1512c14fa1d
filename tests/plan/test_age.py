"""An old release is planned with the torch and the packages of its time."""

from __future__ import annotations

from gpuready.contracts.catalogued_release import contract_from_metadata
from gpuready.plan.choose import choose_plan
from gpuready.plan.platform import PlanRequest
from gpuready.workflow import machine_facts


def plan(released, on="rtx3090"):
    facts = machine_facts.start_probing(on, None, {}, None)[0]()
    contract = contract_from_metadata("old-tts", "0.22.0", ["torch>=2.1", "transformers>=4.33"])
    return choose_plan(facts, [contract.replace(released=released)], PlanRequest())


def test_a_release_of_2023_gets_the_torch_and_the_days_of_then():
    found = plan("2023-12-12")
    assert found.torch.startswith("2.2.") and found.options["until"] == "2024-03-23"
    assert any("of that time" in note for note in found.notes)
    assert any("--exclude-newer" in step.run and "2024-03-23" in step.run for step in found.steps)


def test_a_gpu_that_is_newer_than_the_release_gets_the_first_torch_for_it():
    found = plan("2023-12-12", "b200")
    assert found.torch.startswith("2.7.0") and found.options["until"] > "2025-04"
    assert any("not tested together" in note for note in found.notes)


def test_a_release_of_this_year_and_one_without_a_day_get_the_newest():
    assert plan("2026-09-01").torch == plan("").torch and "until" not in plan("").options
