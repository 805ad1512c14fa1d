"""A secret does not pass wherever it stands; what only looks like such a place stays as it is."""

from __future__ import annotations

import json

import pytest

from gpuready.system import redact_text
from gpuready.system.redaction.lines import redact_lines
from gpuready.system.redaction.secret_names import is_surely_generated
from gpuready.system.redaction.text import may_contain_secret, redact_json
from tests.every import every
from tests.secrets.seeded import HEX, Mint
from tests.secrets.shown import HARMLESS, LEAKS

FIRST = ("Kubernetes, the value first",)
"""Line by line, what stands before its name has been shown already when the name comes."""


def samples(where: str) -> list[tuple[str, tuple[str, ...]]]:
    mint = Mint(21)
    found = []
    for size in (32, 40, 24):
        while not is_surely_generated(body := mint.mixed(size)):
            pass
        words = {"S": body, "P": f"Tr0ub{mint.mixed(6)}", "H": mint.mixed(32, HEX)}
        used = tuple(words[name] for name in words if f"{{{name}}}" in LEAKS[where])
        found.append((LEAKS[where].format(**words), used))
    return found


@every("where", LEAKS)
def test_a_secret_does_not_pass(where):
    for text, secrets in samples(where):
        for form in (text, f"before\n{text}\nafter", json.dumps({"line": text}), repr(text)):
            shown = redact_text(form)
            assert [s for s in secrets if s in shown] == [], form
            assert redact_text(shown) == shown, form
        assert redact_text(f"before\n\n{text}\n\nafter").endswith("after")


@every("where", [where for where in LEAKS if where not in FIRST])
def test_nor_line_by_line(where):
    for text, secrets in samples(where):
        shown = "\n".join(redact_lines(["before", *text.split("\n"), "after"]))
        assert [s for s in secrets if s in shown] == [], text


@every("text", HARMLESS)
def test_what_is_near_a_name_and_no_secret_stays(text):
    assert redact_text(text) == text
    assert redact_text(f"before\n{text}\nafter") == f"before\n{text}\nafter"


S, P = "Zx81kPq0vLm3Tn5Rb7Yc9Wd2Ef4Gh6Jk", "hunter2horse"
DATA = [
    {"HF_TOKEN": ["abcdefgh"]}, {"password": ["hunter2horse"]}, {"HF_TOKEN": {"value": S}}, {"key": "HF_TOKEN", "value": S},
    {"Name": "HF_TOKEN", "Value": S}, [[S, "HF_TOKEN"]], ["env", "HF_TOKEN", S], {f"https://me:{P}@h": 1}, {f"hf_{S}": 1},
    ["docker", "login", "-p", P], ["curl", "-u", f"me:{P}", "https://example.org"], {"password": 12345678},
    {"secrets": {"hub": {"default": S}}}, ["train.py", "--token", S], [("k", {"deep": [{"token": S}]})],
]  # fmt: skip


@pytest.mark.parametrize("data", DATA)
def test_nor_in_plain_data(data):
    shown = repr(redact_json(data))
    assert S not in shown and P not in shown and "12345678" not in shown and "abcdefgh" not in shown
    assert may_contain_secret(data)


CLEAN = [
    {"tokens": ["Hello", "world2"]}, {"requires": ["tokenizers>=0.21", "tiktoken"]}, ["docker", "run", "--user", "app:video", "image"],
    ["train.py", "--max-tokens", "4096", "--name", "a b"], {"name": "gpu.count", "value": 8}, {"token_type_ids": [0, 1, 101]}, {"password": None},
    [["HF_HOME", "/data"], ["NCCL_DEBUG", "INFO"]], ("HF_TOKEN", "WANDB_API_KEY", "PATH"), {"key": "torch.version", "value": "2.9.1+cu128"},
]  # fmt: skip


@pytest.mark.parametrize("data", CLEAN)
def test_plain_data_without_one_stays(data):
    assert redact_json(data) == data


def test_a_command_keeps_its_other_words():
    requested = ["docker", "login", "-u", "me", "-p", P, "registry.example.org", "a note"]
    assert redact_json(requested) == [*requested[:5], "[redacted]", *requested[6:]]


def test_what_nothing_but_a_machine_makes():
    assert (
        is_surely_generated(S)
        and is_surely_generated("9f86d081884c7d659a2feaa0c55ad015")
        and is_surely_generated("wJalrXUtnFEMI/K7MDENG/bPxRfiCY3EXAMPLEKEY9x2Q7")
    )
    for word in (
        "Qwen2ForCausalLM",
        "LlamaTokenizerFast2024",
        "PIP_DISABLE_PIP_VERSION_CHECK",
        "20261115204131",
        "nvidia-cublas-cu12",
        "hunter2horse",
    ):
        assert not is_surely_generated(word), word


def test_names_that_announce_nothing_need_no_pattern():
    facts = [
        ("package.requires", ('blobfile; extra == "tiktoken"', "mistral-common[image]>=1.11.7", "HF_TOKEN, HUGGING_FACE_HUB_TOKEN")),
        {"hub.token": None, "eos_token": "</s>", "max_tokens": 4096},
    ]  # fmt: skip
    assert not may_contain_secret(facts)
