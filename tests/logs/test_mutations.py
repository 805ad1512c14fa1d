"""A log keeps its answer when it is changed in ways that do not change the truth: a seeded sample over the induced corpus."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from gpuready.workflow.diagnose import diagnose_logs
from tests.sampling import FUZZ

SPEC = importlib.util.spec_from_file_location(
    "mutate_logs", Path(__file__).parents[2] / "benchmarks" / "mutate_logs.py"
)
mutate_logs = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(mutate_logs)
CASES = [case for case in mutate_logs.read_cases([]) if len(case.log) < 8000]
SAMPLE = 0.05 if FUZZ else 0.015
"""How much of all logs under all mutations."""


def answered_rightly(case):
    return mutate_logs.answer_log(case.log) == case.cause


def test_mutated_logs_keep_their_answer():
    rows = list(mutate_logs.mutate_cases(CASES, seed=20, sample=SAMPLE))
    right = {case.id for case in {row[1] for row in rows} if answered_rightly(case)}
    results = [(name, case, mutate_logs.answer_log(log)) for name, case, log in rows if case.id in right]
    changed = [f"{name} {case.id}: {case.cause} -> {got}" for name, case, got in results if got != case.cause]
    assert len(results) > 100 and {name for name, _, _ in results} == set(mutate_logs.MUTATIONS)
    assert len(changed) <= 0.03 * len(results), changed


def test_no_failure_becomes_healthy_by_what_is_appended():
    only = ("info-after", "progress-after", "json-lines", "two-runs")
    rows = [
        row
        for row in mutate_logs.mutate_cases(CASES, seed=21, only=only, sample=3 * SAMPLE)
        if row[1].cause != "healthy"
    ]
    assert rows and not [(name, case.id) for name, case, log in rows if mutate_logs.answer_log(log) == "healthy"]


@pytest.mark.parametrize("name", sorted(mutate_logs.MUTATIONS))
def test_each_mutation_changes_the_text(name):
    changed = [log != case.log for _, case, log in mutate_logs.mutate_cases(CASES[:60], seed=3, only=[name])]
    assert sum(changed) >= (1 if name in ("head-cut", "tail-cut", "paths", "numbers", "wrapped") else len(changed) - 1)


def test_one_neutral_line_after_a_traceback_proves_nothing():
    text = (
        'Traceback (most recent call last):\n  File "/home/me/train.py", line 3, in <module>\n    run()\n'
        "flurb.core.FlurbWasLost: gone\n"
    )
    for line in ("2026-11-16 12:00:03,114 INFO trainer: uploading the logs\n", "step 4/10 loss 1.1\n", "echo done\n"):
        found = diagnose_logs([[(text + line).encode()]], look=False)
        assert found.verdict != "healthy" and found.exit != 0
        assert [one.type for one in found.exceptions] == ["flurb.core.FlurbWasLost"]
