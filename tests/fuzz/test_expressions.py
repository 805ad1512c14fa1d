"""No text makes a regular expression slow: each takes time in proportion to its text, or to the square of a bounded piece of it.

Each is run against texts made of its own parts: what it begins with, and what it can take again and again, with an end
that fits nothing. Four times the text may take about four times as long; a quadratic expression takes sixteen.
"""

from __future__ import annotations

import re
import time

import pytest

from tests.fuzz import expressions
from tests.sampling import FUZZ

QUICK = 0.001
"""Seconds for 2,048 letters that no quadratic expression can keep: that is two million steps."""
ENDS = ("", "\x01\n") if FUZZ else ("\x01\n",)
"""An end that fits nothing makes an expression try all that it can; FUZZ=1 tries a text without one too."""

BUILT = {
    "apply/build_errors.py", "apply/resolve.py", "catalog/gpus.py", "catalog/machine_names.py", "fleet/areas.py", "fleet/verdict.py", "logs/lazy_regex.py", "logs/log_patterns.py", "logs/log_summary.py",
    "render/files/quoting.py", "system/imports/installed_modules.py", "system/imports/package_source.py", "system/imports/plain_body.py", "system/imports/search_path.py", "system/imports/source_parts.py", "system/imports/version_gates.py", "system/redaction/named_secrets.py", "system/redaction/text.py", "system/redaction/secret_patterns.py",
    "system/redaction/home_folders.py", "workflow/contract_draft.py", "workflow/knowledge.py",
}  # fmt: skip
"""Where expressions are put together while the program works, or come from a table: those are heard, or in `tables`."""


def _work() -> None:
    from gpuready.catalog import machine_names
    from gpuready.system.imports import search_path

    for name in ("h100x8", "8xh100", "rtx4090", "a100-40gb"):
        machine_names.parse_machine_name(name)
    for added in search_path.ADDED_FOLDERS:
        re.compile(added)


def _seconds(pattern: re.Pattern[str], text: str, anywhere: bool) -> float:
    begun = time.process_time()
    if anywhere:
        for _ in zip(range(len(text) + 1), pattern.finditer(text), strict=False):
            pass
    else:
        pattern.match(text)
    return time.process_time() - begun


def slow(source: str, flags: int, anywhere: bool) -> str:
    """The text that an expression is slow on, if it is on one of them."""
    pattern = re.compile(source, flags)
    for before, again in expressions.pumps(source, flags):
        for end in ENDS:
            if _grows(pattern, before, again, end, anywhere):
                return f"{before!r} + {again!r} * n + {end!r}"
    return ""


def _grows(pattern: re.Pattern[str], before: str, again: str, end: str, anywhere: bool) -> bool:
    def taken(size: int) -> float:
        return _seconds(pattern, before + again * (size // len(again) + 1) + end, anywhere)

    for size in (*range(18, 27), 100, 400, 2048):  # from small to large: an exponential one would never come back
        seconds = taken(size)
        if seconds > 100 * QUICK and taken(size) > 100 * QUICK:
            return True
    if seconds < QUICK or taken(4096) < 7 * taken(1024):
        return False
    return all(taken(8192) > 9 * taken(2048) for _ in range(2))


@pytest.fixture(scope="module")
def found():
    reported, unknown = expressions.every()
    assert {one.partition(":")[0] for one in unknown} <= BUILT, unknown
    return list(dict.fromkeys([*reported, *expressions.heard(_work)]))


def test_the_search_finds_what_is_slow():
    for bad in (r"(a+)+b$", r"\d+\.\d+x", r"(?:a|a)*b", r"\s*x"):
        assert slow(bad, 0, True), bad
    for good in (r"[a-z]{1,40}=", r"hf_[A-Za-z0-9]{16,}", r"^\s*x", r"(?:ab|cd){0,20}!"):
        assert not slow(good, 0, good[0] != "^"), good


def test_every_expression_takes_linear_time(found):
    assert len(found) > 300
    bad = [f"{one.where}: {one.source[:70]!r} on {text}" for one in found if (text := slow(*one[1:]))]
    assert not bad, "\n".join(bad)
