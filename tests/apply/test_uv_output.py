"""What is read from uv's output while it works."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gpuready.apply.uv_output import are_disjoint_ranges, make_progress_counter


def count(attempt: int, lines: list[str]) -> list[tuple[Any, ...]]:
    seconds = iter(range(0, 1000, 2))
    host: Any = SimpleNamespace(get_monotonic_time=lambda: next(seconds))
    shown: list[tuple[Any, ...]] = []
    read_line = make_progress_counter(lambda *words: shown.append(words), host, attempt)
    for line in lines:
        read_line(line)
    return shown


def test_packages_are_counted_once_and_another_attempt_says_so():
    lines = [
        "DEBUG Selecting: torch==2.8.0",
        "DEBUG other",
        "DEBUG Selecting: torch==2.7.0",
        "DEBUG Selecting: numpy==2.1",
    ]
    assert count(1, lines) == [("resolving packages", 1), ("resolving packages", 2)]
    assert count(3, lines)[0] == ("resolving packages, attempt 3", 1)


@pytest.mark.parametrize(
    ("one", "other", "disjoint"),
    [
        (">=2.9.1,<=2.10.0a0", "==2.15.0", True),
        (">=2.9.1,<=2.10.0a0", "==2.9.1", False),
        ("==2.3.2.post1", "<2", True),
        (">2.3.2.post1", "<3", False),
        (">=5.13.0.dev0", "<5", True),
    ],
)
def test_ranges_with_bounds_before_and_after_a_release_are_compared(one, other, disjoint):
    """TensorRT-LLM asks for torch <=2.10.0a0: its plan ended with a word about a version that nobody wrote."""
    assert are_disjoint_ranges(one, other) is disjoint
