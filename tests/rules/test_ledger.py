"""What holds for every rule: it fires on its broken example, is silent on the healthy one, never guesses."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from gpuready import rules
from gpuready.catalog import causes
from gpuready.catalog import facts as catalogue
from gpuready.check.evaluate import judge, rule_title
from gpuready.model import Finding, FixStep, UnknownFactError
from gpuready.rules.log_rules import LogRule
from tests.every import every
from tests.rules.worlds import dark, example, facts, outcome

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CAUSES = Path(causes.__file__).parent / "causes"

HEADINGS = ["What it checks", "Why it matters", "How to fix", "References"]
each_rule = every("rule", list(rules.load_all_rules()), ids=lambda rule: rule.CODE)


# -- the ledger ---------------------------------------------------------------------------------------


def test_codes_are_given_out_in_order_and_never_twice():
    numbers: dict[str, list[int]] = {}
    for code in rules.list_codes():
        assert re.fullmatch(r"[A-Z]{3}\d{3}", code)
        numbers.setdefault(code[:3], []).append(int(code[3:]))
    assert list(numbers) == list(rules.FAMILIES)
    for family, requested in numbers.items():
        assert requested == list(range(1, len(requested) + 1)), family
    names = [rules.rule_name(code) for code in rules.list_codes()]
    assert len(set(names)) == len(names)


def test_each_module_has_the_code_under_which_it_stands():
    for code in rules.list_codes():
        assert code == rules.load_rule(code).CODE
    for code, module in rules.list_rule_modules().items():
        assert code[:3].lower() == module.partition(".")[0]


def test_each_log_rule_is_told_in_the_file_of_its_first_cause():
    for path in CAUSES.glob("*.toml"):
        rule = tomllib.loads(path.read_text(encoding="utf-8")).get("rule")
        assert rule is None or causes.find_cause_for_code(rule["code"])["slug"] == path.stem


def test_a_rule_is_named_after_its_module():
    assert rules.rule_name("DRV001") == "driver-older-than-wheel"


def test_a_code_that_was_never_given_out():
    with pytest.raises(KeyError):
        rules.load_rule("DRV999")


def test_signs_belong_to_one_rule():
    rows = [sign for code in rules.list_codes() for sign in causes.list_patterns(code)]
    signs = [str({key: value for key, value in sign.items() if key != "cause"}) for sign in rows]
    assert len(signs) == len(set(signs)), "two rules may share words only under different conditions"


# -- every rule ---------------------------------------------------------------------------------------


@each_rule
def test_fires_on_its_broken_example(rule):
    found = outcome(rule, facts(rule.BROKEN), example(rule))
    assert isinstance(found, Finding)
    assert (found.code, found.severity) == (rule.CODE, rule.SEVERITY)


@each_rule
def test_is_silent_on_its_healthy_example_and_says_what_it_read(rule):
    report = judge([rule], facts(rule.HEALTHY), example(rule))
    assert report.findings == () and [j.code for j in report.judged] == [rule.CODE] and report.judged[0].read


@each_rule
def test_is_undecided_in_the_dark_and_never_silent(rule):
    """A gap leaves the rule undecided, or the rest is proof enough; it never makes the wrong thing right."""
    outcomes = {key: outcome(rule, dark(rule.BROKEN, key), example(rule)) for key in rule.BROKEN}
    assert any(isinstance(o, UnknownFactError) for o in outcomes.values())
    assert all(isinstance(o, (UnknownFactError, Finding)) for o in outcomes.values()), outcomes
    for key, unreadable in outcomes.items():
        if isinstance(unreadable, UnknownFactError):
            assert unreadable.fact.gap, key


@each_rule
def test_a_machine_of_which_nothing_is_known_breaks_no_rule(rule):
    found = outcome(rule, facts({}), example(rule))
    assert found is None or isinstance(found, UnknownFactError)


@each_rule
def test_findings_carry_evidence_need_consequence_and_fix(rule):
    known = facts(rule.BROKEN)
    found = outcome(rule, known, example(rule))
    assert found.found and all(fact == known.fact(fact.key) for fact in found.found)
    assert found.needs and all(need.key and need.want and need.cite for need in found.needs)
    assert found.says and found.so
    assert found.fix or isinstance(rule, LogRule), "what a log shows may have no fix that helps in general"
    for step in found.fix:
        check_step(step)
    assert Finding.from_json(found.to_json()).to_json() == found.to_json()


def check_step(step: FixStep) -> None:
    assert step.does and not step.does.startswith("or "), "the screen puts it before each further step"
    assert step.safety in ("safe", "ask", "manual", "elsewhere")
    assert step.safety in ("manual", "elsewhere") or step.run
    assert isinstance(step.run, tuple) and all(isinstance(word, str) and word for word in step.run)
    assert not step.run or step.run[0] not in ("sh", "bash", "sudo")


@each_rule
def test_the_documentation_has_its_headings(rule):
    title, _, rest = rule.__doc__.strip().partition("\n")
    assert rule_title(rule) == title.rstrip(".")
    parts = re.split(r"^## (.+)\n", rest, flags=re.M)
    assert parts[1::2] == HEADINGS and all(part.strip() for part in parts[2::2])


@each_rule
def test_reads_are_declared_facts_and_examples_are_made_of_them(rule):
    for key in rule.READS:
        if key != "*" and not key.endswith(".*"):
            assert catalogue.find_declaration(key), (
                f"{rule.CODE} reads {key}: declare it in facts.toml, then make catalog"
            )
    patterns = tuple(key[:-1] for key in rule.READS if key.endswith("*"))
    for key in (*rule.BROKEN, *rule.HEALTHY):
        assert key in rule.READS or key.startswith(patterns)


@each_rule
def test_silent_where_the_contract_is_for_another_platform(rule):
    """What only NVIDIA has is no business of a contract for ROCm; what is left reads no NVIDIA fact."""
    if {"can.*", "job.unknown_keys", "job.wrong_values"} & set(rule.READS):
        return  # what was executed, or stands in the job's file, counts on every platform
    if rule.CODE[:3] in ("DRV", "MEM", "CAP") or rule.CODE in ("GPU002", "GPU003", "GPU004", "BLD001", "PKG001"):
        other = example(rule).replace(platforms=("rocm",))
        assert outcome(rule, facts(rule.BROKEN), other) is None
