"""What rules share: needs by level, the job, the GPUs in words, the steps that mend."""

from __future__ import annotations

import pytest

from gpuready.check import View
from gpuready.model import NOT_STATED, Contract, Fact, Facts, Need, Unknown
from gpuready.rules import cards, gate, job, needs, remedy
from tests.rules.worlds import GAP, H100, contract, facts, need

# -- needs --------------------------------------------------------------------------------------------


def test_unmet_needs_come_gravest_first():
    asked = [Need("a.b", ">=2", level=level) for level in ("optional", "required", "recommended")]
    assert [n.level for n in needs.unmet(facts({"a.b": 1}), asked)] == ["required", "recommended", "optional"]
    assert needs.unmet(facts({"a.b": 2}), asked) == []


@pytest.mark.parametrize("level, raises", [("required", True), ("recommended", False), ("optional", False)])
def test_only_a_required_need_stops_at_a_gap(level, raises):
    known = View(Facts([Fact("a.b", None, gap=GAP)]))
    asked = [Need("a.b", ">=2", level=level)]
    if raises:
        with pytest.raises(Unknown):
            needs.unmet(known, asked)
    else:
        assert needs.unmet(known, asked) == []
        assert not known.read, "what was not judged does not count as read"


@pytest.mark.parametrize("level", ["required", "recommended", "optional"])
def test_what_is_not_stated_always_stops(level):
    with pytest.raises(Unknown):
        needs.unmet(Facts([], otherwise=NOT_STATED), [Need("a.b", ">=2", level=level)])


def test_a_condition_that_cannot_be_seen_counts_like_the_fact():
    known = facts({"a.b": 1}, os_name=GAP)
    with pytest.raises(Unknown):
        needs.unmet(known, [Need("a.b", ">=2", when="os.name=ubuntu")])
    assert needs.unmet(known, [Need("a.b", ">=2", when="os.name=ubuntu", level="recommended")]) == []
    assert not needs.surely(known, Need("a.b", ">=2", when="os.name=ubuntu"))


def test_in_force_looks_at_the_condition_alone():
    asked = [Need("a.b", ">=2", when="wants=x"), Need("a.b", ">=3", when="wants=y"), Need("a.b", ">=4")]
    assert [n.want for n in needs.in_force(facts({"job.wants": ("x",)}), asked)] == [">=2", ">=4"]


def test_a_value_that_the_want_cannot_be_asked_of():
    with pytest.raises(Unknown) as caught:
        needs.holds(facts({"a.b": "gone"}), Need("a.b", ">=2"), "gone")
    assert caught.value.fact.key == "a.b" and caught.value.fact.gap


def test_severity_of_the_gravest():
    levels = [Need("a", "*", level=level) for level in ("recommended", "optional")]
    assert needs.severity(levels) == "warning"
    assert needs.severity(levels[1:]) == "info" and needs.severity([]) == "info"
    assert needs.severity([*levels, Need("a", "*")]) == "error"


def test_words_of_a_condition():
    assert needs.words(Need("a", "*", when="wants=bf16|fp16,platform=cuda,gpus>1")) == {"bf16", "fp16"}
    assert needs.words(Need("a", "*")) == frozenset()


def test_a_glimpse_leaves_no_trace():
    view = View(facts({"a.b": 1}, c_d=GAP))
    assert (needs.glimpse(view, "a.b"), needs.glimpse(view, "c.d")) == (1, None)
    assert not view.read


# -- job ----------------------------------------------------------------------------------------------


def test_a_job_that_says_nothing():
    nothing = facts({})
    assert job.wants(nothing) == frozenset() and job.parameters(nothing) is None
    assert not job.maps_devices(nothing) and not job.offloads(nothing) and job.weights(nothing) is None


def test_words_are_spelt_one_way():
    assert job.asks(facts({"job.wants": ("Flash_Attn",)}), "flash-attn")


def test_a_job_that_could_not_be_read_is_unknown():
    with pytest.raises(Unknown):
        job.wants(Facts([Fact("job.wants", None, gap="the file is not YAML")]))


