"""The condition of the GPUs: errors, links, heat, power."""

from __future__ import annotations

import pytest

from gpuready import rules
from gpuready.check.evaluate import judge
from gpuready.model import NOT_STATED, Fact, Facts, Finding, UnknownFactError
from tests.rules.worlds import H100, contract, facts, gpus, judged, outcome, with_hole

HEALTH = ["GPU006", "GPU007", "GPU008", "GPU009", "GPU010", "GPU011", "GPU012", "GPU013", "DRV013"]


# -- what holds for all rules on health ---------------------------------------------------------------


@pytest.mark.parametrize("code", HEALTH)
def test_health_is_nothing_that_a_what_if_can_have(code):
    stated = [Fact(k, v, how="stated") for k, v in H100.items() if k in ("gpu.count", "gpu.visible", "gpu.name")]
    report = judge([rules.load_rule(code)], Facts(stated, "", NOT_STATED), contract())
    assert not report.unstated and not report.undecided and not report.judged


@pytest.mark.parametrize("code", HEALTH)
def test_a_job_for_the_cpu_needs_no_healthy_gpu(code):
    rule = rules.load_rule(code)
    assert outcome(rule, facts(dict(rule.BROKEN) | {"job.wants": ("cpu",)}), contract()) is None


@pytest.mark.parametrize("code", [c for c in HEALTH if c not in ("GPU013",)])
def test_a_machine_without_gpus_has_no_health(code):
    empty = {key: () for key in rules.load_rule(code).BROKEN if key.startswith("gpu.")} | {"gpu.count": 0}
    assert judged(code, empty) is None


@pytest.mark.parametrize(
    ("code", "key"),
    [
        ("GPU006", "gpu.mode"),
        ("GPU008", "gpu.ecc_errors"),
        ("GPU010", "gpu.pcie"),
        ("GPU011", "gpu.throttle"),
        ("GPU012", "gpu.power_limit"),
        ("DRV013", "gpu.persistence"),
    ],
)
def test_a_gpu_without_such_a_thing_leaves_nothing_undecided(code, key):
    healthy = dict(rules.load_rule(code).HEALTHY)
    for gap in ("Not Supported", "N/A", "GPU 0: Not Supported; GPU 1: GPU is lost (NVML 15)"):
        assert with_hole(code, healthy, key, None, gap) is None
    assert isinstance(with_hole(code, healthy, key, None, "No Permission"), UnknownFactError)


def test_one_gpu_convicts_while_another_is_silent():
    machine = gpus(2, mode="default")
    found = with_hole("GPU006", machine, "gpu.mode", ("prohibited", None), "GPU 1: timeout")
    assert "GPU 0" in found.says
    silent = with_hole("GPU006", machine, "gpu.mode", ("default", None), "GPU 1: timeout")
    assert isinstance(silent, UnknownFactError) and "timeout" in silent.fact.gap


def test_a_list_that_is_too_short_is_unknown():
    unknown = judged("GPU006", gpus(2) | {"gpu.mode": ("default",)})
    assert isinstance(unknown, UnknownFactError) and unknown.fact.gap == "unknown for GPU 1"


@pytest.mark.parametrize("code", ["GPU006", "GPU008", "GPU011"])
def test_a_gpu_that_is_not_shown_is_not_judged(code):
    rule = rules.load_rule(code)
    pair = {k: v * 2 if isinstance(v, tuple) else v for k, v in rule.HEALTHY.items()}
    key = {"GPU006": "gpu.mode", "GPU008": "gpu.ecc_errors", "GPU011": "gpu.throttle"}[code]
    pair |= {"gpu.count": 2, "gpu.visible": (0,), key: (rule.HEALTHY[key][0], rule.BROKEN[key][0])}
    assert outcome(rule, facts(pair), contract()) is None
    assert isinstance(outcome(rule, facts(pair | {"gpu.visible": (1,)}), contract()), Finding)


# -- GPU008 and GPU009 --------------------------------------------------------------------------------


def test_errors_are_counted_for_each_gpu():
    found = judged("GPU008", gpus(3, ecc_errors=(0, 2, 0)))
    assert found.severity == "error" and "GPU 1" in found.says and "2 since" in found.says
    assert any("-i 1" in step.does for step in found.fix)


def test_what_the_rows_tell_is_told_once():
    machine = gpus(2, ecc_errors=(1, 0), remap_pending=(0,), remap_failure=())
    assert judged("GPU008", machine) is None
    assert isinstance(judged("GPU009", machine), Finding)
    both = gpus(2, ecc_errors=(1, 4), remap_pending=(0,), remap_failure=())
    assert "GPU 1" in judged("GPU008", both).says


