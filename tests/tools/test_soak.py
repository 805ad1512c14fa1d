"""The soak judges what it saw: growth is told from noise, and a zombie that stays from one that passes."""

from __future__ import annotations

import importlib
import random
from pathlib import Path

import pytest

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    soak = importlib.import_module("soak")
DRAW = random.Random(7)


def samples(kind: str, value) -> list[dict[str, object]]:
    """Half an hour, a sample every ten seconds."""
    return [{"second": 10.0 * at, "serve": {kind: value(at)}} for at in range(180)]


@pytest.mark.parametrize(
    "kind, value, flat",
    [
        ("rss_mib", lambda at: 130.0, True),
        ("rss_mib", lambda at: 90 + min(at, 50), True),  # it warms up, and stays
        ("rss_mib", lambda at: 130 + DRAW.choice((0, 0, 0, 70)), True),  # a child now and then
        ("rss_mib", lambda at: 130 + at * 0.06, False),  # 7 MiB in 20 minutes
        ("rss_mib", lambda at: 130 + at * 0.06 + DRAW.uniform(0, 5), False),
        ("fds", lambda at: 21 + DRAW.choice((0, 1, 9)), True),
        ("fds", lambda at: 21 + at // 30, False),  # one every five minutes
        ("threads", lambda at: 5 + at // 30, False),
        ("zombies", lambda at: int(at % 9 == 0), True),
        ("zombies", lambda at: int(at > 80), False),
        ("cache_files", lambda at: min(2 * at, 120), True),
        ("cache_files", lambda at: 2 * at, False),
    ],
)
def test_growth_is_told_from_noise(kind, value, flat):
    assert soak.verdict(samples(kind, value), "serve", kind)["flat"] is flat


def test_a_run_that_ends_badly_or_answers_wrongly_does_not_hold():
    rows = dict.fromkeys(soak.KINDS, 0)
    one = {"serve": rows, "run": rows, "fleet": rows, "around": {"orphans": 0}}
    left = dict.fromkeys(("orphans", "zombies", "temporary_files", "shared_memory_files"), 0)
    good = {"samples": [{"second": 1.0 * at, **one} for at in range(9)], "counts": {"requests": {"GET / 200": 9}},
            "died_early": [], "ends": soak.ENDS, "left_behind": left}  # fmt: skip
    assert soak.judged(good)["holds"]
    for wrong in (
        {"counts": {"requests": {"GET / 500": 1}}},
        {"counts": {"worlds": {"wrong: 1": 1}}},
        {"died_early": ["serve"]},
        {"ends": soak.ENDS | {"run": 1}},
        {"left_behind": left | {"temporary_files": 1}},
    ):
        assert not soak.judged(good | wrong)["holds"]
