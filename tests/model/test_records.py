"""The records: frozen, equal by value, JSON both ways, and the one fold."""

from __future__ import annotations

import json
import pickle
from types import MappingProxyType
from typing import Any, ClassVar

import pytest

from gpuready.model import (
    EXIT_CODES,
    NOT_STATED,
    Capability,
    Contract,
    Fact,
    Facts,
    Finding,
    FixStep,
    IgnoredFinding,
    Record,
    Report,
    Requirement,
    UndecidedRule,
    UnknownFactError,
    worst_verdict,
)
from gpuready.model.record import field

FACT = Fact("driver.version", "550.54.15", "/sys/module/nvidia/version")
CONTRACT = Contract("demo", "1.0", capabilities=(Capability("matmul", "required"), Capability("fp8")))


def finding(severity: str) -> Finding:
    return Finding(
        "DRV001", severity, "it is old", (FACT,), (Requirement("driver.version", ">=580"),), "so", (FixStep("do"),)
    )


def report(**fields) -> Report:
    return Report(CONTRACT, fields.pop("facts", Facts([])), **fields)


def test_a_record_is_frozen_slotted_and_equal_by_value():
    assert Fact("driver.version", "550.54.15", "/sys/module/nvidia/version") == FACT
    assert FACT.replace(value="580") != FACT
    assert FACT != "driver.version"
    assert len({FACT, FACT.replace()}) == 1
    with pytest.raises(AttributeError, match="frozen"):
        FACT.value = "580"
    with pytest.raises(AttributeError):
        FACT.other = 1
    assert not hasattr(FACT, "__dict__")
    assert pickle.loads(pickle.dumps(FACT)) == FACT
    assert "550.54.15" in repr(FACT)


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: Fact("a"), "needs the field 'value'"),
        (lambda: Fact("a", 1, colour=2), "no field 'colour'"),
        (lambda: Fact(1, 2, 3, 4, 5, 6), "takes 5 fields"),
    ],
)
def test_a_record_says_what_it_needs(build, says):
    with pytest.raises(TypeError, match=says):
        build()


class Counted(Record):
    value: Any
    counts: dict[str, int] = field(default_factory=dict)
    inner: Fact | None = None
    KINDS: ClassVar[tuple[str, ...]] = ("a",)


def test_records_share_no_default():
    first, second = Counted(1), Counted(1)
    first.counts["a"] = 1
    assert second.counts == {} and Counted(1).counts == {}
    for mutable in ({}, [], set()):
        with pytest.raises(TypeError, match=r"Shared\.rows: a mutable default is shared"):
            type(Record)("Shared", (Record,), {"__annotations__": {"rows": "Any"}, "rows": mutable})
    assert "KINDS" not in Counted._fields and Counted.KINDS == ("a",)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (1, True),
        ({"a": 1, "b": [2]}, {"b": [2.0], "a": True}),
        (([{"a": (1,)}],), ([{"a": (1.0,)}],)),
        ({1, 2}, frozenset({2, 1})),
        ({"a": 1}, MappingProxyType({"a": 1})),
        (Fact("a", [1]), Fact("a", [1.0])),
        (Facts([Fact("a", 1)]), Facts([Fact("a", 1.0)])),
    ],
)
def test_equal_records_have_equal_hashes(one, other):
    assert Counted(one) == Counted(other)
    assert hash(Counted(one)) == hash(Counted(other)) and len({Counted(one), Counted(other)}) == 1


def test_unlike_records_have_unlike_hashes():
    values = [1, 2, "1", (1,), {"a": 1}, {"a": 2}, {"b": 1}, ({"a": 1},)]
    assert len({hash(Counted(value)) for value in values}) == len(values)


def test_nested_records_come_from_the_annotations():
    assert Counted.nested_records() == {"inner": Fact}
    assert Contract.nested_records()["steps"] is FixStep and "platforms" not in Contract.nested_records()
    assert Counted.from_json({"value": 1, "inner": {"key": "a", "value": 2}}).inner == Fact("a", 2)
    assert Counted.from_json({"value": 1, "inner": None}).inner is None
    with pytest.raises(ValueError, match="an ignored finding needs the key 'finding'"):
        IgnoredFinding.from_json({})
    with pytest.raises(ValueError, match="a finding must be an object, not null"):
        IgnoredFinding.from_json({"finding": None, "why": ""})
    with pytest.raises(ValueError, match="a fix step needs the key 'does'"):
        Finding.from_json({"code": "A", "severity": "error", "says": "", "fix": [{}]})


