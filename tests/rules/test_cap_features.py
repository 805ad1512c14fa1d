"""What the job asks for and the GPUs, the platform or the packages do not have."""

from __future__ import annotations

import pytest

from gpuready import contracts, rules
from gpuready.check.evaluate import judge
from gpuready.model import Finding, UnknownFactError
from gpuready.rules import capability_floors
from tests.rules.worlds import H100, contract, facts, judged, need

DARK = "no /sys here"

NAMES = {
    "5.2": "NVIDIA GeForce GTX 980",
    "6.0": "Tesla P100-PCIE-16GB",
    "6.1": "Tesla P40",
    "7.0": "Tesla V100-SXM2-16GB",
    "7.5": "Tesla T4",
    "8.0": "NVIDIA A100-SXM4-80GB",
    "8.6": "NVIDIA A40",
    "8.9": "NVIDIA L40S",
    "9.0": "NVIDIA H100 80GB HBM3",
    "10.0": "NVIDIA B200",
    "11.0": "NVIDIA Thor",
    "12.0": "NVIDIA GeForce RTX 5090",
}


def on(*capabilities, wants=(), **more):
    """GPUs of these capabilities, and what the job asks for."""
    return H100 | {
        "gpu.count": len(capabilities),
        "gpu.visible": tuple(range(len(capabilities))),
        "gpu.capability": capabilities,
        "gpu.name": tuple(NAMES[c] for c in capabilities),
        "job.wants": wants,
        **more,
    }


def severity(found):
    return found.severity if found else None


def offers(*names, **fields):
    return contract(capabilities=[{"name": name, "gate": name.replace("-", "_")} for name in names], **fields)


# -- the shared look ----------------------------------------------------------------------------------


def test_a_feature_that_is_not_asked_for_is_nobodys_trouble():
    assert capability_floors.gpus_without_feature(facts(on("5.2")), contract(), "torch_compile") == {}
    assert capability_floors.gpus_without_feature(
        facts(on("5.2", wants=("compile",))), contract(), "torch_compile"
    ) == {0: "5.2"}


def test_both_ends_of_what_a_feature_takes():
    asked = ("flash-attn-4",)
    unfit = {
        c: bool(capability_floors.gpus_without_feature(facts(on(c, wants=asked)), contract(), "flash_attention_4"))
        for c in NAMES
    }
    assert [c for c, is_unfit in unfit.items() if not is_unfit] == ["9.0", "10.0"]


def test_a_floor_of_the_contract_is_told_by_another_rule():
    required = contract(need("gpu.capability", ">=8.0", when="wants=flash-attn"))
    t4 = on("7.5", wants=("flash-attn",))
    assert isinstance(judged("GPU005", t4, required), Finding) and judged("CAP005", t4, required) is None
    recommended = contract(need("gpu.capability", ">=8.0", when="wants=flash-attn", level="recommended"))
    assert judged("CAP005", t4, recommended).severity == "error", "a warning there does not say that it fails"


def test_what_is_needed_in_a_line():
    assert (
        capability_floors.feature_need("flash_attention_3").want == "==9.0"
        and capability_floors.feature_need("tf32").want == ">=8.0"
    )
    assert (
        capability_floors.feature_need("flash_attention_2").want == ">=8.0,<=12.1"
        and capability_floors.feature_need("tf32").cite
    )


@pytest.mark.parametrize("code", ["CAP003", "CAP004", "CAP005", "CAP006", "CAP007", "CAP008"])
def test_gpus_that_nobody_could_see(code):
    asked = on("5.2", wants=("fp16", "tf32", "flash-attn", "bnb-4bit", "torch-compile", "xformers"))
    assert isinstance(judged(code, asked, offers("tf32"), gpu_capability="not supported"), UnknownFactError)
    assert judged(code, on("5.2"), offers("tf32"), gpu_capability="not supported") is None
    none = asked | {"gpu.count": 0, "gpu.visible": ()}
    assert judged(code, none, offers("tf32")) is None


# -- CAP003 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "capability, slow", [("5.2", True), ("6.0", False), ("6.1", True), ("7.0", False), ("9.0", False)]
)
def test_fp16_that_is_slower_than_fp32(capability, slow):
    found = judged("CAP003", on(capability, wants=("fp16",)))
    assert severity(found) == ("warning" if slow else None)
    assert judged("CAP003", on(capability, wants=("bf16",))) is None


def test_of_mixed_gpus_the_slow_one_is_named():
    found = judged("CAP003", on("7.0", "6.1", wants=("float16",)))
    assert found.says == "fp16 is slower than fp32 on GPU 1 (Tesla P40, 6.1)"


# -- CAP004 -------------------------------------------------------------------------------------------


