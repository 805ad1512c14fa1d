"""Rules that are not even imported where the facts they hang on are absent: they would have said nothing."""

from __future__ import annotations

import pytest

from gpuready import contracts, rules
from gpuready.check.evaluate import judge
from gpuready.model import Fact, Facts
from tests.every import every
from tests.rules.worlds import example, facts

ANCHORED = [*rules.list_required_facts(), "RUN001"]  # the rules of logs are one class
CONTRACTS = {name: contracts.load_contract(name) for name in contracts.list_frameworks()}
EMPTY = {"gpu.count": 0, "gpu.visible": ()}


def without(code: str) -> dict[str, object]:
    """What a rule hangs on, taken away."""
    gone: dict[str, object] = dict.fromkeys(rules.required_facts(code))
    return gone | {key: value for key, value in EMPTY.items() if "gpu.count" in gone}


@every("code", ANCHORED)
def test_a_rule_whose_anchor_is_gone_has_nothing_to_say(code):
    rule = rules.load_rule(code)
    for world in (rule.BROKEN, rule.HEALTHY):
        report = judge([rule], facts(dict(world) | without(code)), example(rule))
        assert report.findings == () and report.undecided == ()


@pytest.mark.parametrize("code", ANCHORED)
@pytest.mark.parametrize("wants", [(), ("bf16", "fp8", "flash-attn", "build"), ("4bit", "multi-gpu", "multi-node")])
def test_nor_has_it_under_any_contract(code, wants):
    stated = {"job.wants": wants, "job.parameters": 70_000_000_000, "toolkit.version": "13.0", "python.packages": 3}
    bare = stated | {
        "driver.version": None,
        "driver.error": None,
        "torch.cuda": "13.0",
        "torch.build": "cuda",
        "platform.name": "cuda",
    }
    rule, known = rules.load_rule(code), facts(bare | without(code))
    for name, agreed in CONTRACTS.items():
        report = judge([rule], known, agreed)
        assert report.findings == () and report.undecided == (), name


@every("code", ANCHORED)
def test_what_is_unknown_or_there_wakes_it(code):
    key = rules.required_facts(code)[0]
    rest = [Fact(other, None) for other in rules.required_facts(code)[1:]]
    for fact in (Fact(key, None, gap="denied"), Fact(key, 8)):
        assert code in {rule.CODE for rule in rules.applicable_rules(Facts([fact, *rest]))}
    assert code not in {rule.CODE for rule in rules.applicable_rules(Facts([Fact(key, None), *rest]))}


def test_without_facts_every_rule_is_awake_that_does_not_wait_for_a_job_or_a_second_contract():
    awake = {rule.CODE for rule in rules.applicable_rules(Facts([]))}
    inactive = set(rules.list_codes()) - awake
    assert all(
        key.startswith(("job.", "requirements.", "container.", "log.", "bench.", "proof.", "fleet.", "import."))
        for code in inactive
        for key in rules.required_facts(code)
    )
    stated = Facts([Fact("job.wants", ("bf16",)), Fact("job.parameters", 7), Fact("requirements.others", {"x": {}})])
    assert {"CAP009", "MEM003", "PKG008"} <= {rule.CODE for rule in rules.applicable_rules(stated)}


def test_a_fleet_s_rules_sleep_on_one_machine():
    """They would cost every check the import of twenty modules."""
    awake = {rule.CODE for rule in rules.applicable_rules(Facts([Fact("gpu.count", 8)]))}
    assert not any(code.startswith("FLT") for code in awake)
    assert "FLT002" in {rule.CODE for rule in rules.applicable_rules(Facts([Fact("fleet.drift", {"x": 1})]))}


def test_warming_stops_when_somebody_has_had_enough():
    asked = iter([False, False, True])
    rules.preload_rules(lambda: next(asked))
    assert next(asked, "spent") == "spent"
