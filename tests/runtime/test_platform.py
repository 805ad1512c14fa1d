"""Platforms: what torch and launchers call each, which one is chosen, and what a framework sets on it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuready import contracts
from gpuready.model import Contract
from gpuready.runtime.platform import (
    PLATFORM_NAMES,
    UNKNOWN_PLATFORM,
    Platform,
    choose_platform,
    framework_variables,
    get_platform,
)

ROLL, PAGE = contracts.load_contract("roll", "0.3.0"), contracts.load_contract("roll", "0.3.0", "guide")


def made(*rows) -> Contract:
    named = [{"access": "set", "cite": "here", **row} for row in rows]
    return Contract.from_json({"framework": "demo", "version": "1.0", "variables": named})


# -- the noun -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "device", "backend", "visibility"),
    [
        ("cuda", "cuda", "nccl", "CUDA_VISIBLE_DEVICES"),
        ("rocm", "cuda", "nccl", "ROCR_VISIBLE_DEVICES"),
        ("npu", "npu", "hccl", "ASCEND_RT_VISIBLE_DEVICES"),
        ("xpu", "xpu", "xccl", "ZE_AFFINITY_MASK"),
        ("hpu", "hpu", "hccl", "HABANA_VISIBLE_MODULES"),
        ("mps", "mps", "gloo", ""),
        ("cpu", "cpu", "gloo", ""),
    ],
)
def test_each_platform_as_torch_names_it(name, device, backend, visibility):
    found = get_platform(name)
    assert (found.name, found.device, found.backend, found.visibility) == (name, device, backend, visibility)
    assert found.source


def test_every_name_is_a_platform():
    assert [get_platform(name).name for name in PLATFORM_NAMES] == list(PLATFORM_NAMES)


def test_the_contract_chooses_among_visibility_variables():
    """AMD's runtime obeys four variables; ROLL sets the second."""
    assert get_platform("rocm", ROLL).visibility == "HIP_VISIBLE_DEVICES"
    assert get_platform("rocm", made()).visibility == "ROCR_VISIBLE_DEVICES"
    assert set(get_platform("rocm").visibilities) >= {"ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"}


@pytest.mark.parametrize("name", ["", "CUDA", "gpu", "tpu", "musa"])
def test_a_name_that_is_no_platform(name):
    with pytest.raises(ValueError, match="it is one of cuda, rocm"):
        get_platform(name)


def test_a_platform_travels_as_json():
    assert Platform.from_json(get_platform("rocm").to_json()) == get_platform("rocm")


# -- the choice ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("available", "device_name", "chosen"),
    [
        ({"cuda", "cpu"}, "NVIDIA H100 80GB HBM3", "cuda"),
        ({"cuda", "cpu"}, "nvidia a100-sxm4-80gb", "cuda"),
        ({"cuda", "cpu"}, "AMD Instinct MI300X", "rocm"),
        ({"cuda", "cpu"}, "MetaX C500", UNKNOWN_PLATFORM),
        ({"cuda", "cpu"}, None, UNKNOWN_PLATFORM),
        ({"cuda", "npu"}, "NVIDIA L4", "cuda"),
        ({"npu", "cpu"}, None, "npu"),
        ({"npu"}, "NVIDIA L4", "npu"),
        ({"cpu"}, None, "cpu"),
        ({"mps", "cpu"}, "Apple M3", "cpu"),
        ({"xpu", "hpu"}, None, "cpu"),
        (set(), None, "cpu"),
    ],
)
def test_the_platform_that_roll_chooses(available, device_name, chosen):
    assert choose_platform(available, device_name).name == chosen


def test_an_unknown_cuda_device_is_used_as_cuda():
    found = choose_platform({"cuda"}, "Something Else")
    assert (found.device, found.backend, found.visibility) == ("cuda", "nccl", "CUDA_VISIBLE_DEVICES")
    assert found.vendor == ""


@given(st.sets(st.sampled_from([*PLATFORM_NAMES, "tpu", "xla"])), st.none() | st.text())
def test_a_choice_is_always_made(available, device_name):
    found = choose_platform(available, device_name)
    assert found.device in available | {"cpu"}


# -- the variables ------------------------------------------------------------------------------------


def test_the_set_of_the_roll_page_and_nothing_else():
    assert framework_variables(get_platform("cuda"), PAGE, {}) == {
        "RAY_get_check_signal_interval_milliseconds": "1",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "NCCL_CUMEM_ENABLE": "0",
        "NCCL_NVLS_ENABLE": "0",
        "TORCHINDUCTOR_COMPILE_THREADS": "2",
    }


