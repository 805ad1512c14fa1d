"""Metrics for the textfile collector: families of samples that the text format allows, whatever a machine says."""

from __future__ import annotations

import re

from gpuready.render.prometheus import render_metrics
from tests.render.machines import REPORTS

SAMPLE = re.compile(
    r'gpuready_\w+\{[A-Za-z_]+="(?:[^"\\\n]|\\[\\"n])*"(?:,[A-Za-z_]+="(?:[^"\\\n]|\\[\\"n])*")*\} [01]'
)


def test_every_line_is_a_sample_or_a_comment_and_families_stand_together():
    text = render_metrics(list(REPORTS.values()))
    samples = [line for line in text.splitlines() if not line.startswith("# ")]
    assert all(SAMPLE.fullmatch(line) for line in samples)
    families = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert families == list(dict.fromkeys(line.partition("{")[0] for line in samples))


def test_one_verdict_is_1_and_a_finding_has_its_code():
    text = render_metrics([REPORTS["old_driver"]])
    assert re.findall(r'verdict="([a-z-]+)"} 1', text) == ["not-ready"]
    code = next(one.code for one in REPORTS["old_driver"].findings)
    assert f'code="{code}"' in text and 'model_name="' in text
    assert not re.search('[a-z][A-Z][A-Za-z]*="', text), "promtool check metrics asks for snake_case"
