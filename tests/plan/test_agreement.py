"""Check, plan, fix and a Dockerfile agree: 180 seeded draws, 500 with FUZZ=1. ``benchmarks/agreement_draws.py`` makes 20,000."""

from __future__ import annotations

import random

import pytest

from gpuready import workflow
from tests.plan import agreement
from tests.plan.stated import found_wrong
from tests.sampling import FUZZ


@pytest.mark.parametrize("seed", range(4 if FUZZ else 2))
def test_check_and_plan_agree_on_machines(seed):
    verdicts = set()
    for draw in agreement.draws(35 if FUZZ else 30, seed):
        verdict, found = agreement.contradictions(draw)
        verdicts.add(verdict)
        assert found == [], f"gpuready check {draw}"
    assert {"plan", "impossible"} <= verdicts


def test_check_and_plan_agree_on_unusual_machines():
    """Other vendors, Jetson, MIG, mixed GPUs, musl, Windows, macOS."""
    for draw in agreement.draws(140 if FUZZ else 40, 5, unusual=True):
        assert agreement.contradictions(draw)[1] == [], f"gpuready check {draw}"


def test_versions_for_a_platform_without_a_known_torch_are_not_clear():
    report = workflow.check_machine(["verl"], on="ascend 910b")[0]
    assert report.verdict == "undecided" and [row.code for row in report.undecided] == ["PKG041"]


def test_a_fix_leaves_nothing_and_names_nothing_that_is_installed():
    dice = random.Random(1)
    for _ in range(360 if FUZZ else 120):
        assert agreement.fix_contradictions(dice)[1] == []


@pytest.mark.parametrize(
    ("spec", "on", "what_if", "says"),
    [
        ("vllm", "h100", {"driver": "550.54.15"}, "loads the runtime of CUDA 13"),
        ("transformers", "h100", {"torch": "2.13.0+cu126", "python-version": "3.9"}, "Python"),
    ],
)
def test_a_described_machine_that_nothing_fits_is_not_clear(spec, on, what_if, says):
    """Each value is fine alone; together no versions fit, and check says what plan says."""
    report = workflow.check_machine([spec], on=on, what_if=what_if)[0]
    texts = [f.says for f in report.findings if f.severity == "error"]
    assert report.verdict == "not-ready" and any(says in text for text in texts), texts
    assert not [f for f in workflow.check_machine([spec], on=on)[0].findings if f.code == "PKG041"]


def test_what_does_not_fit_is_shown_as_it_was_stated():
    """The evidence is the driver that was named beside the one that is needed, and the next command can be typed."""
    report = workflow.check_machine(["vllm"], on="h100", what_if={"driver": "550.54.15"})[0]
    found = next(f for f in report.findings if f.code == "PKG041")
    assert [(fact.key, fact.value) for fact in found.found] == [("driver.version", "550.54.15")]
    assert "gpuready plan vllm" in found.fix[0].does


@pytest.mark.parametrize(
    ("spec", "on", "what_if"),
    [
        ("vllm==0.8.5", "p100", {}),
        ("sglang==0.4.9", "l4", {"os": "windows11"}),
        ("sglang==0.4.9", "a10", {"os": "ubuntu18.04"}),
        ("trl==1.9.2", "a100", {"python-version": "3.9"}),
        ("transformers==4.36.2", "a100", {"python-version": "3.14"}),
        ("llama-factory==0.9.4", "a100", {"python-version": "3.10"}),
        ("vllm==0.10.1", "h100", {"driver": "520.61.05"}),
        ("transformers==5.20.0", "a100", {"torch": "2.5.1+cu124"}),
    ],
)
def test_what_a_release_itself_forbids_is_an_error(spec, on, what_if):
    """A version without a contract is judged by its own metadata, wheels and oldest GPU, and fits elsewhere."""
    assert found_wrong(workflow.check_machine([spec], on=on, what_if=what_if)[0]) == "not-ready"
    assert found_wrong(workflow.check_machine([spec], on="h100")[0]) == "clear"


@pytest.mark.parametrize("spec", ["vllm==99.0", "transformers==6.99.0", "vllm==0.6.9"])
def test_a_release_that_is_not_known_is_not_clear(spec):
    report = workflow.check_machine([spec], on="h100")[0]
    assert report.verdict == "undecided"
    assert "is not among its releases" in report.undecided[0].missing[0].gap


def test_a_system_without_glibc_has_no_torch():
    report = workflow.check_machine(["transformers"], on="h100", what_if={"os": "alpine3.20"})[0]
    assert report.verdict == "not-ready" and "glibc" in report.findings[0].says


def test_an_old_python_that_torch_has_had_wheels_for_is_tried():
    report = workflow.check_machine(["transformers==4.41.2"], on="a100", what_if={"python-version": "3.8"})[0]
    assert not [f for f in report.findings if f.severity == "error"]


@pytest.mark.parametrize(
    ("spec", "what_if", "verdict"),
    [
        ("vllm==0.11.2", {"torch": "2.8.0+cu128"}, "not-ready"),
        ("vllm==0.10.2", {"torch": "2.8.0+cu128"}, "clear"),
        ("vllm==0.9.2", {"python-version": "3.13"}, "not-ready"),
        ("sglang==0.5.5", {"python-version": "3.14"}, "not-ready"),
        ("sglang==0.5.12", {"os": "ubuntu20.04"}, "not-ready"),  # wheels for glibc 2.34, and no source
        ("sglang==0.5.12", {"os": "ubuntu22.04"}, "clear"),
        ("vllm==0.20.0", {"os": "ubuntu18.04"}, "not-ready"),  # by its torch
        ("transformers==4.57.0", {}, "clear"),  # withdrawn: an exact pin takes it
        ("transformers==4.57.99", {}, "undecided"),
    ],
)
def test_a_version_without_a_contract_has_the_torch_and_the_python_of_the_catalogue(spec, what_if, verdict):
    assert found_wrong(workflow.check_machine([spec], on="h100", what_if=what_if)[0]) == verdict
