"""What rules share: needs by level, the job, the GPUs in words, the steps that mend."""

from __future__ import annotations

import pytest

from gpuready.check.evaluate import TrackedFacts
from gpuready.contracts import when as conditions
from gpuready.model import NOT_STATED, Contract, Fact, Facts, Requirement, UnknownFactError
from gpuready.rules import capability_floors, contract_needs, fix_steps, job_request, visible_gpus
from tests.rules.worlds import GAP, H100, contract, facts, need

# -- needs --------------------------------------------------------------------------------------------


def test_unmet_needs_come_gravest_first():
    asked = [Requirement("a.b", ">=2", level=level) for level in ("optional", "required", "recommended")]
    assert [n.level for n in contract_needs.unmet_needs(facts({"a.b": 1}), asked)] == [
        "required",
        "recommended",
        "optional",
    ]
    assert contract_needs.unmet_needs(facts({"a.b": 2}), asked) == []


@pytest.mark.parametrize("level, raises", [("required", True), ("recommended", False), ("optional", False)])
def test_only_a_required_need_stops_at_a_gap(level, raises):
    known = TrackedFacts(Facts([Fact("a.b", None, gap=GAP)]))
    asked = [Requirement("a.b", ">=2", level=level)]
    if raises:
        with pytest.raises(UnknownFactError):
            contract_needs.unmet_needs(known, asked)
    else:
        assert contract_needs.unmet_needs(known, asked) == []
        assert not known.keys_read, "what was not judged does not count as read"


@pytest.mark.parametrize("level", ["required", "recommended", "optional"])
def test_what_is_not_stated_always_stops(level):
    with pytest.raises(UnknownFactError):
        contract_needs.unmet_needs(Facts([], otherwise=NOT_STATED), [Requirement("a.b", ">=2", level=level)])


def test_a_condition_that_cannot_be_seen_counts_like_the_fact():
    known = facts({"a.b": 1}, os_name=GAP)
    with pytest.raises(UnknownFactError):
        contract_needs.unmet_needs(known, [Requirement("a.b", ">=2", when="os.name=ubuntu")])
    assert (
        contract_needs.unmet_needs(known, [Requirement("a.b", ">=2", when="os.name=ubuntu", level="recommended")]) == []
    )
    assert not conditions.certainly_applies("os.name=ubuntu", known)


def test_in_force_looks_at_the_condition_alone():
    asked = [
        Requirement("a.b", ">=2", when="wants=x"),
        Requirement("a.b", ">=3", when="wants=y"),
        Requirement("a.b", ">=4"),
    ]
    assert [n.want for n in contract_needs.needs_in_force(facts({"job.wants": ("x",)}), asked)] == [">=2", ">=4"]


def test_a_value_that_the_want_cannot_be_asked_of():
    with pytest.raises(UnknownFactError) as caught:
        contract_needs.value_meets_need(facts({"a.b": "gone"}), Requirement("a.b", ">=2"), "gone")
    assert caught.value.fact.key == "a.b" and caught.value.fact.gap


def test_severity_of_the_gravest():
    levels = [Requirement("a", "*", level=level) for level in ("recommended", "optional")]
    assert contract_needs.worst_need_severity(levels) == "warning"
    assert contract_needs.worst_need_severity(levels[1:]) == "info" and contract_needs.worst_need_severity([]) == "info"
    assert contract_needs.worst_need_severity([*levels, Requirement("a", "*")]) == "error"


def test_words_of_a_condition():
    assert contract_needs.wants_of_need(Requirement("a", "*", when="wants=bf16|fp16,platform=cuda,gpus>1")) == {
        "bf16",
        "fp16",
    }
    assert contract_needs.wants_of_need(Requirement("a", "*")) == frozenset()


def test_a_glimpse_leaves_no_trace():
    view = TrackedFacts(facts({"a.b": 1}, c_d=GAP))
    assert (contract_needs.peek_fact(view, "a.b"), contract_needs.peek_fact(view, "c.d")) == (1, None)
    assert not view.keys_read


# -- job ----------------------------------------------------------------------------------------------


def test_a_job_that_says_nothing():
    nothing = facts({})
    assert job_request.list_job_wants(nothing) == frozenset() and job_request.job_parameter_count(nothing) is None
    assert (
        not job_request.uses_device_map(nothing)
        and not job_request.offloads_weights(nothing)
        and job_request.estimate_weight_bytes(nothing) is None
    )


def test_words_are_spelt_one_way():
    assert job_request.job_asks_for(facts({"job.wants": ("Flash_Attn",)}), "flash-attn")


def test_a_job_that_could_not_be_read_is_unknown():
    with pytest.raises(UnknownFactError):
        job_request.list_job_wants(Facts([Fact("job.wants", None, gap="the file is not YAML")]))


@pytest.mark.parametrize(
    "wants, size",
    [((), 14_000_000_000), (("bf16",), 14_000_000_000), (("fp32",), 28_000_000_000), (("bf16", "4bit"), 3_500_000_000)],
)
def test_the_least_that_weights_take(wants, size):
    assert job_request.estimate_weight_bytes(facts({"job.parameters": 7_000_000_000, "job.wants": wants}))[0] == size


