"""The toolkit, torch and the tools of a build, by their versions."""

from __future__ import annotations

import pytest

from gpuready.model import Finding, UnknownFactError
from tests.rules.builds import BUILDS
from tests.rules.worlds import H100, contract, judged, need

# -- BLD001, BLD002 -----------------------------------------------------------------------------------


def tools(toolkit, torch, **more):
    return H100 | {"toolkit.version": toolkit, "torch.cuda": torch} | more


def test_another_major_is_an_error_only_where_something_is_built():
    assert judged("BLD001", tools("11.8", "12.8", **BUILDS)).severity == "error"
    idle = judged("BLD001", tools("11.8", "12.8"))
    assert idle.severity == "info" and "11.8" in idle.says and "12.8" in idle.says


def test_a_contract_that_requires_a_toolkit_builds():
    required = contract(need("toolkit.version", ">=11.0"))
    assert judged("BLD001", tools("11.8", "12.8"), required).severity == "error"
    assert judged("BLD002", tools("12.4", "12.8"), required).severity == "warning"
    softer = contract(need("toolkit.version", ">=11.0", level="recommended"))
    assert judged("BLD001", tools("11.8", "12.8"), softer).severity == "info"
    elsewhere = contract(need("toolkit.version", ">=12.3", when="wants=deepgemm"))
    assert judged("BLD001", tools("11.8", "12.8"), elsewhere).severity == "info"


@pytest.mark.parametrize("toolkit, torch", [("12.8", "12.8"), ("12.8.93", "12.8"), (None, "12.8"), ("12.8", None)])
def test_nothing_differs(toolkit, torch):
    for code in ("BLD001", "BLD002"):
        assert judged(code, tools(toolkit, torch, **BUILDS)) is None


def test_cpu_torch_with_nvcc_is_no_mismatch():
    assert judged("BLD001", tools("12.8", None) | {"torch.build": "cpu"}) is None


def test_a_minor_is_told_only_where_something_is_built():
    assert judged("BLD002", tools("12.4", "12.8")) is None
    assert judged("BLD002", tools("12.4", "12.8", **BUILDS)).severity == "warning"
    assert judged("BLD001", tools("12.4", "12.8", **BUILDS)) is None
    assert judged("BLD002", tools("11.8", "12.8", **BUILDS)) is None


def test_a_toolkit_that_is_here_already_is_the_fix():
    others = ({"path": "/usr/local/cuda-12.4", "version": "12.4"}, {"path": "/opt/cuda-12.8", "version": "12.8.1"})
    found = judged("BLD001", tools("11.8", "12.8", **BUILDS) | {"toolkit.others": others})
    assert [s.does for s in found.fix] == ["set CUDA_HOME=/opt/cuda-12.8, which is CUDA 12.8.1"]
    found = judged("BLD001", tools("11.8", "12.6", **BUILDS) | {"toolkit.others": others})
    assert "cuda-12.4" in found.fix[0].does, "another minor of the right major is better than none"
    nothing = judged("BLD001", tools("11.8", "13.0", **BUILDS) | {"toolkit.others": others})
    assert "install the CUDA toolkit 13.0" in nothing.fix[0].does


def test_unseen_it_is_undecided_where_it_matters_and_no_news_where_not():
    assert isinstance(judged("BLD001", tools("11.8", "12.8", **BUILDS), toolkit_version="denied"), UnknownFactError)
    assert judged("BLD001", tools("11.8", "12.8"), toolkit_version="denied") is None


# -- BLD003 -------------------------------------------------------------------------------------------


def test_tools_are_asked_for_only_under_their_condition():
    agreed = contract(need("toolkit.nvcc", "*", when="build"), need("compiler.gxx", "*", when="build"))
    bare = H100 | {"toolkit.nvcc": None, "compiler.gxx": None}
    assert judged("BLD003", bare, agreed) is None
    found = judged("BLD003", bare | BUILDS, agreed)
    assert found.says == "missing or too old for a build: nvcc and g++"
    assert len(found.fix) == 1 and "CUDA_HOME" in found.fix[0].does


def test_what_comes_as_a_package_is_installed():
    agreed = contract(need("compiler.ninja", "*"))
    step = judged("BLD003", H100 | {"compiler.ninja": None}, agreed).fix[0]
    assert step.run[-1] == "ninja" and step.safety == "ask"


def test_a_toolkit_that_is_too_old():
    agreed = contract(need("toolkit.version", ">=12.9", when="wants=deepgemm,gpu.capability>=10.0"))
    asked = H100 | {"job.wants": ("deepgemm",)}
    assert judged("BLD003", asked, agreed) is None
    assert isinstance(judged("BLD003", asked | {"gpu.capability": ("10.0",)}, agreed), Finding)
