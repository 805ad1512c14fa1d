"""Where models and processes go: every branch of the frameworks' own decisions."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuready.runtime import job_placement
from gpuready.runtime.platform import PLATFORM_NAMES

kinds = st.sets(st.sampled_from(["cuda", "mps", "npu", "xpu", "hpu", "cpu"]))


@pytest.mark.parametrize(
    ("available", "local_rank", "device"),
    [
        ({"cuda", "cpu"}, 0, "cuda:0"),
        ({"cuda", "cpu"}, 3, "cuda:3"),
        ({"cuda", "mps", "npu"}, 1, "cuda:1"),
        ({"mps", "cpu"}, 5, "mps"),
        ({"mps", "npu"}, 2, "mps"),
        ({"npu", "cpu"}, 2, "npu:2"),
        ({"xpu", "hpu"}, 1, "cpu"),
        ({"cpu"}, 4, "cpu"),
        (set(), 0, "cpu"),
    ],
)
def test_the_device_that_axolotl_chooses(available, local_rank, device):
    assert job_placement.choose_device(available, local_rank) == device


@pytest.mark.parametrize(
    ("available", "current", "mapped"),
    [
        ({"cuda", "npu", "hpu", "xpu"}, 2, {"": 2}),
        ({"npu", "hpu", "xpu"}, 1, {"": "npu:1"}),
        ({"hpu", "xpu"}, 1, {"": "hpu:1"}),
        ({"xpu", "cpu"}, 1, {"": 1}),
        ({"mps", "cpu"}, 0, {"": "cpu"}),
        (set(), 0, {"": "cpu"}),
    ],
)
def test_the_quantizer_completes_a_device_map_in_its_own_order(available, current, mapped):
    assert job_placement.device_map(None, available, current) == mapped


@pytest.mark.parametrize("requested_map", ["auto", {"": 0}, {"model": "cpu"}, {}, "cuda", 1, 0, ""])
@pytest.mark.parametrize("available", [set(), {"cuda"}, {"xpu"}])
def test_a_device_map_that_is_given_stays(requested_map, available):
    """None alone means that none is given: an empty map or the device 0 is one."""
    assert job_placement.device_map(requested_map, available, 3) == requested_map


@pytest.mark.parametrize(
    ("device", "mapped"),
    [("mps", "mps:0"), ("mps:0", "mps:0"), ("npu:3", "npu:0"), ("cuda:1", "auto"), ("cpu", "auto")],
)
def test_axolotl_maps_the_whole_model_on_mps_and_npu(device, mapped):
    assert job_placement.axolotl_device_map(device, "auto") == mapped


def test_axolotl_adds_no_map_of_its_own_elsewhere():
    assert job_placement.axolotl_device_map("cuda:0") is None


POSTPONING = ("model_parallel", "deepspeed_fp16", "full_eval_half", "fsdp")


def test_a_plain_model_is_moved_at_once():
    assert job_placement.place_model_on_device() is True
    assert job_placement.place_model_on_device(training=True) is True


@pytest.mark.parametrize("case", POSTPONING)
def test_each_of_the_four_cases_puts_it_off(case):
    assert job_placement.place_model_on_device(**{case: True}) is False


def test_evaluation_in_half_precision_after_training_does_not():
    assert job_placement.place_model_on_device(full_eval_half=True, training=True) is True
    assert job_placement.place_model_on_device(full_eval_half=True, training=True, fsdp=True) is False


def test_whoever_asks_that_it_stays_is_heard():
    assert job_placement.place_model_on_device(asked=False) is False


def test_no_combination_of_the_four_moves_it():
    for flags in itertools.product((False, True), repeat=4):
        chosen = dict(zip(POSTPONING, flags, strict=True))
        assert job_placement.place_model_on_device(**chosen) is not any(flags)


@pytest.mark.parametrize(
    ("hf_device_map", "parallel"),
    [
        (None, False),
        ({}, False),
        ({"": 0}, False),
        ({"a": 0, "b": 0}, False),
        ({"a": 0, "b": 1}, True),
        ({"a": 0, "b": "cpu"}, False),
        ({"a": 0, "b": "disk", "c": "cpu"}, False),
        ({"a": "cpu", "b": "disk"}, False),
        ({"a": "cuda:0", "b": "cuda:1", "c": "disk"}, True),
        ({"a": 0, "b": 1, "c": 2, "d": "cpu"}, True),
    ],
)
def test_more_than_one_gpu_in_the_map_is_model_parallelism(hf_device_map, parallel):
    assert job_placement.is_model_parallel(hf_device_map) is parallel


@pytest.mark.parametrize(
    ("device", "backend"),
    [
        ("cuda", "nccl"),
        ("cuda:7", "nccl"),
        ("npu:0", "hccl"),
        ("hpu", "hccl"),
        ("xpu:1", "xccl"),
        ("mps", "gloo"),
        ("cpu", "gloo"),
    ],
)
def test_the_backend_of_a_device(device, backend):
    assert job_placement.backend_for(device) == backend


@pytest.mark.parametrize("device", ["", ":0", "gpu", "gpu:0", "tpu"])
def test_a_device_that_torch_does_not_have(device):
    with pytest.raises(ValueError, match="is not a device that torch supports"):
        job_placement.backend_for(device)


@given(kinds, st.integers(0, 63))
def test_every_device_that_is_chosen_has_a_backend(available, rank):
    device = job_placement.choose_device(available, rank)
    assert job_placement.backend_for(device)
    assert device.partition(":")[0] in available | {"cpu"}


@given(kinds, st.integers(0, 63))
def test_a_completed_map_places_everything_on_one_device(available, current):
    completed = job_placement.device_map(None, available, current)
    assert list(completed) == [""] and not job_placement.is_model_parallel(completed)


def test_the_orders_name_devices_that_are_platforms():
    assert set(job_placement.AXOLOTL_DEVICES) | set(job_placement.QUANTIZER_DEVICES) <= set(PLATFORM_NAMES)