@pytest.mark.parametrize(
    "wants, size",
    [
        ((), 14_000_000_000),
        (("bf16",), 14_000_000_000),
        (("fp32",), 28_000_000_000),
        (("bf16", "4bit"), 3_500_000_000),
    ],
)
def test_the_least_that_weights_take(wants, size):
    assert job.weights(facts({"job.parameters": 7_000_000_000, "job.wants": wants}))[0] == size


def test_how_the_weights_were_counted_is_told():
    stated = facts({"job.parameters": 7_000_000_000, "job.wants": ("bf16",)})
    assert job.weights(stated)[1] == "7 billion parameters, 16 bits for each"
    assert (
        "16 bits for each, as the job states no other"
        in job.weights(facts({"job.parameters": 500_000_000}))[1]
    )


# -- cards --------------------------------------------------------------------------------------------


def test_gpus_in_words():
    two = facts({"gpu.count": 2, "gpu.visible": (0, 1), "gpu.name": ("A", "B")})
    assert cards.called(two, [1]) == "GPU 1 (B)"
    assert cards.called(two, [0, 1]) == "GPU 0 (A) and GPU 1 (B)"
    assert cards.called(facts(H100), [0], {0: "9.0"}) == "the GPU (NVIDIA H100 80GB HBM3, 9.0)"
    nameless = facts({"gpu.count": 2, "gpu.visible": (0, 1)}, gpu_name=GAP)
    assert cards.called(nameless, [0, 1]) == "the 2 GPUs" and cards.called(nameless, [1]) == "GPU 1"


def test_long_lists_are_cut():
    assert cards.listed(["a"]) == "a" and cards.listed([]) == ""
    assert cards.listed(["a", "b", "c"]) == "a, b and c"
    assert cards.listed([str(i) for i in range(20)]) == "0, 1, 2, 3, 4, 5, 6, 7 and 12 more"


def test_a_value_for_the_variable_by_uuid_or_index():
    assert cards.only(facts({"gpu.uuid": ("GPU-a", "GPU-b")}), [1, 0]) == "GPU-b,GPU-a"
    assert cards.only(facts({}, gpu_uuid=GAP), [0, 2]) == "0,2"


# -- gate ---------------------------------------------------------------------------------------------


def test_floors_are_the_catalogues_and_the_contracts():
    agreed = contract(need("gpu.capability", ">=9.0", when="wants=fp8"), need("gpu.capability", ">=7.0"))
    floors = gate.floors(agreed, "fp8")
    assert [n.want for n in floors] == [">=8.9", ">=9.0"] and gate.highest(floors) == "9.0"
    assert gate.highest([Need("x", ">=9.0"), Need("x", ">=10.0")]) == "10.0"


# -- remedy -------------------------------------------------------------------------------------------


def test_a_build_for_everything_that_is_known():
    assert remedy.torch_build(facts(H100), contract()).version == "2.8.0", "the installed release first"
    bare = facts({})
    assert remedy.torch_build(bare, contract()).pypi, "with nothing known, what the index serves"


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
    build = remedy.torch_build(known, contract(need("package.torch", pins)))
    assert build.variant.startswith(expected)
    assert "python.version" not in values or "3.9" in build.python


def test_no_build_at_all():
    assert remedy.torch_build(facts(H100), contract(need("package.torch", ">=99"))) is None
    assert remedy.another_torch(facts(H100), contract(need("package.torch", ">=99"))) is None


def test_conditions_that_cannot_be_seen_are_left_aside():
    agreed = contract(need("package.torch", ">=99", when="platform=cuda"))
    assert remedy.torch_build(facts(H100, gpu_vendor=GAP, platform_name=GAP), agreed) is not None


@pytest.mark.parametrize(
    "want, written",
    [("*", "x"), (">=1,<2", "x>=1,<2"), ("==1|==2", "x==2"), ("==1 | ==2", "x==2"), ("", "x")],
)
def test_requirements(want, written):
    assert remedy.requirement("x", want) == written


def test_without_a_known_python_the_step_names_none():
    step = remedy.packages(facts({}, python_path=GAP), Contract("demo", "1"), {"x": ">=1"})
    assert step.run == ("uv", "pip", "install", "x>=1") and step.does == "install x>=1"
