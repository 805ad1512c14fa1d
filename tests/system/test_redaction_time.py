"""Redaction takes as long as the text is, whatever the text."""

from __future__ import annotations

import re
import time

import pytest

from gpuready.system import redact_text
from gpuready.system.redaction.secret_patterns import _TOKENS, ADDRESSES, PHRASES
from tests.sampling import FUZZ

TIMES = 8
"""How much longer the long text is than the short one."""
MOST = 3 * TIMES
"""How much more time it may take: as much as it is longer, and the noise of a machine at work. A square takes 64 times."""

HINTS = [*_TOKENS, *(h for h, _, _ in (*PHRASES, *ADDRESSES)), "token", "secret", "pass", "key", "auth", "://"]
HOSTILE = [
    *HINTS,
    *("token=", "token=a://", "token=/a/", 'token="', "token='\\", "--token ", "password: ", "cookie=", "?sig="),
    *("<password>", "://u:p@", "://u:p/", "://a:b", "login a ", "eyJaaaaaaaa.", "key=;a", "password=,a", "&key="),
    *("-----BEGIN PRIVATE KEY-----", "-----BEGIN ", "a", "_", "=", "@", "docker login ", "authorization: ", "İtoken="),
    *(
        "token is ",
        "API key ",
        "--token\n",
        "token: |\n  ",
        "password: |\n  a1\n",
        "token=[",
        "token=['",
        "token=(a,",
        "token\n- ",
        "token was is:",
    ),
    *(
        "value: x, name: token ",
        "value=x name=token\n",
        "'a', 'token')",
        "auth=('a', 'b",
        'authorization: Digest a="b", ',
        "secret\\u001b[0m",
    ),
    *("://a:" + "b" * 200, "token=" + "/a" * 300, "key " * 3, 'token="' + "\\" * 99, "%3a%2f%2f%3a"),
]


def growth(use, piece, size, tries):
    """How much more of the processor's time a text takes than an eighth of it; the best of some tries, as noise only adds."""
    long = (piece * (size // len(piece) + 1))[:size]
    short = long[: size // TIMES]
    return min(cost(use, long) for _ in range(tries)) / min(cost(use, short) for _ in range(tries + 2))


def cost(use, text):
    begun = time.thread_time()  # others that run meanwhile do not count
    use(text)
    return max(time.thread_time() - begun, 1e-6)


def test_ordinary_text_is_cheap():
    text = "\n".join(
        f"processor : {i}\nmodel name : AMD EPYC 9554 64-Core\nMemTotal: 528280000 kB\nshard {i} of 12\n"
        for i in range(200)
    )
    assert redact_text(text) == text


@pytest.mark.parametrize("size", [1 << 17 if FUZZ else 1 << 14])
def test_no_text_makes_it_slow(size):
    """Eight times the text takes about eight times the time, whatever the text repeats."""
    for piece in HOSTILE:
        if growth(redact_text, piece, size, 1) > MOST:  # perhaps the machine's fault: it is asked again
            assert growth(redact_text, piece, size, 4) <= MOST, piece


def test_a_pattern_that_is_slow_is_seen_to_be():
    """The measure itself: a search that begins anew at every letter, and runs to the end each time."""
    assert growth(re.compile(r"a+b").search, "a", 1 << 13, 3) > MOST
    assert growth(re.compile(r"(?<!a)a+b").search, "a", 1 << 13, 3) < MOST
