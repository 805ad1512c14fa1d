"""The settings of torch's allocator: their name, their values, and vLLM."""

from __future__ import annotations

import pytest

from gpuready.model import Finding, UnknownFactError
from gpuready.rules import environment_variables
from tests.rules.worlds import contract, env, judged, need, variable


@pytest.mark.parametrize(
    "text, found",
    [
        ("a:1", [("a", "1")]),
        ("a:1, b:2 ,", [("a", "1"), ("b", "2")]),
        ("a:[256:1,512:2],b:x", [("a", "[256:1,512:2]"), ("b", "x")]),
        ("a=1", [("a=1", None)]),
        (",a:1", [("", None), ("a", "1")]),
        ("", []),
    ],
)
def test_settings_of_the_allocator(text, found):
    assert environment_variables.parse_allocator_settings(text) == found


# -- SYS012, SYS013, SYS014: the allocator ------------------------------------------------------------

ON = "expandable_segments:True"


@pytest.mark.parametrize(
    "version, variables, severity",
    [
        ("2.8.0+cu128", {"PYTORCH_ALLOC_CONF": ON}, "warning"),
        ("2.8.0", {"PYTORCH_CUDA_ALLOC_CONF": ON}, None),
        ("2.8.0", {"PYTORCH_CUDA_ALLOC_CONF": ON, "PYTORCH_ALLOC_CONF": ON}, None),
        ("2.8.0", {"PYTORCH_CUDA_ALLOC_CONF": "backend:native", "PYTORCH_ALLOC_CONF": ON}, "warning"),
        ("2.9.0", {"PYTORCH_ALLOC_CONF": ON}, None),
        ("2.12.1+cu130", {"PYTORCH_CUDA_ALLOC_CONF": ON}, "info"),
        ("2.12.1", {"PYTORCH_CUDA_ALLOC_CONF": ON, "PYTORCH_ALLOC_CONF": ON}, None),
        ("2.12.1", {"PYTORCH_CUDA_ALLOC_CONF": "backend:native", "PYTORCH_ALLOC_CONF": ON}, "warning"),
        ("2.12.1", {}, None),
        (None, {"PYTORCH_ALLOC_CONF": ON}, None),
        ("2.8.0", {"PYTORCH_ALLOC_CONF": " "}, None),
    ],
)
def test_the_name_of_the_allocators_variable(version, variables, severity):
    found = judged("SYS012", env(**variables) | {"package.torch": version})
    assert (found.severity if found else None) == severity


def test_the_right_name_is_named():
    found = judged("SYS012", env(PYTORCH_ALLOC_CONF=ON) | {"package.torch": "2.8.0"})
    assert found.fix[0].does == "set PYTORCH_CUDA_ALLOC_CONF instead of PYTORCH_ALLOC_CONF"


def settings(text, version="2.8.0", name="PYTORCH_CUDA_ALLOC_CONF"):
    return env(**{name: text}) | {"package.torch": version}


@pytest.mark.parametrize(
    "text",
    [
        ON,
        "max_split_size_mb:512",
        "max_split_size_mb: 128, garbage_collection_threshold: 0.8",
        "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
        "backend:cudaMallocAsync",
        "max_split_size_mb:12,large_segment_size_mb:12",
        "expandable_segments:True,roundup_power2_divisions:16,",
        "per_process_memory_fraction:0.9",
        "",
    ],
)
def test_settings_that_torch_takes(text):
    assert judged("SYS013", settings(text)) is None


@pytest.mark.parametrize(
    "text, why",
    [
        ("expandable_segments=True", "instead of a colon"),
        ("expandable_segments:true", "must be True or False"),
        ("expandable_segments", "has no value"),
        ("max_split_size_mb:", "has no value"),
        ("max_split_size_mb:big", "must be a number"),
        ("max_split_size_mb:10", "must be at least 20"),
        ("garbage_collection_threshold:1.5", "between 0 and 1"),
        ("garbage_collection_threshold:most", "between 0 and 1"),
        ("backend:cudamallocasync", "there is no backend"),
        (",expandable_segments:True", "before a comma"),
    ],
)
def test_settings_that_torch_refuses(text, why):
    found = judged("SYS013", settings(text))
    assert found.severity == "error" and why in found.says


def test_an_unknown_option_may_be_one_of_a_newer_torch():
    assert judged("SYS013", settings("max_split_size:512")).severity == "warning"
    assert judged("SYS013", settings("max_split_size:512,expandable_segments:1")).severity == "error"


def test_only_the_variable_that_counts_is_read():
    bad = settings("nonsense", "2.8.0", "PYTORCH_ALLOC_CONF")
    assert judged("SYS013", bad) is None, "this torch does not read it"
    assert judged("SYS013", bad | {"package.torch": "2.10.0"}).severity == "error"
    both = env(PYTORCH_CUDA_ALLOC_CONF="nonsense", PYTORCH_ALLOC_CONF=ON) | {"package.torch": "2.10.0"}
    assert judged("SYS013", both) is None
    assert judged("SYS013", settings("nonsense", None)) is None, "no torch reads anything"
    assert isinstance(judged("SYS013", settings("nonsense"), package_torch="no listing"), UnknownFactError)


SLEEPS = settings(ON) | {"job.wants": ("vllm",), "package.vllm": "0.10.2"}


def test_expandable_segments_and_sleep():
    found = judged("SYS014", SLEEPS)
    assert found.severity == "warning" and "vLLM 0.10.2" in found.says
    assert judged("SYS014", SLEEPS | {"package.vllm": "0.21.0"}) is None, "it turns them off itself"
    assert judged("SYS014", SLEEPS | {"package.vllm": None}) is None
    assert judged("SYS014", SLEEPS | {"job.wants": ("bf16",)}) is None
    assert judged("SYS014", SLEEPS | settings("expandable_segments:False")) is None


def test_a_contract_that_brings_vllm_asks_for_it():
    agreed = contract(need("package.vllm", "==0.10.2"))
    assert isinstance(judged("SYS014", SLEEPS | {"job.wants": ()}, agreed), Finding)
    optional = contract(need("package.vllm", "==0.10.2", level="recommended"))
    assert judged("SYS014", SLEEPS | {"job.wants": ()}, optional) is None


def test_roll_empties_the_old_variable_and_not_the_new_one():
    roll = contract(variables=[variable("PYTORCH_CUDA_ALLOC_CONF", "set", traits=("emptied-for-vllm",))])
    assert judged("SYS014", SLEEPS, roll) is None
    newer = SLEEPS | settings(ON, "2.10.0", "PYTORCH_ALLOC_CONF")
    assert "PYTORCH_ALLOC_CONF" in judged("SYS014", newer, roll).says
