"""``check --deep`` compares contents, ``check --import`` runs imports: what the plain look cannot know."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuready.check.evaluate import judge
from gpuready.model import Fact, Facts
from gpuready.rules import applicable_rules
from gpuready.workflow.machine_facts import start_probing
from gpuready.workflow.refusal import Refused
from tests.imports.copies import CODES, CONTRACT, EnvironmentCopy


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> EnvironmentCopy:
    return EnvironmentCopy(tmp_path_factory.mktemp("deep") / "whole").make()


@pytest.fixture
def copy(whole: EnvironmentCopy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EnvironmentCopy:
    found = whole.clone(tmp_path / "copy")
    monkeypatch.chdir(found.here)
    return found


def collect(copy: EnvironmentCopy, **flags: bool) -> Facts:
    facts = start_probing(None, str(copy.python), {}, None, [CONTRACT.distribution], **flags)[0]()
    return facts.with_facts(Fact("torch.broken", None, "the test"))


def severities(facts: Facts) -> dict[str, str]:
    rules = [rule for rule in applicable_rules(facts) if rule.CODE in CODES]
    return {finding.code: finding.severity for finding in judge(rules, facts, CONTRACT).findings}


def test_contents_of_the_same_size_are_only_seen_by_deep(copy: EnvironmentCopy) -> None:
    copy.rewrite("yaml/reader.py", lambda data: data.replace(b"# This module", b"# That module", 1))
    assert not severities(collect(copy))
    facts = collect(copy, deep=True)
    assert [row["kind"] for row in facts.value("import.damage")] == ["changed"]
    assert severities(facts) == {"PKG043": "warning"}
    assert copy.really_imports()


def test_deep_sees_nothing_in_a_whole_environment(copy: EnvironmentCopy) -> None:
    facts = collect(copy, deep=True)
    assert facts.value("import.looked")["deep"] is True
    assert not facts.value("import.damage")
    assert not severities(facts)


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("x = 1\n", ""),
        ("raise RuntimeError('only running tells')\n", "RuntimeError: only running tells"),
        ("import os\nos._exit(3)\n", "exit status 3"),
    ],
)
def test_a_real_import_says_what_files_do_not(copy: EnvironmentCopy, source: str, error: str) -> None:
    copy.use("import demo_late")
    copy.install("demo-late", "1.0", {"demo_late.py": source})
    facts = collect(copy, run_import=True)
    assert facts.value("import.result")["demo"]["error"] == error
    assert severities(facts) == ({"PKG042": "error"} if error else {})


def test_a_real_import_has_the_last_word(copy: EnvironmentCopy) -> None:
    """Damage behind a condition that only running tells: a gap on paper, an answer by running."""
    copy.use("import os\nif os.environ.get('DEMO_EXTRA'):\n    import demo.extra")
    (copy.site / "demo/extra.py").unlink()
    assert collect(copy).value("import.outcome")["demo"]["gap"]
    facts = collect(copy, run_import=True)
    assert facts.value("import.result")["demo"]["error"] == ""
    assert severities(facts) == {"PKG043": "warning"}


@pytest.mark.parametrize("flag", ["deep", "run_import"])
def test_another_machine_has_no_environment_to_look_at(flag: str) -> None:
    with pytest.raises(Refused, match="--on names another machine"):
        start_probing("h100", None, {}, None, **{flag: True})
