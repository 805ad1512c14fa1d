"""Precision and attention by compute capability: gates of the catalogue, floors of contracts."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuready import contracts
from gpuready.catalog import gpus
from gpuready.model import Contract
from gpuready.runtime import precision

AXOLOTL, HF = contracts.load_contract("axolotl", "0.14"), contracts.load_contract("transformers", "5.22")
capabilities = st.tuples(st.integers(5, 12), st.integers(0, 9))
NEWEST = {"flash-attn": "2.8.3", "xformers": "0.0.33"}


@pytest.mark.parametrize(
    ("capability", "name"),
    [("9.0", "sm_90"), ((9, 0), "sm_90"), ("8.6", "sm_86"), ("12.0", "sm_120"), ((10, 3), "sm_103"), (None, None)],
)
def test_the_name_of_an_architecture(capability, name):
    assert precision.sm_string(capability) == name


@pytest.mark.parametrize(
    ("feature", "least"),
    [("fp8", "8.9"), ("bf16", "8.0"), ("tf32", "8.0"), ("fp16", "5.3"), ("flash-attn", "8.0"), ("nvfp4", "10.0")],
)
def test_features_begin_at_the_catalogues_gate(feature, least):
    major, minor = map(int, least.split("."))
    below = (major, minor - 1) if minor else (major - 1, 9)
    assert precision.supports_feature(feature, least) and precision.supports_feature(feature, (major, minor))
    assert not precision.supports_feature(feature, below)


def test_emulated_bf16_does_not_count():
    """torch says that a V100 has bf16, because it emulates it."""
    assert not precision.supports_feature("bf16", "7.0")


def test_a_contract_may_ask_for_more_than_the_hardware():
    assert precision.supports_feature("fp8", "8.9") and not precision.supports_feature("fp8", "8.9", AXOLOTL)
    assert precision.supports_feature("fp8", "9.0", AXOLOTL)
    assert precision.supports_feature("fp8", "8.9", HF)


def test_a_contract_cannot_ask_for_less():
    low = [{"key": "gpu.capability", "want": ">=7.0", "when": "wants=fp8", "cite": "here"}]
    contract = Contract.from_json({"framework": "demo", "version": "1.0", "needs": low})
    assert not precision.supports_feature("fp8", "7.0", contract)


def test_floors_for_other_features_are_none_of_this_one():
    assert precision.supports_feature("bf16", "8.0", AXOLOTL)


@pytest.mark.parametrize("feature", ["fp8", "bf16", "fp16", "tf32"])
def test_without_a_gpu_nothing_is_supported(feature):
    assert precision.supports_feature(feature, None) is False


def test_an_unknown_feature_is_named():
    with pytest.raises(ValueError, match="no feature is called 'fp7'"):
        precision.supports_feature("fp7", "9.0")


@given(st.sampled_from(gpus.list_features()), capabilities)
def test_a_feature_has_one_range(feature, capability):
    """Pairs and text mean the same, and the answer is the catalogue's."""
    text = f"{capability[0]}.{capability[1]}"
    assert precision.supports_feature(feature, capability) is precision.supports_feature(feature, text)
    assert precision.supports_feature(feature, text) is gpus.check_feature_support(feature, text)[0]


@pytest.mark.parametrize(
    ("capability", "name"),
    [
        ("6.1", "fp16"),
        ("7.0", "fp16"),
        ("7.5", "fp16"),
        ("8.0", "bf16"),
        ("8.9", "bf16"),
        ("12.0", "bf16"),
        (None, "no"),
    ],
)
def test_mixed_precision_by_generation(capability, name):
    assert precision.mixed_precision(capability) == name


@pytest.mark.parametrize(
    ("capability", "installed", "dtype", "name"),
    [
        ("9.0", NEWEST, "bf16", "flash-attn"),
        ("8.0", NEWEST, "float16", "flash-attn"),
        ("8.0", NEWEST, "torch.bfloat16", "flash-attn"),
        ("9.0", NEWEST, "fp32", "xformers"),
        ("7.5", NEWEST, "fp16", "xformers"),
        ("7.0", NEWEST, "fp16", "sdpa"),
        ("9.0", {}, "bf16", "sdpa"),
        ("9.0", {"xformers": "0.0.33"}, "bf16", "xformers"),
        (None, NEWEST, "bf16", "sdpa"),
        ("3.5", {}, "fp32", "eager"),
    ],
)
def test_the_best_attention_that_can_be_used(capability, installed, dtype, name):
    assert precision.best_attention(capability, installed, dtype)[0] == name


def test_the_reason_names_what_was_passed_over():
    name, reason = precision.best_attention("7.0", {"flash-attn": "2.8.3"}, "fp16")
    assert name == "sdpa"
    assert "flash-attn: not for compute capability 7.0" in reason and "xformers: not installed" in reason
    assert "takes fp16 and bf16, not fp32" in precision.best_attention("9.0", NEWEST, "fp32")[1]
    assert "2.8.3 serves compute capability 9.0" in precision.best_attention("9.0", NEWEST, "bf16")[1]
    assert "without a GPU" in precision.best_attention(None, NEWEST, "bf16")[1]


def test_a_contract_pins_the_package():
    old = {"flash-attn": "2.0.0"}
    assert precision.best_attention("9.0", old, "bf16")[0] == "flash-attn"
    name, reason = precision.best_attention("9.0", old, "bf16", HF)
    assert name == "sdpa" and "2.0.0 is outside >=2.3.3" in reason


@given(
    st.none() | capabilities, st.dictionaries(st.sampled_from(["flash-attn", "xformers", "torch"]), st.just("2.8.3"))
)
def test_an_attention_is_always_found_and_is_there(capability, installed):
    name, reason = precision.best_attention(capability, installed, "bf16")
    assert reason and (name in ("sdpa", "eager") or name in installed)


def test_fp8_of_experts_is_scaled_by_block_alone():
    assert precision.fp8_recipe(moe=True) == ("per-block",)
    assert precision.fp8_recipe(moe=False) == ("per-tensor", "per-block")


def test_nothing_of_this_room_imports_torch_or_anything_heavy():
    names = ["platform", "precision"]
    code = f"import sys\nfor n in {names!r}: __import__('gpuready.runtime.' + n)\nprint(*sys.modules)"
    path = f"import sys; sys.path[:0] = {sys.path!r}\n"
    ran = subprocess.run([sys.executable, "-I", "-S", "-c", path + code], capture_output=True, text=True, check=True)
    heavy = {"torch", "dataclasses", "subprocess", "packaging", "tomllib", "pathlib", "logging"}
    assert not heavy & set(ran.stdout.split())
