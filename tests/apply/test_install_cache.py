"""A damaged cache of uv: what is damaged in it is fetched again."""

from __future__ import annotations

import fcntl

import pytest

from tests.apply.test_install import reported


@pytest.fixture
def damaged(bench):
    """A bench whose cache has another content for one file of alpha than its wheel."""
    bench.run(*bench.argv("1.0", home=bench.folder / "first"))
    (victim,) = (bench.folder / "cache").glob("archive-v0/*/alpha/part7.py")
    data = victim.read_bytes()
    victim.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    return bench


def test_f13_a_damaged_cache_is_evicted_and_fetched_again(damaged):
    ran = damaged.install("1.0", "--json")
    assert reported(ran)["verdict"] == "installed", ran.out
    assert "damaged on arrival: alpha" in ran.err
    damaged.whole()


def test_f13_another_uv_that_works_meanwhile_does_not_hold_it_up(damaged):
    """Each uv holds a lock on its cache, and cleaning waits for all of them: a download takes longer than anybody waits."""
    with open(damaged.folder / "cache" / ".lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        ran = damaged.install("1.0", "--json")
    assert reported(ran)["verdict"] == "installed", ran.out
    damaged.whole()
