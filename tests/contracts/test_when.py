"""The grammar of when: which job and which machine bring a row into force."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuready.contracts import when
from gpuready.model import Fact, Facts, UnknownFactError
from tests.every import every


def machine(**values):
    """Facts from keywords; ``gpu__count`` is ``gpu.count``, ``package__flash_attn`` is package.flash-attn."""
    facts = [Fact(k.replace("__", ".", 1).replace("_", "-"), v) for k, v in values.items()]
    return Facts([Fact("python.packages", 3), *facts])


@every(
    ("condition", "facts", "answer"),
    [
        ("", {}, True),
        ("  ", {}, True),
        ("wants=fp8", {"job__wants": ["bf16", "fp8"]}, True),
        ("wants=fp8", {"job__wants": ["bf16"]}, False),
        ("wants=fp8", {"job__wants": None}, False),
        ("wants=fp8", {}, False),
        ("wants=fp8|bf16", {"job__wants": ["bf16"]}, True),
        ("wants=flash-attn", {"job__wants": ["flash_attn"]}, True),
        ("wants!=fp8", {"job__wants": ["bf16"]}, True),
        ("build", {"job__wants": ["build"]}, True),
        ("build", {"job__wants": []}, False),
        ("model>=7b", {"job__parameters": 7_000_000_000}, True),
        ("model>7b", {"job__parameters": 7_000_000_000}, False),
        ("model>7b", {"job__parameters": 8_030_261_248}, True),
        ("model<1.5b", {"job__parameters": 350_000_000}, True),
        ("model>=7b", {}, False),
        ("model>=7b", {"job__parameters": None}, False),
        ("torch>=2.9", {"package__torch": "2.10.0+cu130"}, True),
        ("torch>=2.9", {"package__torch": "2.8.0"}, False),
        ("torch>=2.9", {}, False),
        ("package.accelerate<1.2.0", {"package__accelerate": "1.1.1"}, True),
        ("package.flash-attn>=2.3", {"package__flash_attn": "2.8.3"}, True),
        ("gpus>1", {"gpu__count": 8}, True),
        ("gpus>1", {"gpu__count": 8, "job__gpus": 1}, False),
        ("gpus>1", {"gpu__count": 1, "job__gpus": 4}, True),
        ("platform=cuda", {"platform__name": "cuda"}, True),
        ("platform=cuda", {"platform__name": "cpu"}, False),
        ("platform=cuda", {"platform__name": "cuda", "gpu__vendor": ["amd"]}, True),
        ("platform=cuda", {"gpu__vendor": ["nvidia"]}, True),
        ("platform=cuda", {"gpu__vendor": []}, False),
        ("platform=cuda", {"gpu__vendor": ["amd"]}, False),
        ("platform=rocm", {"gpu__vendor": ["amd", "amd"]}, True),
        ("platform=cuda|rocm", {"gpu__vendor": ["amd"]}, True),
        ("python<3.12", {"python__version": "3.11.7"}, True),
        ("arch=aarch64", {"os__arch": "aarch64"}, True),
        ("arch!=aarch64", {"os__arch": "aarch64"}, False),
        ("arch!=aarch64", {"os__arch": "x86_64"}, True),
        ("os.name=ubuntu", {"os__name": "ubuntu"}, True),
        ("gpu.capability>=10.0", {"gpu__capability": ["9.0", "10.0"]}, True),
        ("gpu.capability>=10.0", {"gpu__capability": ["9.0", "8.0"]}, False),
        ("wants=fp8,gpus>1", {"job__wants": ["fp8"], "gpu__count": 2}, True),
        ("wants=fp8,gpus>1", {"job__wants": ["fp8"], "gpu__count": 1}, False),
        ("torch>=2.9.1,torch<2.10", {"package__torch": "2.9.1"}, True),
        ("torch>=2.9.1,torch<2.10", {"package__torch": "2.10.0"}, False),
    ],
)
def test_a_condition_reads_the_job_and_the_machine(condition, facts, answer):
    assert when.condition_applies(condition, machine(**facts)) is answer


@pytest.mark.parametrize("condition", ["gpus>1", "platform=cuda", "python>=3.11", "arch=x86_64", "os.name=ubuntu"])
def test_what_nobody_could_see_is_unknown_and_not_false(condition):
    with pytest.raises(UnknownFactError):
        when.condition_applies(condition, machine())


def test_an_unreadable_job_is_unknown_but_a_silent_one_is_not():
    unreadable = Facts([Fact("job.parameters", None, gap="config.json is not JSON")])
    with pytest.raises(UnknownFactError, match=r"config\.json"):
        when.condition_applies("model>=7b", unreadable)
    assert when.condition_applies("model>=7b", Facts([])) is False


def test_packages_are_as_unknown_as_their_listing():
    with pytest.raises(UnknownFactError):
        when.condition_applies("torch>=2.9", Facts([Fact("python.packages", None, gap="site-packages cannot be read")]))


@pytest.mark.parametrize(
    "condition",
    [
        "wants",
        "fp8",
        "wants>=fp8",
        "wants=",
        "wants=fp8,,gpus>1",
        "arch>=aarch64",
        "model>=huge",
        "model=7b",
        "torch=2.9",
        "torch>=banana",
        "gpus=many",
        "unknown>=3",
        "wants=fp8; rm -rf /",
        "wants=$(id)",
        "torch >= ",
        ",",
    ],
)
def test_a_malformed_condition_is_refused_in_one_sentence(condition):
    with pytest.raises(ValueError) as caught:
        when.check_condition(condition)
    assert str(caught.value) and "\n" not in str(caught.value)


def test_a_condition_says_which_facts_it_reads():
    assert when.condition_keys("wants=fp8,torch>=2.9,gpu.capability>=9.0") == [
        "job.wants",
        "package.torch",
        "gpu.capability",
    ]
    assert when.condition_keys("") == []


@given(st.text(max_size=60))
def test_no_text_breaks_the_check_other_than_with_a_sentence(text):
    try:
        when.check_condition(text)
    except ValueError as error:
        assert str(error)


@given(st.floats(0.1, 999, allow_nan=False), st.sampled_from("kmb"))
def test_sizes_of_models_grow_with_their_number(number, unit):
    text = f"{number:.1f}"
    size = when.parse_model_size(text + unit)
    assert size == round(float(text) * {"k": 1e3, "m": 1e6, "b": 1e9}[unit])
    assert when.condition_applies(f"model>={text}{unit}", machine(job__parameters=size))
    assert not when.condition_applies(f"model>{text}{unit}", machine(job__parameters=size))