def test_rows_that_cannot_be_replaced_are_graver_than_rows_that_wait():
    machine = gpus(2, remap_pending=(0,), remap_failure=(1,))
    found = judged("GPU009", machine)
    assert found.severity == "error" and "GPU 1" in found.says and "replace" in found.fix[-1].does
    assert found.fix[0].does.endswith("=GPU-0")


def test_rows_of_a_gpu_that_is_not_shown():
    assert judged("GPU009", gpus(2, remap_pending=(1,), remap_failure=()) | {"gpu.visible": (0,)}) is None


def test_a_flag_is_enough_while_another_gpu_is_silent():
    machine = gpus(2, remap_failure=())
    assert isinstance(with_hole("GPU009", machine, "gpu.remap_pending", (0,), "GPU 1: timeout"), Finding)
    assert isinstance(with_hole("GPU009", machine, "gpu.remap_pending", (), "GPU 1: timeout"), UnknownFactError)
    assert with_hole("GPU009", machine, "gpu.remap_pending", (), "GPU 1: GPU is lost (NVML 15)") is None


# -- GPU010 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("now", ["4 x16", "1 x16", "3 x16"])
def test_the_generation_alone_never_counts(now):
    assert judged("GPU010", gpus(1, pcie=now, pcie_max="4 x16")) is None


def test_fewer_lanes_at_full_generation_on_a_data_centre_gpu():
    found = judged("GPU010", gpus(2, pcie=("4 x16", "4 x4"), pcie_max="4 x16"))
    assert found.severity == "warning" and "GPU 1" in found.says and "4 x4 of 4 x16" in found.says


def test_a_link_that_may_be_asleep_is_information():
    assert judged("GPU010", gpus(1, pcie="1 x8", pcie_max="4 x16")).severity == "info"


@pytest.mark.parametrize("name", ["NVIDIA GeForce RTX 3090", "NVIDIA RTX A6000", "a card nobody knows"])
def test_boards_that_share_lanes_are_built_so(name):
    assert judged("GPU010", gpus(2, name, pcie="4 x8", pcie_max="4 x16")).severity == "info"


@pytest.mark.parametrize("name", ["NVIDIA GH200 480GB", "NVIDIA GB200", "NVIDIA GB10", "NVIDIA Thor", "Orin (nvgpu)"])
def test_gpus_that_do_not_speak_pcie_to_their_processor(name):
    assert judged("GPU010", gpus(1, name, pcie="5 x1", pcie_max="5 x16")) is None


@pytest.mark.parametrize("now", ["0 x0", "4 x0", "rubbish", "4 x", "x8"])
def test_a_width_that_was_not_read_is_none(now):
    assert judged("GPU010", gpus(1, pcie=now, pcie_max="4 x16")) is None


# -- GPU011 and GPU012 --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "hw_slowdown, hw_thermal",
        "hw_slowdown, hw_thermal_slowdown",
        "sw_thermal_slowdown",
        "sw_thermal",
        "sw_power_cap, hw_power_brake",
        "hw_power_brake_slowdown",
    ],
)
def test_heat_and_power_brake_in_the_words_of_either_witness(text):
    assert judged("GPU011", gpus(1, throttle=text)).severity == "warning"


@pytest.mark.parametrize(
    "text", ["none", "sw_power_cap", "application_clocks", "applications_clocks_setting", "sync_boost, display_clocks"]
)
def test_what_slows_a_healthy_gpu(text):
    assert judged("GPU011", gpus(1, throttle=text)) is None


def test_a_slowdown_without_a_cause_may_pass():
    assert judged("GPU011", gpus(1, throttle="hw_slowdown")).severity == "info"
    assert judged("GPU011", gpus(2, throttle=("hw_slowdown", "sw_thermal"))).severity == "warning"


@pytest.mark.parametrize(
    ("limit", "severity"), [(700, None), (631, None), (630, None), (600, "info"), (480, "warning")]
)
def test_how_low_a_power_limit_may_be(limit, severity):
    found = judged("GPU012", gpus(1, power_limit=limit, power_limit_default=700))
    assert (found and found.severity) == severity


def test_limits_of_unlike_gpus_are_set_back_one_by_one():
    machine = gpus(3, power_limit=(200, 150, 400), power_limit_default=(400, 300, 400))
    steps = [step.does for step in judged("GPU012", machine).fix]
    assert len(steps) == 2 and steps[0].endswith("-i 0 -pl 400") and steps[1].endswith("-i 1 -pl 300")


def test_laptops_and_unknown_limits():
    laptop = "NVIDIA GeForce RTX 4090 Laptop GPU"
    assert judged("GPU012", gpus(1, laptop, power_limit=80, power_limit_default=150)) is None
    assert judged("GPU012", gpus(1, power_limit=80, power_limit_default=0)) is None
