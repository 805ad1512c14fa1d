"""Every case of watched_cases.toml: a death is blamed on the right rank, a standstill is named, a healthy run is not harmed."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.faults.watched import Runner, cases

ROOT_ONLY, CASE_TEST = ("freeze", "small log disk"), "test_a_running_job_that_breaks"


@pytest.fixture(scope="module")
def running(request):
    """The chosen cases, two at a time: most of them wait."""
    named = [item for item in request.session.items if getattr(item, "originalname", "") == CASE_TEST]
    runner, pool = Runner(), ThreadPoolExecutor(2)
    yield {item.callspec.id: pool.submit(runner.run, item.callspec.params["case"]) for item in named}
    pool.shutdown(cancel_futures=True)


@pytest.mark.faults
@pytest.mark.parametrize("case", cases(), ids=lambda case: case["id"])
def test_a_running_job_that_breaks(case, running, seen):
    if os.geteuid() and case.get("act", "").startswith(ROOT_ONLY):
        pytest.skip("NOT ROOT: no control group and no disk of our own")
    found = running[case["id"]].result()
    seen(case["id"], ", ".join(case.get("says", ())), found.text[:160], found.seconds)
    assert not found.wrong, found


def test_the_cases_are_whole():
    ids = [case["id"] for case in cases()]
    assert len(set(ids)) == len(ids) >= 153
    for case in cases():
        assert case["kind"] in ("death", "hang", "healthy") and case["fault"] and case["script"]
        assert case["kind"] == "healthy" or "first" in case
