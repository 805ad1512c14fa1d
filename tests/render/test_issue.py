"""The Markdown of a bug report: short, and nothing of a machine leaves its fence."""

from __future__ import annotations

import re
import venv

from gpuready.render.issue import WIDTH, render_issue
from gpuready.system.redaction.home_folders import hide_home_folders
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


def test_whose_machine_it_is_does_not_leave_it(tmp_path):
    """The user's home is ~, another's keeps its place alone, and so does the user's folder elsewhere; in JSON too."""
    home = tmp_path / "home" / "danaxyz"
    venv.create(home / "my-env", with_pip=False, symlinks=True)
    named = {"HOME": str(home), "HF_HOME": "/home/erika-mustermann/models"}
    for more in ((), ("--json",)):
        told = gpuready("issue", "transformers", "--python", str(home / "my-env"), *more, **named)
        assert told.code == 0 and "~/my-env" in told.out, told
        assert not re.search("danaxyz|erika|mustermann", told.out), told.out
    assert (
        hide_home_folders("/scratch/dana-b/x, /home/dana-b: /homework/a", "/home/dana-b")
        == "/scratch/…/x, ~: /homework/a"
    )
    assert hide_home_folders("/usr/x /Users/ann/y", "/") == "/usr/x /Users/…/y"
