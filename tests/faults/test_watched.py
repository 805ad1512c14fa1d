"""Every case of watched_cases.toml: a death is blamed on the right rank, a standstill is named, a healthy run is not harmed."""

from __future__ import annotations

import os

import pytest

from tests.faults.watched import Runner, cases

ROOT_ONLY = ("freeze", "small log disk")


@pytest.fixture(scope="module")
def runner() -> Runner:
    return Runner()


@pytest.mark.faults
@pytest.mark.parametrize("case", cases(), ids=lambda case: case["id"])
def test_a_running_job_that_breaks(case, runner, seen):
    if os.geteuid() and case.get("act", "").startswith(ROOT_ONLY):
        pytest.skip("NOT ROOT: no control group and no disk of our own")
    found = runner.run(case)
    seen(case["id"], ", ".join(case.get("says", ())), found.text[:160], found.seconds)
    assert not found.wrong, found


def test_the_cases_are_whole():
    ids = [case["id"] for case in cases()]
    assert len(set(ids)) == len(ids) >= 60
    for case in cases():
        assert case["kind"] in ("death", "hang", "healthy") and case["fault"] and case["script"]
        assert case["kind"] == "healthy" or "first" in case
