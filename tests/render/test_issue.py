"""The Markdown of a bug report: short, and nothing of a machine leaves its fence."""

from __future__ import annotations

import re

from gpuready.render.issue import WIDTH, render_issue
from tests.render import machines
from tests.running import gpuready


def test_a_bug_report_has_the_machine_and_the_findings_in_forty_lines():
    text = render_issue([machines.old_driver()])
    assert "driver" in text.splitlines()[2] and re.search(r"^[A-Z]{3}\d{3} error: ", text, re.MULTILINE)
    assert len(text.splitlines()) <= 40 and max(map(len, text.splitlines())) <= WIDTH


def test_hostile_text_stays_in_its_fence():
    text = render_issue([machines.hostile()])
    assert text.count("```") == 4 and not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)


def test_secrets_of_variables_are_hidden(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_TOKEN", "hf_" + "a1B2c3D4" * 5)
    monkeypatch.setenv("HTTPS_PROXY", "http://user:pass1234@proxy.example:3128")
    told = gpuready("issue", "transformers")
    assert told.code == 0 and "a1B2c3D4" not in told.out and "pass1234" not in told.out
