"""Secrets do not pass, and nothing else is touched."""

from __future__ import annotations

import random
import string

import pytest

from gpuready.system import redact_text, redact_value
from gpuready.system.redaction.text import may_contain_secret, redact_json
from tests.every import every
from tests.system.redact_texts import HARMLESS, SECRETS, A


def test_the_tables_are_large_enough():
    assert len(SECRETS) >= 60
    assert len({kind for kind, _, _ in SECRETS}) >= 30
    assert len(HARMLESS) >= 60


@every(("kind", "text", "secret"), SECRETS, ids=[f"{i}-{s[0]}" for i, s in enumerate(SECRETS)])
def test_a_secret_does_not_pass(kind, text, secret):
    shown = redact_text(text)
    assert secret not in shown
    assert "[redacted]" in shown
    for size in (6, 10):  # nor does a part of it
        pieces = {secret[i : i + size] for i in range(0, max(len(secret) - size, 1), size)}
        assert not any(piece in shown for piece in pieces if len(piece) == size)


@every(("kind", "text", "secret"), SECRETS, ids=[f"{i}-{s[0]}" for i, s in enumerate(SECRETS)])
def test_nor_in_the_midst_of_other_text(kind, text, secret):
    shown = redact_text(f"2026-01-01 12:00:00 worker 3 said\n{text}\nand went on: 12 tokens/s\n")
    assert secret not in shown
    assert shown.startswith("2026-01-01 12:00:00 worker 3 said\n")
    if "BEGIN" not in text or "END" in text:
        assert shown.endswith("\nand went on: 12 tokens/s\n")


@every(("kind", "text", "secret"), SECRETS, ids=[f"{i}-{s[0]}" for i, s in enumerate(SECRETS)])
def test_what_is_redacted_stays_as_it_is(kind, text, secret):
    once = redact_text(text)
    assert redact_text(once) == once


@every("text", HARMLESS)
def test_what_is_no_secret_is_not_touched(text):
    assert redact_text(text) == text
    around = f"before\n{text}\nafter"
    assert redact_text(around) == around


# -- what stays


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://me:pw@host:8080/a?b=c", "https://me:[redacted]@host:8080/a?b=c"),
        (f"https://{A}@github.com/a/b", "https://[redacted]@github.com/a/b"),
        ("HF_TOKEN=abcdefgh CUDA=1", "HF_TOKEN=[redacted] CUDA=1"),
        ('{"api_key": "abcdef", "model": "x"}', '{"api_key": "[redacted]", "model": "x"}'),
        ("Password=abc;Server=db", "Password=[redacted];Server=db"),
        ("f(token='abcdef', n=1)", "f(token='[redacted]', n=1)"),
        (f"Authorization: Bearer {A}", "Authorization: Bearer [redacted]"),
        ("prog --password hunter2 -v", "prog --password [redacted] -v"),
        ("machine h login u password p4ssw0rd", "machine h login u password [redacted]"),
        (
            "-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----",
            "-----BEGIN PRIVATE KEY-----[redacted]-----END PRIVATE KEY-----",
        ),
        ("https://x/?a=1&access_token=abc123&b=2", "https://x/?a=1&access_token=[redacted]&b=2"),
        (f"https://hooks.slack.com/services/T0/B0/{A}", "https://hooks.slack.com/services/[redacted]"),
        ("<password>abc123</password>", "<password>[redacted]</password>"),
        ("password=a,b, user=me", "password=[redacted], user=me"),
        ("two: https://a:b1@c and https://d:e2@f", "two: https://a:[redacted]@c and https://d:[redacted]@f"),
        ("İ İ İ token=abc123def456 é", "İ İ İ token=[redacted] é"),
    ],
)
def test_what_stands_around_a_secret_stays(text, shown):
    assert redact_text(text) == shown


def test_plain_data_is_redacted_by_key_and_by_option():
    data = {
        "argv": ["prog", "--token", "abc", "--name", "x", "--password", "-v", "--api-key=abcdef"],
        "env": {"HF_TOKEN": "abc", "N": 1, "OK": None},
        "nested": [{"secret": "abc"}, ["https://u:p@h/"]],
        "rows": ({"pid": 5, "used": True},),
    }
    assert redact_json(data) == {
        "argv": ["prog", "--token", "[redacted]", "--name", "x", "--password", "-v", "--api-key=[redacted]"],
        "env": {"HF_TOKEN": "[redacted]", "N": 1, "OK": None},
        "nested": [{"secret": "[redacted]"}, ["https://u:[redacted]@h/"]],
        "rows": ({"pid": 5, "used": True},),
    }
    assert redact_json({1: "https://u:p@h/"}) == {1: "https://u:[redacted]@h/"}


def test_what_is_asked_of_all_at_once_is_what_is_found_one_by_one():
    """Every secret of the tables, in every place of a fact, is seen by the one question too."""
    token = "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz012345"
    for place in (
        token,
        ("a", token),
        {"x": [token]},
        {"api_key": "Zx81kPq0vLm3Tn5Rb7Yc9Wd2Ef4Gh6Jk"},
        ["--password", "hunter2hunter2Hunter"],
        {"url": f"https://me:{token}@example.invalid/x"},
        [("k", {"deep": {"token": token}})],
    ):
        assert redact_json(place) != place, place
        assert may_contain_secret(place), place
    assert not may_contain_secret(
        [("gpu.name", ("NVIDIA H200",), "NVML", "read", ""), {"requires": ["tokenizers>=0.2"]}]
    )


# -- two hundred at once


def test_two_hundred_seeded_secrets():
    pick = random.Random(7)

    def mint(size):
        return "".join(pick.choice(string.ascii_letters + string.digits) for _ in range(size))

    forms = [
        *(lambda s: f"hf_{s}", lambda s: f"ghp_{s}", lambda s: f"MY_API_TOKEN={s}", lambda s: f'"password": "{s}"'),
        *(lambda s: f"https://me:{s}@host/x", lambda s: f"https://x.org/?token={s}", lambda s: f"--secret {s}"),
        *(lambda s: f"Authorization: Bearer {s}", lambda s: f"machine h login u password {s}", lambda s: f"glpat-{s}"),
    ]
    seeds = [mint(pick.randint(34, 48)) for _ in range(200)]
    text = "\n".join(f"line {i}: {forms[i % len(forms)](seed)} end" for i, seed in enumerate(seeds))
    shown = redact_text(text)
    assert [seed for seed in seeds if seed in shown] == []
    assert shown.count(" end") == 200
    assert redact_value("LOG", text) == shown