def test_how_the_weights_were_counted_is_told():
    stated = facts({"job.parameters": 7_000_000_000, "job.wants": ("bf16",)})
    assert job_request.estimate_weight_bytes(stated)[1] == "7 billion parameters, 16 bits each"
    assert (
        "16 bits each, as the job states no precision"
        in job_request.estimate_weight_bytes(facts({"job.parameters": 500_000_000}))[1]
    )


# -- cards --------------------------------------------------------------------------------------------


def test_gpus_in_words():
    two = facts({"gpu.count": 2, "gpu.visible": (0, 1), "gpu.name": ("A", "B")})
    assert visible_gpus.describe_gpus(two, [1]) == "GPU 1 (B)"
    assert visible_gpus.describe_gpus(two, [0, 1]) == "GPU 0 (A) and GPU 1 (B)"
    assert visible_gpus.describe_gpus(facts(H100), [0], {0: "9.0"}) == "the GPU (NVIDIA H100 80GB HBM3, 9.0)"
    nameless = facts({"gpu.count": 2, "gpu.visible": (0, 1)}, gpu_name=GAP)
    assert (
        visible_gpus.describe_gpus(nameless, [0, 1]) == "the 2 GPUs"
        and visible_gpus.describe_gpus(nameless, [1]) == "GPU 1"
    )


def test_long_lists_are_cut():
    assert visible_gpus.join_names(["a"]) == "a" and visible_gpus.join_names([]) == ""
    assert visible_gpus.join_names(["a", "b", "c"]) == "a, b and c"
    assert visible_gpus.join_names([str(i) for i in range(20)]) == "0, 1, 2, 3, 4, 5, 6, 7 and 12 more"


def test_a_value_for_the_variable_by_uuid_or_index():
    assert visible_gpus.visible_devices_value(facts({"gpu.uuid": ("GPU-a", "GPU-b")}), [1, 0]) == "GPU-b,GPU-a"
    assert visible_gpus.visible_devices_value(facts({}, gpu_uuid=GAP), [0, 2]) == "0,2"


# -- gate ---------------------------------------------------------------------------------------------


def test_floors_are_the_catalogues_and_the_contracts():
    agreed = contract(need("gpu.capability", ">=9.0", when="wants=fp8"), need("gpu.capability", ">=7.0"))
    floors = capability_floors.feature_floors(agreed, "fp8")
    assert [n.want for n in floors] == [">=8.9", ">=9.0"] and capability_floors.highest_floor(floors) == "9.0"
    assert capability_floors.highest_floor([Requirement("x", ">=9.0"), Requirement("x", ">=10.0")]) == "10.0"


# -- remedy -------------------------------------------------------------------------------------------


def test_a_build_for_everything_that_is_known():
    assert fix_steps.choose_torch_build(facts(H100), contract()).version == "2.8.0", "the installed release first"
    bare = facts({})
    assert fix_steps.choose_torch_build(bare, contract()).pypi, "with nothing known, what the index serves"


@pytest.mark.parametrize(
    "values, pins, expected",
    [
        ({"driver.version": "535.104.05"}, ">=2.9", "cu12"),
        ({"gpu.capability": ("7.0",), "driver.version": "550.54.14"}, ">=2.11,<2.14", "cu126"),
        ({"python.version": "3.9.2"}, ">=2.2", "cu"),
    ],
)
def test_builds_follow_driver_gpu_and_python(values, pins, expected):
    known = facts(H100 | values)
    build = fix_steps.choose_torch_build(known, contract(need("package.torch", pins)))
    assert build.variant.startswith(expected)
    assert "python.version" not in values or "3.9" in build.python


def test_no_build_at_all():
    assert fix_steps.choose_torch_build(facts(H100), contract(need("package.torch", ">=99"))) is None
    assert fix_steps.replace_torch_step(facts(H100), contract(need("package.torch", ">=99"))) is None


def test_no_build_of_another_cuda_than_the_frameworks_own_wheel_loads():
    old, pinned = facts(H100 | {"driver.version": "550.54.14"}), need("package.torch", "==2.13.0")
    assert fix_steps.choose_torch_build(old, contract(pinned)).variant == "cu126"
    assert fix_steps.choose_torch_build(old, contract(pinned, framework="vllm", version="0.32")) is None


def test_conditions_that_cannot_be_seen_are_left_aside():
    agreed = contract(need("package.torch", ">=99", when="platform=cuda"))
    assert fix_steps.choose_torch_build(facts(H100, gpu_vendor=GAP, platform_name=GAP), agreed) is not None


@pytest.mark.parametrize(
    "want, written", [("*", "x"), (">=1,<2", "x>=1,<2"), ("==1|==2", "x==2"), ("==1 | ==2", "x==2"), ("", "x")]
)
def test_requirements(want, written):
    assert fix_steps.format_requirement("x", want) == written


def test_without_a_known_python_the_step_names_none():
    step = fix_steps.install_packages_step(facts({}, python_path=GAP), Contract("demo", "1"), {"x": ">=1"})
    assert step.run == ("uv", "pip", "install", "x>=1") and step.does == "install x>=1"
