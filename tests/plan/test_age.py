"""An old release is planned with the torch and the packages of its time."""

from __future__ import annotations

from gpuready.contracts.catalogued_release import contract_from_metadata
from gpuready.contracts.pins import pin_exact_version
from gpuready.model import Facts
from gpuready.plan.choose import choose_plan, newest_known_minor
from gpuready.plan.platform import PlanRequest
from gpuready.plan.steps import make_plan_steps
from gpuready.workflow import machine_facts

CONTRACT = contract_from_metadata("old-tts", "0.22.0", ["torch>=2.1", "transformers>=4.33"])


def plan(released, on="rtx3090"):
    facts = machine_facts.start_probing(on, None, {}, None)[0]()
    return choose_plan(facts, [CONTRACT.replace(released=released)], PlanRequest())


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


def test_what_has_no_file_of_that_time_is_exempted_by_name_in_the_steps():
    found = plan("2023-12-12")
    steps = make_plan_steps(found.replace(options=found.options | {"ageless": ["late"]}), CONTRACT, Facts(()))
    words = next(step.run for step in steps if "--exclude-newer" in step.run)
    assert words[words.index("--exclude-newer-package") + 1] == "late=false"


def test_triton_is_planned_beside_the_torch_that_takes_it_and_an_old_glibc_has_a_name_that_uv_knows():
    facts = machine_facts.start_probing("h100", None, {}, None)[0]()
    contract = pin_exact_version(contract_from_metadata("triton", "3.9.0", ["torch"]), "3.9.0", None)
    assert choose_plan(facts, [contract], PlanRequest()).torch.startswith("2.15.")
    assert choose_plan(facts, [contract], PlanRequest(torch="2.14.1")).verdict == "impossible"
    assert [newest_known_minor(one) for one in ("2.12", "2.27", "2.28", "2.35", "2.43")] == [17, 17, 28, 35, 40]
