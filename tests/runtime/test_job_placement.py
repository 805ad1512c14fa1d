"""On which device and in which precision a framework will run a job: the rules of its page, on a machine's facts."""

from __future__ import annotations

import pytest

from gpuready import contracts, workflow
from gpuready.model import Fact, Facts
from gpuready.render.check_report import render_check_screen
from gpuready.render.layout import Screen
from gpuready.runtime.job_placement import FRAMEWORKS, available_devices, predict_job_placement

H100X8 = {
    "platform.name": "cuda",
    "gpu.count": 8,
    "gpu.name": ("NVIDIA H100 80GB HBM3",) * 8,
    "gpu.capability": ("9.0",) * 8,
    "package.flash-attn": "2.8.3",
}


def predict(framework: str, options: dict | None = None, **values):
    facts = Facts([Fact(key.replace("_", ".", 1), value) for key, value in values.items()])
    known = Facts([Fact(key, value) for key, value in H100X8.items()]).with_facts(*facts)
    found = predict_job_placement(known, contracts.load_contract(framework, None, None), options or {})
    return {fact.key: fact for fact in found}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_one_rank_per_gpu_and_the_precision_that_the_job_asks_for(framework):
    found = predict(framework, job_wants=("bf16",))
    assert found["job.device"].value == "cuda:0 to cuda:7" and "nccl" in found["job.device"].source
    assert (found["job.precision"].value, found["job.precision"].source) == ("bf16", "the job asks for bf16")
    assert found["job.attention"].value == "flash-attn"
    assert all(fact.source and fact.how == "stated" for fact in found.values())


@pytest.mark.parametrize(
    ("capability", "precision"), [("9.0", "bf16"), ("8.0", "bf16"), ("7.5", "fp16"), ("7.0", "fp16")]
)
def test_auto_takes_what_the_oldest_gpu_has(capability, precision):
    found = predict("axolotl", {"auto_precision": True}, gpu_capability=("9.0", capability))["job.precision"]
    assert found.value == precision and "auto" in found.source


def test_a_precision_that_the_gpu_has_not_is_named_with_the_one_that_it_has():
    found = predict("roll", job_wants=("bf16",), gpu_capability=("7.0",))["job.precision"]
    assert found.value == "bf16" and "sm_70 does not have natively; fp16 would be" in found.source


def test_a_job_that_states_no_precision_leaves_it_unknown():
    found = predict("transformers")["job.precision"]
    assert found.value is None and "states no precision" in found.gap and "bf16" in found.gap


@pytest.mark.parametrize(("wants", "scaled"), [(("fp8",), "per-tensor or per-block"), (("fp8", "moe"), "per-block")])
def test_roll_scales_fp8_by_the_kind_of_model(wants, scaled):
    assert predict("roll", job_wants=wants)["job.precision"].source.endswith(f"scaled {scaled}")


@pytest.mark.parametrize(
    ("values", "device"),
    [
        ({"gpu_visible": (0,)}, "cuda:0"),
        ({"job_gpus": 2}, "cuda:0 to cuda:1"),
        ({"gpu_count": 0}, "cpu"),
        ({"gpu_visible": ()}, "cpu"),
        ({"torch_build": "cpu"}, "cpu"),
        ({"platform_name": "cpu"}, "cpu"),
        ({"platform_name": "mps", "gpu_count": 1}, "mps"),
        ({"platform_name": "xpu", "gpu_count": 1}, "cpu"),  # axolotl has no rule for it
    ],
)
def test_the_device_follows_the_machine(values, device):
    assert predict("axolotl", **values)["job.device"].value == device


def test_the_reasons_have_the_device_map_and_who_moves_the_model():
    moved = predict("transformers", gpu_count=1, job_wants=("bnb-4bit",))["job.device"].source
    assert "device_map is {'': 0}" in moved and "moves the model there at once" in moved
    for options, wants in (({}, ("fsdp",)), ({}, ("deepspeed",)), ({"device_map": {"a": 0, "b": 1}}, ())):
        source = predict("transformers", options, job_wants=wants)["job.device"].source
        assert "does not move the model itself" in source
    assert "device_map is npu:0" in predict("axolotl", platform_name="npu", gpu_count=1)["job.device"].source


def test_an_unknown_platform_is_a_gap_and_an_unknown_framework_has_no_rules():
    unknown = Facts([Fact("platform.name", None, gap="cannot be read")])
    found = predict_job_placement(unknown, contracts.load_contract("axolotl", None, None), {})
    assert [fact.gap for fact in found] == ["platform.name: cannot be read"] * 2
    assert predict_job_placement(unknown, contracts.load_contract("vllm", None, None), {}) == []
    assert available_devices(Facts([Fact("platform.name", "something-new")])) == {"cpu"}


def test_check_with_a_config_has_them_in_its_report_and_on_the_verbose_screen(tmp_path):
    config = tmp_path / "job.yml"
    config.write_text("base_model: meta-llama/Llama-3.1-8B\nbf16: auto\nload_in_4bit: true\nadapter: qlora\n")
    (report,) = workflow.check_machine(["axolotl"], on="v100", config=str(config))
    keys = {fact["key"]: fact for fact in report.to_json()["facts"]}
    assert keys["job.device"]["value"] == "cuda:0" and keys["job.precision"]["value"] == "fp16"
    text = render_check_screen(report, Screen(), verbose=True)
    assert "device: cuda:0" in text and "precision: fp16 (the job says auto" in text
    assert "attention: not known (package.flash-attn: not given)" in text, "not given is not absent"
    assert "precision:" not in render_check_screen(report, Screen())
    (without,) = workflow.check_machine(["axolotl"], on="v100")
    assert not [fact for fact in without.facts if fact.key in ("job.device", "job.precision", "job.attention")]


def test_attention_is_known_where_the_packages_are():
    assert predict("axolotl", **{"package_flash-attn": None, "package_xformers": None})["job.attention"].value == "sdpa"
    unread = Facts([Fact("package.flash-attn", None, gap="cannot be read")])
    known = Facts([Fact(key, value) for key, value in H100X8.items()]).with_facts(*unread)
    found = predict_job_placement(known, contracts.load_contract("axolotl", None, None), {})[2]
    assert found.value is None and found.gap == "package.flash-attn: cannot be read"
