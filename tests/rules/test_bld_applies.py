"""Whether anything is built at all, and what the rules on builds share."""

from __future__ import annotations

import pytest

from gpuready import rules
from gpuready.model import NOT_STATED, Fact, Facts, Finding, Requirement, UnknownFactError
from gpuready.rules import compilation
from tests.rules.builds import BUILDS, COLOSSAL, OPEN
from tests.rules.worlds import H100, contract, facts, judged, outcome

CODES = [f"BLD{n:03}" for n in range(4, 18)]


# -- when anything is said at all ---------------------------------------------------------------------


@pytest.mark.parametrize("code", CODES)
def test_a_healthy_machine_hears_nothing_whether_it_builds_or_not(code):
    for job in ({}, BUILDS, {"job.wants": ("torch-compile",)}):
        for agreed in (contract(), COLOSSAL, OPEN):
            assert judged(code, H100 | job, agreed) is None


WRONG = {
    "toolkit.version": "11.0",
    "compiler.gcc": None,
    "compiler.gxx": None,
    "compiler.ninja": None,
    "python.headers": False,
    "tmp.exists": False,
    "host.cores_usable": 512,
    "memory.available": 10**9,
    "env.TORCH_CUDA_ARCH_LIST": "3.5",
}


@pytest.mark.parametrize("code", [c for c in CODES if c not in ("BLD007", "BLD015", "BLD016", "BLD017")])
def test_where_nothing_is_built_nothing_is_wrong(code):
    assert judged(code, H100 | WRONG) is None
    assert judged(code, H100 | WRONG | {"job.wants": ("bf16",)}) is None


@pytest.mark.parametrize("code", CODES)
def test_a_contract_for_another_platform_hears_nothing(code):
    if code != "BLD015":
        wrong = H100 | WRONG | BUILDS | {"toolkit.path": "/gone", "toolkit.nvcc": None}
        assert judged(code, wrong, contract(platforms=["rocm"])) is None


def test_on_a_machine_of_another_platform_nvcc_is_not_asked_for():
    amd = H100 | BUILDS | {"platform.name": "rocm", "toolkit.path": None, "toolkit.version": None}
    both = contract(platforms=["cuda", "rocm"])
    assert judged("BLD006", amd, both) is None
    assert isinstance(judged("BLD006", amd | {"platform.name": "cuda"}, both), Finding)


def test_a_build_is_asked_for_by_the_job_or_by_the_variable_of_the_framework():
    assert compilation.build_requested(facts(BUILDS), contract())
    assert compilation.build_requested(facts({"env.BUILD_EXT": "1"}), OPEN)
    assert not compilation.build_requested(facts({"env.BUILD_EXT": "0"}), OPEN)
    assert not compilation.build_requested(facts({"env.BUILD_EXT": "yes"}), OPEN)
    assert not compilation.build_requested(facts({"env.BUILD_EXT": "1"}), contract()), (
        "who does not read it does not build"
    )
    with pytest.raises(UnknownFactError):
        compilation.build_requested(Facts([]), OPEN)


def test_a_required_toolkit_means_a_build_on_first_use():
    assert compilation.build_needed(facts(H100), COLOSSAL) and not compilation.build_needed(facts(H100), OPEN)
    assert compilation.build_severity(facts(H100), COLOSSAL) == "warning"
    assert compilation.build_severity(facts(H100 | BUILDS), COLOSSAL) == "error"


def test_an_imagined_machine_has_the_variables_that_are_stated_and_no_others():
    stated = Facts([Fact("env.MAX_JOBS", "4")], "", NOT_STATED)
    assert (
        compilation.read_build_variable(stated, "MAX_JOBS") == "4"
        and compilation.read_build_variable(stated, "BUILD_EXT") is None
    )
    with pytest.raises(UnknownFactError):
        compilation.read_build_variable(Facts([]), "BUILD_EXT")
    keys = ("gpu.count", "gpu.visible", "gpu.name")
    card = [*(Fact(key, H100[key]) for key in keys), Fact("gpu.capability", ("12.0",)), Fact("job.wants", ("build",))]
    tools = [Fact("toolkit.version", "12.4"), Fact("torch.arch", ("sm_90", "sm_120"))]
    imagined = Facts([*card, *tools], "rtx5090", NOT_STATED)
    assert isinstance(outcome(rules.load_rule("BLD004"), imagined, contract()), Finding)


# -- the shared judgement -----------------------------------------------------------------------------


def test_a_contract_names_its_variables():
    assert compilation.find_contract_variable(COLOSSAL, "BUILD_EXT").cite == "setup.py:16"
    assert compilation.find_contract_variable(contract(), "BUILD_EXT") is None


def test_another_toolkit_is_one_with_a_compiler_and_of_the_right_major():
    rows = (
        {"path": "/usr/local/cuda-12.8", "version": "12.8", "nvcc": "/usr/local/cuda-12.8/bin/nvcc"},
        {"path": "/a", "version": None, "nvcc": "/a/bin/nvcc"},
        {"path": "/b", "version": "11.8", "nvcc": "/b/bin/nvcc"},
        {"path": "/c", "version": "12.4", "nvcc": "/c/bin/nvcc"},
    )
    known = facts(H100 | {"toolkit.others": rows, "toolkit.path": "/usr/local/cuda-12.8"})
    assert compilation.find_other_toolkit(known) == "/b" and compilation.find_other_toolkit(known, "12.6") == "/c"
    assert compilation.find_other_toolkit(known, "13.0") is None and compilation.find_other_toolkit(facts({})) is None


def test_needs_are_cited():
    for code in ("BLD005", "BLD010"):
        values = H100 | BUILDS | {"toolkit.version": "12.1", "env.TORCH_CUDA_ARCH_LIST": "12.0"}
        found = judged(code, values)
        assert all(isinstance(one, Requirement) and one.cite for one in found.needs)
