"""Looks that run in no process of their own, in threads or from a tape; and answers that arrive damaged."""

from __future__ import annotations

import os
import threading
import time

import pytest

from gpuready.model import Fact
from gpuready.system import LiveHost, RecordingHost, ReplayHost, run_probes, start_probes
from gpuready.system.process import isolation, probe_run
from tests.deadlines import GENEROUS_S, wait_until
from tests.system.looks import one, raises, well

# -- with threads


def test_with_threads_the_looks_run_in_threads(live, a_thread, monkeypatch):
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("a fork beside a thread"))
    released, before = threading.Event(), threading.active_count()
    facts = run_probes(
        live,
        [
            ("good", well("a"), ("a",), GENEROUS_S),
            ("bad", raises, ("b",), GENEROUS_S),
            ("slow", lambda _: released.wait(), ("c",), 0.2),
        ],
    )
    released.set()  # the slow one is still at work
    assert facts[0].value == "fine"
    assert facts[1].gap == "ValueError: cannot read token=[redacted]"
    assert facts[2].gap == "no answer within 0.2 s"
    assert wait_until(lambda: threading.active_count() <= before)


def test_with_threads_a_recorder_records(a_thread):
    recorder = RecordingHost(LiveHost())
    looks = [("a", lambda d: [Fact("kernel", d.read_text("/proc/version"))], ("kernel",), GENEROUS_S)]
    facts = run_probes(recorder, looks)
    assert run_probes(ReplayHost(recorder.recording), looks) == facts


def test_a_thread_that_python_does_not_know_counts(monkeypatch):
    monkeypatch.setattr(os, "listdir", lambda _: ["1", "2"])
    assert isolation.is_single_threaded() is False

    def refuse(_):
        raise OSError

    monkeypatch.setattr(os, "listdir", refuse)
    assert isolation.is_single_threaded() is True


# -- from a tape


def test_a_recorder_gathers_what_every_look_asked(live):
    looks = [
        ("a", lambda d: [Fact("kernel", d.read_text("/proc/version"))], ("kernel",), GENEROUS_S),
        ("b", lambda d: [Fact("shell", d.run(["sh", "-c", "echo hi"]).out)], ("shell",), GENEROUS_S),
        ("c", raises, ("c",), GENEROUS_S),
    ]
    recorder = RecordingHost(live)
    facts = run_probes(recorder, looks)
    assert '["read", "/proc/version"]' in recorder.recording
    assert run_probes(ReplayHost(recorder.recording), looks) == facts


def test_a_replay_runs_here_in_turn(monkeypatch):
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("a fork for a tape"))
    order = []

    def look(name):
        return lambda _: order.append(name) or [Fact(name, 1)]

    started = start_probes(ReplayHost({}), [(n, look(n), (n,), GENEROUS_S) for n in "abc"])
    assert [f.key for f in started.collect_facts()] == ["a", "b", "c"]
    assert order == ["a", "b", "c"]
    assert set(started.seconds) == {"a", "b", "c"}


def test_an_exception_from_a_tape_is_a_gap():
    assert one(ReplayHost({}), raises).gap == "ValueError: cannot read token=[redacted]"
    assert one(ReplayHost({}), lambda d: [Fact("a", d.get_uname())]).gap == "AccessError: not recorded"


def test_a_started_look_is_abstract():
    with pytest.raises(NotImplementedError):
        probe_run.ProbeRun(ReplayHost({}), []).collect_facts()
    probe_run.ProbeRun(ReplayHost({}), []).stop_probes()


# -- the pipe


def damaged(data):
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, data)
        os._exit(0)
    os.close(write)
    child = object.__new__(isolation.ForkedChild)
    child.__dict__.update(
        pid=pid, fd=read, started_at=0.0, ends_at=time.monotonic() + GENEROUS_S, deadline=GENEROUS_S, seconds=0.0, sent=[], fault="",
        done=False, _groups=set(), _buffer=bytearray(), _size=0,
    )  # fmt: skip
    while child.read_messages():
        time.sleep(0.005)
    return child.fault


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x05\0\0\0\0\0\0\0junk!", "the answer is damaged"),
        (b"\x01\0\0\0\0\0\0\0N", "the answer is damaged"),
        ((1 << 62).to_bytes(8, "little"), "the answer is larger than 64 MiB"),
    ],
)
def test_a_damaged_answer_is_a_gap(data, why):
    assert damaged(data) == why


def test_half_an_answer_is_a_gap():
    assert damaged((100).to_bytes(8, "little") + b"half") == "ended without an answer (exit 0)"
