"""Pins that no environment can hold: of two contracts, or of one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuready import contracts
from gpuready.contracts.pin_conflicts import can_hold_together, conflicts_between, required_pins
from gpuready.model import Finding, UnknownFactError, versions
from gpuready.rules.pkg import contracts_cannot_share_environment as sharing
from tests.rules.worlds import H100, contract, judged, need

# -- PKG008 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "a, b, both",
    [
        ("==4.51.3", "==5.20.1", False),
        ("==4.51.3", ">=4.50,<5", True),
        (">=2.2.0,<=2.5.1", ">=2.6", False),
        (">=2.2.0,<=2.5.1", ">=2.5.1", True),
        (">2.5", "<2.5.1", True),
        (">2.5", "<=2.5", False),
        (">=2.5", "<2.5", False),
        ("<3", "<2", True),
        ("!=1.0", "==1.0", False),
        ("!=1.0", ">=1.0", True),
        ("==1.*", "==1.4.2", True),
        ("==1.*", ">=2", False),
        ("~=1.4", ">=1.9,<2", True),
        (">=3.8", "!=3.8.*", True),
        (">=3.8,<3.9", "!=3.8.*", False),
        ("~=1.4.2", ">=1.5", False),
        ("==1.0|==2.0", "==2.0|==3.0", True),
        ("==1.0|==2.0", "==3.0", False),
        (">=0.33.post2", "==0.33.post2", True),
        ("cuda", "==1", True),
    ],
)
def test_two_pins_on_one_package(a, b, both):
    assert can_hold_together("demo", a, b) is both and can_hold_together("demo", b, a) is both


RELEASES = st.tuples(*[st.integers(0, 3)] * 2).map(lambda parts: ".".join(map(str, parts)))
CLAUSES = st.tuples(st.sampled_from([">=", "<=", ">", "<", "==", "!="]), RELEASES).map("".join)
PINS = st.lists(CLAUSES, min_size=1, max_size=3).map(",".join)


@settings(deadline=None)
@given(PINS, PINS, st.tuples(*[st.integers(0, 4)] * 3).map(lambda parts: ".".join(map(str, parts))))
def test_pins_that_share_a_version_are_never_called_contradictory(a, b, version):
    if versions.satisfies_specifier(version, a) and versions.satisfies_specifier(version, b):
        assert can_hold_together("demo", a, b)


def test_of_torch_only_releases_that_exist():
    assert not can_hold_together("torch", ">=2.5.2", "<2.6")
    assert can_hold_together("demo", ">=2.5.2", "<2.6")
    assert can_hold_together("torch", ">=9.0", ">=9.1,<10"), "of what comes after the newest nobody knows"
    assert can_hold_together("torch", "<1.9", ">=1.8")


def clashes(one, other):
    return list(conflicts_between(required_pins(one), required_pins(other)))


def test_contracts_that_cannot_share():
    one = contract(need("package.torch", ">=2.2.0,<=2.5.1", cite="requirements.txt:11"), framework="one")
    two = contract(need("package.torch", ">=2.9", cite="METADATA:7"), framework="two")
    others = {"requirements.others": sharing.pins_of_others(one, [one, two])}
    found = judged("PKG008", H100 | others, one)
    assert found.says == "no environment can have both one 1.0 and two 1.0: torch"
    assert [n.cite for n in found.needs] == ["requirements.txt:11", "two 1.0: METADATA:7"]
    assert [f.key for f in found.found] == ["package.torch"]
    unreadable = judged("PKG008", {"gpu.count": 1} | others, one)
    assert [(f.key, f.value, f.source) for f in unreadable.found] == [("package.torch", "two 1.0: >=2.9", "METADATA:7")]
    assert [(n.want, n.cite) for n in unreadable.needs] == [(">=2.2.0,<=2.5.1", "requirements.txt:11")]
    assert clashes(one, one) == [] and clashes(one, contract()) == []


def test_only_what_always_holds_is_compared():
    one = contract(need("package.torch", "==2.5.1"), need("python.version", "<3.10"), framework="one")
    soft = contract(need("package.torch", ">=2.9", level="recommended"), framework="two")
    when = contract(need("package.torch", ">=2.9", when="wants=fp8"), framework="two")
    any_ = contract(need("package.torch", "*"), framework="two")
    assert clashes(one, soft) == clashes(one, when) == clashes(one, any_) == []
    newer = contract(need("python.version", ">=3.11"), framework="two")
    assert clashes(one, newer)[0][0] == "python.version"


def test_of_many_clashes_the_first_are_shown_and_the_rest_counted():
    one = contract(*(need(f"package.p{i}", "==1") for i in range(9)), framework="one")
    two = contract(*(need(f"package.p{i}", "==2") for i in range(9)), framework="two")
    found = judged("PKG008", H100 | {"requirements.others": sharing.pins_of_others(one, [one, two])}, one)
    assert found.says.endswith(": p0, p1, p2 and 6 more")
    assert len(found.found) == len(found.needs) == 3


# -- PKG024 -------------------------------------------------------------------------------------------


def test_a_contract_that_no_environment_can_hold():
    agreed = contracts.load_contract("roll", None, "torch260-vllm")
    found = judged("PKG024", H100, agreed)
    assert found.severity == "warning", "its project installs it as an image, for x86_64"
    found = judged("PKG024", H100 | {"os.arch": "aarch64"}, agreed)
    assert found.severity == "error" and "opentelemetry-sdk >=1.30 and <1.27" in found.says
    assert [n.want for n in found.needs] == [">=1.30", "<1.27"]
    assert "ray" in found.needs[0].cite and "vllm" in found.needs[1].cite
    assert judged("PKG024", H100, contracts.load_contract("roll", None, "torch280-vllm")) is None


def test_only_required_needs_in_force_contradict():
    low = need("package.rye", "<2")
    assert judged("PKG024", H100, contract(low, need("package.rye", ">=2", level="recommended"))) is None
    assert judged("PKG024", H100, contract(low, need("package.rye", ">=1"))) is None
    hanging = contract(low, need("package.rye", ">=2", when="wants=fp8"))
    assert judged("PKG024", H100 | {"job.wants": ()}, hanging) is None
    assert isinstance(judged("PKG024", H100 | {"job.wants": ("fp8",)}, hanging), Finding)
    assert isinstance(judged("PKG024", H100, hanging, job_wants="not read"), UnknownFactError)


def test_alone_nothing_is_compared():
    assert judged("PKG008", H100) is None
    assert isinstance(judged("PKG008", H100, requirements_others="not read"), UnknownFactError)


def test_shipped_contracts_and_what_is_known_of_them():
    colossal, axolotl = contracts.load_contract("colossalai"), contracts.load_contract("axolotl")
    named = {package for package, _, _ in clashes(colossal, axolotl)}
    assert {"torch", "transformers"} <= named
