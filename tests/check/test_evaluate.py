"""The judge: three-valued, with the evidence of what it read."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gpuready.check.evaluate import judge, rule_title
from gpuready.model import NOT_STATED, Contract, Fact, Facts, Finding

CONTRACT = Contract("demo", "1.0")


def rule(reads=("gpu.count",), code="GPU001", severity="error", judge=None):
    def default(facts, contract):
        value = facts.value(reads[0])
        return Finding(code, severity, "it is zero", (facts.fact(reads[0]),)) if value == 0 else None

    return SimpleNamespace(
        CODE=code,
        SEVERITY=severity,
        READS=reads,
        SIGNS=(),
        BROKEN={},
        HEALTHY={},
        judge=judge or default,
        __doc__="The count is zero.\n\nMore.",
    )


def facts(**values):
    return Facts([Fact(key.replace("_", ".", 1), value) for key, value in values.items()])


def test_a_rule_fires_holds_or_cannot_see():
    fired = judge([rule()], facts(gpu_count=0), CONTRACT)
    assert [f.code for f in fired.findings] == ["GPU001"] and fired.verdict == "not-ready"
    held = judge([rule()], facts(gpu_count=1), CONTRACT)
    assert not held.findings and held.judged[0].code == "GPU001" and held.judged[0].read == ("gpu.count",)
    unreadable = judge([rule()], Facts([Fact("gpu.count", None, gap="NVML hung")]), CONTRACT)
    assert unreadable.verdict == "undecided"
    assert unreadable.undecided[0].says == "The count is zero" and unreadable.undecided[0].missing[0].gap == "NVML hung"


def test_a_value_that_no_rule_foresaw_stops_that_rule_alone():
    def compare(facts, contract):
        mine, other = facts.value("driver.version"), facts.value("gpu.count")
        if not str(mine)[:1].isdigit():
            raise ValueError(f"{mine!r} is not a version")
        return facts.value("gpu.memory")["none"] if other else None

    comparing = rule(("driver.version", "gpu.count"), "DRV003", judge=compare)
    report = judge([comparing, rule()], facts(driver_version="weird", gpu_count=0), CONTRACT)
    assert [f.code for f in report.findings] == ["GPU001"] and report.undecided[0].code == "DRV003"
    (missing,) = report.undecided[0].missing
    assert missing.key == "driver.version" and missing.value is None
    assert missing.gap == "its value cannot be judged: 'weird' is not a version"
    report = judge([comparing, rule()], facts(driver_version="5", gpu_count=1, gpu_memory=()), CONTRACT)
    assert report.undecided[0].missing[0].key == "gpu.memory" and report.judged[0].code == "GPU001"
    assert report.verdict == "undecided"
    with pytest.raises(ValueError, match="of its own"):  # nothing was read: that is a fault of the rule
        judge([rule(judge=lambda f, c: int("of its own"))], facts(gpu_count=1), CONTRACT)


def test_a_rule_that_reads_nothing_did_not_apply():
    report = judge([rule(judge=lambda facts, contract: None)], facts(gpu_count=1), CONTRACT)
    assert not report.judged and not report.undecided and not report.findings


@pytest.mark.parametrize("family", ["can.matmul", "log.oom", "fit.peak", "fleet.nodes"])
def test_rules_on_what_another_command_looks_for_wait_for_it(family):
    judged = judge([rule(reads=(family,))], facts(gpu_count=1), CONTRACT)
    assert not judged.undecided and not judged.judged
    looked = judge([rule(reads=(family,))], Facts([Fact(family, None, gap="hung")]), CONTRACT)
    assert looked.undecided


def test_ignoring_needs_no_silence():
    report = judge([rule()], facts(gpu_count=0), CONTRACT, ignore={"GPU001": "a login node"})
    assert report.verdict == "clear" and not report.findings
    assert report.ignored[0].reason == "a login node" and report.ignored[0].finding.code == "GPU001"
    unreadable = judge([rule()], Facts([]), CONTRACT, ignore={"GPU001": "known"})
    assert unreadable.verdict == "clear"


def test_findings_come_worst_first():
    rules = [rule(code="SYS002", severity="warning"), rule(code="SYS001", severity="info"), rule(code="NET001")]
    report = judge(rules, facts(gpu_count=0), CONTRACT)
    assert [f.code for f in report.findings] == ["NET001", "SYS002", "SYS001"]


def stated(*known):
    return Facts(known, otherwise=NOT_STATED)


def test_what_is_not_stated_stays_outside_the_fold():
    report = judge([rule()], stated(), CONTRACT)
    assert (
        report.lacking == ("GPU",)
        and report.verdict == "undecided"
        and report.unstated[0].code == "GPU001"
        and not report.undecided
    )


def test_what_is_not_stated_is_wrong_only_if_every_option_is():
    def options(*values):
        return lambda key: [stated(Fact(key, value, "catalogue", "stated")) for value in values]

    wrong = judge([rule()], stated(), CONTRACT, options=options(0, 0))
    assert wrong.verdict == "not-ready" and wrong.findings[0].found[0].source == "catalogue"
    possible = judge([rule()], stated(), CONTRACT, options=options(0, 1))
    assert possible.verdict == "undecided" and possible.unstated
    nothing_known = judge([rule()], stated(), CONTRACT, options=options())
    assert nothing_known.unstated


def test_a_gap_of_the_machine_is_not_a_gap_of_the_statement():
    report = judge([rule()], Facts([Fact("gpu.count", None, gap="denied")], otherwise=NOT_STATED), CONTRACT)
    assert report.undecided and not report.unstated


def test_title_is_the_first_line():
    assert rule_title(rule()) == "The count is zero"
