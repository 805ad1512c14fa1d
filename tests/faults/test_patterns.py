"""E31: no pattern of ours takes more than its share of time for a text that was made against it."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.faults import patterns

MOST = 24
"""How much longer a text may take that is eight times as long: eight, and the noise of a machine at work."""


def grown(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    words = [sys.executable, "-m", "tests.faults.patterns"]
    done = subprocess.run(words, input=json.dumps(rows), capture_output=True, text=True, cwd=patterns.SRC.parents[1])
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, f"{rows[len(told)]} did not come back: {done.stderr[-200:]}"
    return told


def test_e31_the_time_of_every_pattern_grows_with_the_text_and_not_faster():
    rows = patterns.every()
    assert len(rows) > 100, "the patterns of the source are found"
    bad = [row for row in grown(rows) if row["ratio"] > MOST]
    again = grown(bad)  # a machine at work is no pattern's fault
    assert [row for row in again if row["ratio"] > MOST] == []


def test_e31_a_pattern_that_is_bad_is_seen_to_be():
    bad = [
        {"pattern": text, "flags": 0, "verb": verb, "file": ""}
        for text, verb in ((r"\d+\.x", "search"), (r"a\s*b?\s*c", "match"))
    ]
    assert all(row["ratio"] > MOST for row in grown(bad))
    assert grown([{"pattern": r"(?<!\d)\d+\.x", "flags": 0, "verb": "search", "file": ""}])[0]["ratio"] < MOST