def test_tf32_begins_with_ampere():
    asked = ("tf32",)
    assert judged("CAP004", on("7.5", wants=asked), offers("tf32")).severity == "error"
    assert judged("CAP004", on("8.0", wants=asked), offers("tf32")) is None
    assert judged("CAP004", on("7.5", wants=asked)) is None, "without the Trainer the switch does nothing"


# -- CAP005 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "word, capability, expected",
    [
        ("flash-attn", "7.5", "error"),
        ("flash-attn", "8.0", None),
        ("flash-attn", "12.0", None),
        ("flash-attn-3", "9.0", None),
        ("flash-attn-3", "8.0", "warning"),
        ("flash-attn-3", "7.5", "error"),
        ("flash-attn-3", "10.0", "error"),
        ("flash-attn-4", "8.9", "error"),
        ("flash-attn-4", "9.0", None),
        ("flash-attn-4", "10.0", None),
        ("flash-attn-4", "11.0", "warning"),
        ("flash-attn-4", "12.0", "error"),
        ("fa2", "7.0", "error"),
    ],
)
def test_three_kinds_of_flash_attention(word, capability, expected):
    assert severity(judged("CAP005", on(capability, wants=(word,)))) == expected


def test_a_framework_that_quietly_takes_another():
    agreed = contract(capabilities=[{"name": "flash-attn-4", "traits": ("falls-back",)}])
    found = judged("CAP005", on("8.9", wants=("flash-attn-4",)), agreed)
    assert found.severity == "warning" and "another attention" in found.so


def test_two_kinds_at_once():
    found = judged("CAP005", on("7.5", wants=("flash-attn", "flash-attn-3")))
    assert found.says == "not supported on the GPU (Tesla T4, 7.5): flash-attn and flash-attn-3"
    assert len(found.needs) == 2


# -- CAP006 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "word, capability, expected",
    [
        ("bnb-4bit", "5.2", "error"),
        ("qlora", "5.2", "error"),
        ("bnb-4bit", "6.0", None),
        ("bnb-8bit", "7.0", "warning"),
        ("bnb-8bit", "6.1", "warning"),
        ("bnb-8bit", "7.5", None),
        ("gptq", "5.2", None),
    ],
)
def test_bits_that_bitsandbytes_has_no_code_for(word, capability, expected):
    assert severity(judged("CAP006", on(capability, wants=(word,)))) == expected


def test_four_bits_are_proposed_for_eight():
    found = judged("CAP006", on("7.0", wants=("bnb-8bit",)))
    assert "8 bits" in found.says and found.fix[0].does == "use 4 bits instead of 8"
    both = judged("CAP006", on("5.2", wants=("bnb-4bit", "bnb-8bit")))
    assert both.severity == "error" and "4 and 8 bits" in both.says


# -- CAP007 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["torch-compile", "compile", "liger", "flex-attention"])
def test_triton_begins_with_volta(word):
    assert judged("CAP007", on("6.1", wants=(word,))).severity == "error"
    assert judged("CAP007", on("7.0", wants=(word,))) is None


def test_what_needs_triton_is_named():
    found = judged("CAP007", on("6.0", wants=("torch-compile", "liger")))
    assert found.says.startswith("torch-compile and liger needs Triton")
    assert judged("CAP007", on("6.0", wants=("sdpa",))) is None


# -- CAP008 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "capability, version, reported",
    [
        ("7.0", "0.0.33.post2", True),
        ("7.0", "0.0.31", True),
        ("7.0", "0.0.30", False),
        ("7.5", "0.0.33", False),
        ("7.0", "0.0.33+abc.d20250901", False),
        ("7.0", None, False),
    ],
)
def test_the_wheels_of_xformers(capability, version, reported):
    found = judged("CAP008", on(capability, wants=("xformers",), **{"package.xformers": version}))
    assert severity(found) == ("error" if reported else None)


# -- CAP009 -------------------------------------------------------------------------------------------

SAGE = offers("sage-attention", "fp8")


def test_a_package_that_the_contract_does_not_list():
    found = judged("CAP009", H100 | {"job.wants": ("sage-attention",)}, SAGE)
    assert found.severity == "error" and "sageattention is not installed" in found.says
    assert found.fix[0].run[-1] == "sageattention"
    there = {"job.wants": ("sage-attention",), "package.sageattention": "2.2.0"}
    assert judged("CAP009", H100 | there, SAGE) is None


def test_what_the_contract_lists_is_told_once():
    listed = contract(
        need("package.sageattention", "*", when="wants=sage-attention"), capabilities=[{"name": "sage-attention"}]
    )
    values = H100 | {"job.wants": ("sage-attention",)}
    assert judged("CAP009", values, listed) is None and isinstance(judged("PKG002", values, listed), Finding)