def test_json_both_ways():
    for record in (FACT, finding("error"), CONTRACT):
        text = json.dumps(record.to_json())
        assert type(record).from_json(json.loads(text)) == record
    assert list(FACT.to_json()) == ["key", "value", "source", "how", "gap"]
    assert json.loads(json.dumps(report(facts=Facts([FACT])).to_json()))["facts"][0]["key"] == "driver.version"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ([], "must be an object, not a list"),
        ("x", "not text"),
        (3, "not a number"),
        ({"key": "a"}, "needs the key 'value'"),
    ],
)
def test_bad_json_is_a_sentence(data, says):
    with pytest.raises(ValueError, match=says):
        Fact.from_json(data)


def test_unknown_absent_and_false_are_three_things():
    facts = Facts(
        [Fact("a.unknown", None, gap="permission denied"), Fact("a.absent", None), Fact("a.false", False)], "host"
    )
    assert facts.value("a.absent") is None
    assert facts.value("a.false") is False
    assert facts.value_if_known("a.unknown") is None
    with pytest.raises(UnknownFactError, match="permission denied"):
        facts.value("a.unknown")
    with pytest.raises(UnknownFactError, match="nothing looked"):
        facts.value("b.never")


def test_a_listing_decides_what_is_absent():
    seen = Facts([Fact("python.packages", 12, "/venv")])
    assert seen.value("package.torch") is None
    assert seen.fact("package.torch").source == "/venv"
    unreadable = Facts([Fact("python.packages", None, "/venv", gap="permission denied")])
    with pytest.raises(UnknownFactError, match="permission denied"):
        unreadable.value("package.torch")


def test_facts_can_be_added_and_stated():
    facts = Facts([FACT], "h", otherwise=NOT_STATED).with_facts(Fact("gpu.count", 8), FACT.replace(value="580.1"))
    assert facts.value("driver.version") == "580.1"
    assert facts.fact("os.name").gap == NOT_STATED
    assert len(facts) == 2 and "gpu.count" in facts and facts.host == "h"
    assert Facts([FACT]) == Facts([FACT]) != Facts([FACT], "other")


def test_wants_of_a_contract():
    contract = Contract(
        "f", "1", needs=(Requirement("package.torch", ">=2"), Requirement("python.version", ">=3.10")), variant="v"
    )
    assert [n.key for n in contract.requirements_for("package.*")] == ["package.torch"]
    assert contract.requirements_for("python.version")[0].want == ">=3.10"
    assert contract.name == "f 1:v"


def ran(name: str, value: object = True, how: str = "run", gap: str = "") -> Fact:
    return Fact(f"can.{name}", value, "proof", how, gap)


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({}, "clear"),
        ({"findings": (finding("warning"), finding("info"))}, "clear"),
        ({"findings": (finding("error"),)}, "not-ready"),
        ({"findings": (finding("warning"),), "strict": True}, "not-ready"),
        ({"undecided": (UndecidedRule("A", "error", "x"),)}, "undecided"),
        ({"undecided": (UndecidedRule("A", "warning", "x"),)}, "clear"),
        ({"undecided": (UndecidedRule("A", "warning", "x"),), "strict": True}, "undecided"),
        ({"unstated": (UndecidedRule("A", "error", "x"),)}, "clear"),
        ({"findings": (finding("error"),), "undecided": (UndecidedRule("A", "error", "x"),)}, "not-ready"),
        ({"facts": Facts([ran("matmul")])}, "ready"),
        ({"facts": Facts([ran("matmul", how="read")])}, "clear"),
        ({"facts": Facts([ran("matmul", False)])}, "clear"),
        ({"facts": Facts([ran("matmul", None, gap="hung")])}, "clear"),
        ({"facts": Facts([ran("fp8")])}, "clear"),
    ],
)
def test_the_fold(fields, verdict):
    assert report(**fields).verdict == verdict
    assert report(**fields).exit == EXIT_CODES[verdict]


def test_nothing_is_ready_when_the_contract_requires_nothing_executed():
    assert Report(Contract("f", "1"), Facts([ran("matmul")])).verdict == "clear"


def test_the_worst_of_several():
    assert worst_verdict(["clear", "undecided", "ready"]) == "undecided"
    assert worst_verdict(["ready", "clear", "not-ready"]) == "not-ready"
    assert worst_verdict([]) == "undecided"


@pytest.mark.parametrize("field", ["key", "source", "how", "gap"])
def test_a_fact_is_named_and_sourced_in_text(field):
    with pytest.raises(ValueError, match=f"{field}' of a fact must be text"):
        Fact.from_json(FACT.to_json() | {field: 3})


def test_every_verdict_has_its_words():
    from gpuready.model.facts import VERDICT_WORDS, verdict_words

    assert VERDICT_WORDS.keys() == EXIT_CODES.keys()
    assert [verdict_words(v) for v in EXIT_CODES] == ["ready", "no problems found", "not ready", "can't tell"]
    assert verdict_words("does-not-fit") == "does not fit"
