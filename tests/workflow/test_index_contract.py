"""What the files of a release on the index add to its contract."""

from __future__ import annotations

import pytest

from gpuready import contracts
from gpuready.apply.index_release import IndexRelease
from gpuready.model import NOT_STATED, Contract, Facts
from gpuready.workflow.index_contract import (
    ReleaseFinder,
    _need_own_cuda,
    _with_own_files,
    choose_package_contract,
    judge_by_index,
    list_older_releases,
)
from gpuready.workflow.plan import plan_frameworks
from gpuready.workflow.refusal import Refused


@pytest.mark.parametrize(
    ("line", "want"),
    [("nvidia-cutlass-dsl[cu13]==4.8.0", ">=13,<14"), ("cupy-cuda12x>=13", ">=12,<13"), ("x-cu13; extra == 'a'", "")],
)
def test_the_cuda_in_the_names_of_what_is_required(line, want):
    contract = _with_own_files(Contract("x", "1"), IndexRelease("x", "1", ("torch==2.14", line)))
    assert [need.want for need in contract.requirements_for("torch.cuda")] == ([want] if want else [])


def test_a_release_with_wheels_for_some_pythons_alone():
    contract = _with_own_files(
        Contract("x", "1"), IndexRelease("x", "1", pythons=("3.11", "3.12"), uploaded="2025-01-02")
    )
    assert contract.requirements_for("python.version")[0].want == "<3.13" and contract.released == "2025-01-02"


def test_a_release_without_requirements_keeps_its_own_gpus_and_wheels_beside_its_metadata():
    """vLLM 0.8.5 refuses a P100 and has no wheel for aarch64, which its metadata does not say."""
    release = IndexRelease("vllm", "0.8.5", ("torch==2.6.0",))
    (found,) = judge_by_index(Facts((), "here"), contracts.load_contract("vllm", "0.8.5"), lambda *words: release)
    wants = {need.key: need.want for need in found.needs if need.level == "required" and not need.when}
    assert (wants["gpu.capability"], wants["os.arch"], wants["package.torch"]) == (">=7.0", "x86_64", "==2.6.0")


def test_older_releases_of_a_package_are_looked_for_line_by_line():
    known, asked = ["0.0.35", "0.0.34", "0.0.33.post2", "0.0.33"], []

    def find(name, version, below=""):
        asked.append(below)
        left = known[known.index(version) :] if version else [one for one in known if one < below]
        return IndexRelease(name, left[0], ("torch",)) if left else None

    found = list_older_releases(Facts((), "here"), Contract("x", "0.0.35", distribution="x"), find)
    assert [one.version for one in found] == ["0.0.34", "0.0.33.post2"]
    assert [one for one in asked if one] == ["0.0.35", "0.0.34", "0.0.33"]


@pytest.mark.parametrize("name", ["apex", "detectron2"])
def test_what_comes_from_its_repository_alone_is_told_with_the_way_to_it(name):
    with pytest.raises(Refused, match=f"{name}.git`, with nvcc"):
        choose_package_contract(Facts((), "here"), name, None, ReleaseFinder())


@pytest.mark.parametrize(
    ("name", "version", "wanted"),
    [
        (
            "ctranslate2",
            "4.5.0",
            {
                "driver.version": ">=525.60.13",
                "gpu.capability": ">=5.0",
                "toolkit.version": "*",
                "cudnn.version": "==9.*",
            },
        ),
        ("ctranslate2", "4.8.5", {"driver.version": ">=525.60.13", "gpu.capability": ">=5.0", "toolkit.version": "*"}),
        ("cupy-cuda11x", "13.0", {"driver.version": ">=450.36.06", "gpu.capability": ">=3.5", "toolkit.version": "*"}),
        ("tomli", "2.0", {}),
    ],
)
def test_a_package_that_loads_cuda_without_torch_needs_its_driver_and_libraries(name, version, wanted):
    machine = Facts((), "here", NOT_STATED)
    found = _need_own_cuda(machine, Contract(name, version), IndexRelease(name, version), lambda *_: None)
    assert {need.key: need.want for need in found} == wanted
    on_machine = _need_own_cuda(
        Facts((), "here"), Contract(name, version), IndexRelease(name, version), lambda *_: None
    )
    assert {need.key for need in on_machine} == {*wanted} & {"driver.version", "gpu.capability"}, (
        "a real one has libraries that wheels bring"
    )


def test_the_cuda_of_a_wheel_that_names_none_is_that_of_the_catalogue():
    contract = _with_own_files(Contract("onnxruntime-gpu", "1.18.0"), IndexRelease("onnxruntime-gpu", "1.18.0"))
    assert [need.want for need in contract.requirements_for("torch.cuda")] == [">=11,<12"]


@pytest.mark.parametrize(
    ("extras", "wanted"),
    [
        (("cuda12",), {"driver.version": ">=525.60.13", "gpu.capability": ">=5.0"}),
        (("cuda13",), {"driver.version": ">=580.65.06", "gpu.capability": ">=7.5"}),
        (("cuda13-local",), {"driver.version": ">=580.65.06", "gpu.capability": ">=7.5", "toolkit.version": "*"}),
    ],
)
def test_the_extra_that_is_asked_for_says_which_cuda_a_package_has_and_whether_it_brings_it(extras, wanted):
    lines = ('jax-cuda12-plugin[with-cuda]; extra == "cuda12"', 'jax-cuda13-plugin[with-cuda]; extra == "cuda13"')
    release = IndexRelease("jax", "0.12", (*lines, 'jax-cuda13-plugin; extra == "cuda13-local"'))
    machine = Facts((), "here", NOT_STATED)
    found = _need_own_cuda(machine, Contract("jax", "0.12"), release, lambda *_: None, extras)
    assert {need.key: need.want for need in found} == wanted


def test_a_package_with_its_own_cuda_is_planned_without_torch_or_for_an_older_cuda(monkeypatch):
    def find(host, name, *words):
        found = name.startswith("cuml") and name != "cuml-cu11"
        return IndexRelease(name, "26.10.0", (f"cudf{name[4:]}", "nvidia-cublas")) if found else None

    monkeypatch.setattr("gpuready.workflow.index_contract.find_index_release", find)
    monkeypatch.setattr("gpuready.workflow.index_contract.search_code", lambda *words: "")
    stated = {"driver": "580.95.05", "os": "ubuntu22.04", "python-version": "3.12"}
    (plan,) = plan_frameworks(["cuml-cu12"], on="v100", what_if=stated).plans
    install = next(step.run for step in plan.steps if "install" in step.run)
    assert (plan.verdict, plan.torch, install[-1]) == ("plan", "", "cuml-cu12==26.10.0")
    (refused,) = plan_frameworks(["cuml-cu13"], on="v100", what_if=stated).plans
    assert refused.verdict == "impossible" and "compute capability >= 7.5" in refused.conflicts[0].says
    assert refused.opens[0].run[:3] == ("gpuready", "plan", "cuml-cu12")