def test_what_the_framework_does_not_offer_is_left_alone():
    assert judged("CAP009", H100 | {"job.wants": ("sage-attention", "vllm")}) is None
    assert judged("CAP009", H100 | {"job.wants": ("bf16",)}, SAGE) is None


def test_fp8_needs_one_of_three_under_accelerate():
    trainer = offers("fp8", framework="transformers")
    values = H100 | {"job.wants": ("fp8",)}
    found = judged("CAP009", values, trainer)
    assert "torchao is not installed" in found.says and len(found.found) == 4
    for name in ("torchao", "transformer-engine", "ms-amp"):
        assert judged("CAP009", values | {f"package.{name}": "1.0"}, trainer) is None
    assert judged("CAP009", values, offers("fp8")) is None, "others have fp8 of their own"


def test_an_empty_environment_has_other_news():
    values = H100 | {"job.wants": ("sage-attention",), "package.torch": None}
    assert judged("CAP009", values, SAGE) is None
    assert isinstance(judged("CAP009", values, SAGE, package_torch="no listing"), UnknownFactError)


# -- CAP010, CAP011 -----------------------------------------------------------------------------------


def test_experts_in_fp8_under_roll():
    roll = contracts.load_contract("roll")
    found = judged("CAP010", {"job.wants": ("fp8", "moe")}, roll)
    assert found.severity == "info" and "by block only" in found.says
    assert judged("CAP010", {"job.wants": ("fp8",)}, roll) is None
    assert judged("CAP010", {"job.wants": ("moe",)}, roll) is None
    assert judged("CAP010", {"job.wants": ("fp8", "moe")}, contracts.load_contract("transformers")) is None


@pytest.mark.parametrize("framework, reported", [("transformers", True), ("axolotl", True), ("roll", False)])
def test_two_precisions_at_once(framework, reported):
    both = {"job.wants": ("bf16", "float16")}
    assert severity(judged("CAP011", both, contract(framework=framework))) == ("warning" if reported else None)
    assert judged("CAP011", {"job.wants": ("fp16",)}, contract(framework=framework)) is None


# -- CAP012 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "platform, word, reported",
    [
        ("mps", "flash-attn", True),
        ("mps", "liger", True),
        ("mps", "nvfp4", True),
        ("mps", "sdpa", False),
        ("npu", "flash-attn", False),
        ("npu", "deepgemm", True),
        ("rocm", "flash-attn", False),
        ("rocm", "flash-attn-4", True),
        ("cuda", "nvfp4", False),
        ("xpu", "nvfp4", False),
        ("cpu", "nvfp4", False),
    ],
)
def test_what_other_platforms_do_not_have(platform, word, reported):
    takes = contract(platforms=["cuda", "rocm", "mps", "npu"])
    found = judged("CAP012", {"job.wants": (word,), "platform.name": platform}, takes)
    assert severity(found) == ("error" if reported else None)


def test_a_platform_that_nobody_could_see():
    takes = contract(platforms=["cuda", "mps"])
    assert isinstance(judged("CAP012", {"job.wants": ("liger",)}, takes, platform_name=DARK), UnknownFactError)
    assert judged("CAP012", {"job.wants": ("bf16",)}, takes, platform_name=DARK) is None


# -- all of them together -----------------------------------------------------------------------------

EVERYTHING = (
    "bf16",
    "fp16",
    "tf32",
    "fp8",
    "flash-attn",
    "flash-attn-3",
    "bnb-8bit",
    "torch-compile",
    "xformers",
    "liger",
)


@pytest.mark.parametrize("framework", ["transformers", "axolotl", "roll", "colossalai"])
def test_one_feature_has_one_error(framework):
    """What GPU005 tells of a word with an error, no rule of this family tells again."""
    agreed = contracts.load_contract(framework)
    for word in EVERYTHING:
        oldest = "7.0" if framework == "roll" else "6.1"  # the oldest that the contract itself takes
        report = judge(rules.load_all_rules(), facts(on(oldest, wants=(word,))), agreed)
        result = [
            f.code for f in report.findings if f.severity == "error" and (f.code[:3] == "CAP" or f.code == "GPU005")
        ]
        about = [code for code in result if code not in ("CAP009",)]
        assert len(about) <= 1, (word, result)


def test_a_new_gpu_has_it_all():
    for framework in ("transformers", "axolotl"):
        report = judge(rules.load_all_rules(), facts(on("9.0", wants=EVERYTHING)), contracts.load_contract(framework))
        grave = [f for f in report.findings if f.code[:3] == "CAP" and f.severity == "error"]
        assert [f.code for f in grave] in ([], ["CAP009"]), "only packages may be missing"