def test_the_callers_value_wins_where_the_framework_reads_it_and_only_there():
    own = {"NCCL_CUMEM_ENABLE": "1", "NCCL_NVLS_ENABLE": "1", "OTHER": "x"}
    for contract in (PAGE, ROLL):
        found = framework_variables(get_platform("cuda"), contract, own)
        assert found["NCCL_CUMEM_ENABLE"] == "1" and found["NCCL_NVLS_ENABLE"] == "0"
        assert "OTHER" not in found


def test_roll_on_cuda_today():
    found = framework_variables(get_platform("cuda"), ROLL, {})
    assert found["RAY_CGRAPH_get_timeout"] == "600"
    assert found["JE_ARROW_MALLOC_CONF"] == "background_thread:false"
    assert found["NVTE_BWD_LAYERNORM_SM_MARGIN"] == "0"
    assert found["VLLM_USE_V1"] == "1"
    assert not {"PYTORCH_HIP_ALLOC_CONF", "VLLM_ROCM_USE_AITER"} & set(found)


def test_roll_on_rocm_and_on_npu():
    rocm = framework_variables(get_platform("rocm"), ROLL, {})
    assert rocm["PYTORCH_HIP_ALLOC_CONF"] == "expandable_segments:True"
    assert {rocm[name] for name in rocm if name.startswith("VLLM_ROCM_USE_AITER")} == {"0"}
    assert rocm["VLLM_USE_V1"] == "0"
    assert not {"PYTORCH_CUDA_ALLOC_CONF", "NCCL_CUMEM_ENABLE", "JE_ARROW_MALLOC_CONF"} & set(rocm)
    npu = framework_variables(get_platform("npu"), ROLL, {})
    assert npu["TASK_QUEUE_ENABLE"] == "1" and "TORCHINDUCTOR_COMPILE_THREADS" not in npu


@pytest.mark.parametrize(
    ("torch", "name", "value"),
    [
        ("2.8.0+cu128", "PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True,roundup_power2_divisions:16"),
        ("2.9.1", "PYTORCH_ALLOC_CONF", "expandable_segments:True,roundup_power2_divisions:16"),
    ],
)
def test_axolotl_names_the_allocator_by_the_torch(torch, name, value):
    axolotl = contracts.load_contract("axolotl", "0.14")
    found = framework_variables(get_platform("cuda"), axolotl, {}, torch=torch)
    assert {k: v for k, v in found.items() if "ALLOC_CONF" in k} == {name: value}
    assert framework_variables(get_platform("cuda"), axolotl, {name: "mine"}, torch=torch)[name] == "mine"


def test_what_cannot_be_seen_is_left_out():
    """No torch is given, so that neither name of the allocator's variable can be the right one."""
    found = framework_variables(get_platform("cuda"), contracts.load_contract("axolotl", "0.14"), {})
    assert found == {"XFORMERS_IGNORE_FLASH_VERSION_CHECK": "1"}


def test_what_the_job_asks_for_brings_its_variables():
    assert "CUDA_DEVICE_MAX_CONNECTIONS" not in framework_variables(get_platform("cuda"), ROLL, {})
    assert framework_variables(get_platform("cuda"), ROLL, {}, wants=["sglang"])["CUDA_DEVICE_MAX_CONNECTIONS"] == "4"


def test_colossalai_sets_one_and_over_any_value():
    colossalai = contracts.load_contract("colossalai", "0.5.0")
    own = {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}
    assert framework_variables(get_platform("cuda"), colossalai, own) == {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}


def test_the_launchers_variables_are_not_a_platforms():
    rows = [{"name": name, "value": "0"} for name in ("RANK", "LOCAL_RANK", "MASTER_PORT", "MINE")]
    assert framework_variables(get_platform("cpu"), made(*rows), {}) == {"MINE": "0"}


def test_what_is_only_read_or_has_no_value_is_not_set():
    contract = made({"name": "READ", "access": "read", "value": "1"}, {"name": "EMPTIED"})
    assert framework_variables(get_platform("cuda"), contract, {"READ": "2"}) == {}


def test_no_contract_puts_something_else_than_text_into_an_environment():
    for row in contracts.list_contract_rows():
        contract = contracts.load_contract(row["framework"], row["version"], row["variant"] or None)
        for name in (*PLATFORM_NAMES, UNKNOWN_PLATFORM):
            found = framework_variables(get_platform(name), contract, {}, torch="2.9.1", wants=["fp8", "sglang"])
            assert all(isinstance(value, str) and value for value in found.values())
