"""What changed between two machines, worst first, with the rules that each change flips."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gpuready.check.changes import RuleFlip, compare_reports
from gpuready.check.evaluate import judge
from gpuready.model import Contract, Fact, Facts, Finding

CONTRACT = Contract("demo", "1.0")


def floor(code: str, key: str, least: int, severity: str = "error"):
    def decide(facts, contract):
        if facts.value(key) < least:
            return Finding(code, severity, "too low", (facts.fact(key),))
        return None

    return SimpleNamespace(CODE=code, SEVERITY=severity, READS=(key,), judge=decide, __doc__="Too low.")


RULES = [floor("DRV001", "driver.version", 580), floor("SYS001", "system.shm", 64, "warning")]


def report(**values):
    facts = [Fact(key.replace("_", ".", 1), value, "here") for key, value in values.items()]
    return judge(RULES, Facts(facts), CONTRACT)


def test_what_got_worse_comes_first_with_the_rule_that_it_flips():
    before = report(driver_version=580, system_shm=10, os_kernel="6.1")
    after = report(driver_version=550, system_shm=128, os_kernel="6.8")
    found = compare_reports(before, after)
    assert [(c.key, c.is_worse) for c in found] == [
        ("driver.version", True),
        ("system.shm", False),
        ("os.kernel", False),
    ]
    assert found[0].flips == (RuleFlip("DRV001", "holds", "error"),)
    assert found[1].flips == (RuleFlip("SYS001", "warning", "holds"),)
    assert not found[2].flips and found[2].was.value == "6.1" and found[2].now.value == "6.8"


def test_a_fact_that_a_rule_read_on_the_way_is_not_to_blame_where_its_evidence_changed():
    def decide(facts, contract):
        if not facts.value("gpu.count") or facts.value("driver.version") >= 580:
            return None
        return Finding("DRV001", "error", "too low", (facts.fact("driver.version"),))

    rule = SimpleNamespace(CODE="DRV001", SEVERITY="error", READS=(), judge=decide, __doc__="Too low.")

    def judged(count, version):
        return judge([rule], Facts([Fact("gpu.count", count), Fact("driver.version", version)]), CONTRACT)

    worse = compare_reports(judged(1, 580), judged(8, 550))
    assert [(c.key, c.is_worse) for c in worse] == [("driver.version", True), ("gpu.count", False)]
    assert [c.key for c in compare_reports(judged(8, 550), judged(1, 580)) if c.flips] == ["driver.version"]
    (only,) = compare_reports(judged(0, 550), judged(8, 550))
    assert only.key == "gpu.count" and only.is_worse, "its evidence has not changed"


def test_nothing_changed():
    same = report(driver_version=580, system_shm=10)
    assert compare_reports(same, same) == []


def test_what_can_no_longer_be_seen_is_worse():
    unreadable = judge(RULES, Facts([Fact("driver.version", None, gap="denied"), Fact("system.shm", 64)]), CONTRACT)
    (change,) = compare_reports(report(driver_version=580, system_shm=64), unreadable)
    assert change.is_worse and change.flips[0].now == "undecided"


def test_what_always_moves_counts_only_where_it_flips_a_rule():
    def moves(key):
        return key == "system.shm"

    quiet = compare_reports(report(driver_version=1, system_shm=100), report(driver_version=1, system_shm=101), moves)
    assert quiet == []
    loud = compare_reports(report(driver_version=1, system_shm=100), report(driver_version=1, system_shm=1), moves)
    assert [c.key for c in loud] == ["system.shm"] and loud[0].is_worse


def test_one_value_for_more_gpus_is_told_by_their_number_alone():
    one, two = (
        report(gpu_count=1, gpu_memory=(80,), gpu_mig=("off",)),
        report(gpu_count=2, gpu_memory=(40,) * 2, gpu_mig=("off",) * 2),
    )
    assert [change.key for change in compare_reports(one, two)] == ["gpu.count", "gpu.memory"]


def test_the_job_is_not_the_machine():
    before = judge([], Facts([Fact("job.wants", ("bf16",))]), CONTRACT)
    assert compare_reports(before, judge([], Facts([Fact("job.wants", ())]), CONTRACT)) == []


@pytest.mark.parametrize(
    ("was", "now", "worse"),
    [
        ("", "warning", False),
        ("", "undecided", False),
        ("", "error", True),
        ("holds", "warning", True),
        ("holds", "undecided", True),
        ("warning", "error", True),
        ("error", "holds", False),
        ("holds", "", False),
        ("holds", "info", False),
    ],
)
def test_a_rule_that_applies_only_now_is_worse_with_an_error_alone(was, now, worse):
    """From one GPU to eight, the rules for several begin to apply: that is no worse machine."""
    assert RuleFlip("NET010", was, now).is_worse is worse
