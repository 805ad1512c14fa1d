"""What is seen to be wrong is told even where something else of the same rule is dark."""

from __future__ import annotations

import pytest

from gpuready import workflow
from gpuready.model import UnknownFactError
from tests.rules.worlds import H100, contract, judged, need

TORCH = need("package.torch", ">=2.9")
REEL = need("package.reel", ">=1.0")


def test_a_pin_that_fails_is_told_beside_one_that_is_dark():
    found = judged("PKG003", H100, contract(REEL, TORCH), package_reel="listed twice")
    assert found.severity == "error" and [n.key for n in found.needs] == ["package.torch"]


def test_pins_that_hold_beside_one_that_is_dark_are_undecided():
    holds = need("package.torch", ">=2.2")
    assert isinstance(judged("PKG003", H100, contract(REEL, holds), package_reel="listed twice"), UnknownFactError)


def test_a_lesser_pin_that_fails_does_not_hide_a_required_one_that_is_dark():
    lesser = need("package.torch", ">=2.9", level="recommended")
    assert isinstance(judged("PKG003", H100, contract(REEL, lesser), package_reel="listed twice"), UnknownFactError)


def test_what_is_absent_is_anothers_to_tell_and_hides_nothing():
    bare = H100 | {"package.torch": None}
    assert isinstance(judged("PKG003", bare, contract(TORCH, REEL), package_reel="listed twice"), UnknownFactError)
    assert judged("PKG003", bare | {"package.reel": "1.1"}, contract(TORCH, REEL)) is None


def test_what_another_rule_tells_does_not_hide_a_dark_need():
    asked = contract(need("gpu.count", ">=1"), need("memory.total", ">=64GB"))
    none = {**H100, "gpu.count": 0, "gpu.visible": ()}
    assert isinstance(judged("SYS004", none, asked, memory_total="unreadable"), UnknownFactError)
    assert judged("SYS004", none | {"memory.total": 8 << 30}, asked).needs[0].key == "memory.total"


def test_a_condition_in_the_dark_leaves_what_is_missing_undecided():
    asked = contract(TORCH, need("package.reel", "*", when="os.arch=aarch64"))
    assert isinstance(judged("PKG002", H100, asked, os_arch="uname failed"), UnknownFactError)


@pytest.mark.parametrize(
    ("framework", "torch"), [("colossalai", "2.8.0+cu128"), ("transformers", "2.4.0+cu121"), ("vllm", "2.8.0+cu128")]
)
def test_a_stated_torch_outside_the_pins_is_an_error(framework, torch):
    (report,) = workflow.check_machine([framework], on="h100x8", what_if={"torch": torch})
    assert report.verdict == "not-ready"
    assert [n.key for f in report.findings if f.code == "PKG003" for n in f.needs] == ["package.torch"]
