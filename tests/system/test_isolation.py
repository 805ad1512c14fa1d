"""Looks at once: each crash, hang and exception is a gap of its own look, and of no other."""

from __future__ import annotations

import os
import resource
import select
import sys
import threading
import time
from pathlib import Path

import pytest

from gpuready.model import Fact
from gpuready.system import RecordingHost, ReplayHost, run_probes, start_probes
from gpuready.system.process import isolation, probe_run
from tests.deadlines import AFTER_S, GENEROUS_S, HANG_S, wait_until
from tests.system.looks import one, raises, well


def crash(_):
    os.kill(os.getpid(), 11)


def hang(_):
    time.sleep(HANG_S)


def quits(_):
    sys.exit(3)


def leaves(_):
    os._exit(7)


def huge(_):
    return [Fact("huge", "x" * 5_000_000)]


def enormous(_):
    return [Fact("enormous", "x" * (2 << 20))]


def unsendable(_):
    return [Fact("odd", object())]


def nothing(_):
    return None


def prints(_):
    os.write(1, b"straight to stdout")
    os.write(2, b"straight to stderr")
    return [Fact("printed", True)]


def recurses(host):
    return recurses(host)


def test_facts_come_back_whole_and_in_order(live):
    values = [None, True, 5, 1.5, "text é", ["a", ["b"]], {"k": {"n": None}}, 1 << 100]
    looks = [(f"look{i}", well(f"key.{i}", value), (f"key.{i}",), GENEROUS_S) for i, value in enumerate(values)]
    facts = run_probes(live, looks)
    assert [f.key for f in facts] == [f"key.{i}" for i in range(len(values))]
    assert [f.value for f in facts] == values
    assert {(f.source, f.how, f.gap) for f in facts} == {("a source", "run", "")}


def test_no_looks_no_facts(live):
    assert run_probes(live, []) == []


@pytest.mark.parametrize(
    ("look", "why"),
    [
        (crash, "crashed: signal SEGV"),
        (raises, "ValueError: cannot read token=[redacted]"),
        (quits, "SystemExit: 3"),
        (leaves, "ended without an answer (exit 7)"),
        (nothing, "TypeError: 'NoneType' object is not iterable"),
        (unsendable, "ValueError: unmarshallable object"),
        (enormous, "the answer is larger than 1 MiB"),
    ],
    ids=lambda x: x.__name__ if callable(x) else "",
)
def test_a_look_that_fails_is_a_gap_for_each_of_its_keys(live, look, why, monkeypatch):
    monkeypatch.setattr(isolation, "MAX_ANSWER_BYTES", 1 << 20)
    facts = run_probes(
        live, [("bad", look, ("one", "two"), GENEROUS_S), ("good", well("three"), ("three",), GENEROUS_S)]
    )
    assert facts[0] == Fact("one", None, "probe bad", gap=why)
    assert facts[1] == Fact("two", None, "probe bad", gap=why)
    assert facts[2] == Fact("three", "fine", "a source", "run")


def test_endless_recursion_is_a_gap(live):
    assert one(live, recurses).gap.startswith("RecursionError")


def test_a_hang_costs_its_deadline_and_no_more(live, alive):
    begun = time.monotonic()
    facts = run_probes(live, [("bad", hang, ("a",), 0.3), ("good", well("b"), ("b",), GENEROUS_S)])
    assert time.monotonic() - begun < HANG_S / 2
    assert facts[0].gap == "no answer within 0.3 s"
    assert facts[1].value == "fine"


def in_parts(key, then):
    """A look that gives one part and then does something else."""

    def look(host):
        yield [Fact(f"{key}.before", host.get_env_var("HOME"))]
        then(host)
        yield [Fact(f"{key}.after", 1)]

    return look


@pytest.mark.parametrize(
    ("then", "why"), [(hang, "no answer within 2 s"), (crash, "crashed: signal SEGV"), (raises, "ValueError")]
)
def test_what_a_look_gave_before_it_failed_is_kept(live, then, why, monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    recorder = RecordingHost(live)
    looks = [("parts", in_parts("k", then), ("k.before", "k.after"), AFTER_S)]
    facts = run_probes(recorder, looks)
    assert [f.key for f in facts] == ["k.before", "k.after"]
    assert facts[0].value == "/home/ada" and not facts[0].gap
    assert facts[1].gap.startswith(why)
    # The tape fails in the same place, without doing again what had failed.
    monkeypatch.delenv("HOME")
    assert run_probes(ReplayHost(recorder.recording), looks) == facts


def test_parts_that_all_come_are_one_answer(live):
    looks = [("parts", in_parts("k", lambda _: None), ("k.before", "k.after"), GENEROUS_S)]
    assert [(f.key, f.gap) for f in run_probes(live, looks)] == [("k.before", ""), ("k.after", "")]


def test_with_threads_too_the_parts_are_kept(live, a_thread):
    released, before = threading.Event(), threading.active_count()
    looks = [("parts", in_parts("k", lambda _: released.wait()), ("k.before", "k.after"), 1.0)]
    facts = run_probes(live, looks)
    released.set()
    assert [f.key for f in facts] == ["k.before", "k.after"]
    assert not facts[0].gap and facts[1].gap == "no answer within 1 s"
    assert wait_until(lambda: threading.active_count() <= before)


def test_ready_is_when_all_parts_are_there(live, tmp_path):
    go = tmp_path / "go"
    slow = in_parts("k", lambda _: wait_until(go.exists))
    started = start_probes(live, [("slow", slow, ("k.before", "k.after"), GENEROUS_S)])
    assert wait_until(lambda: started.all_ready() or started._children[0].sent)
    assert not started.all_ready()
    go.touch()
    assert wait_until(started.all_ready) and len(started.collect_facts()) == 2


def test_what_a_look_has_just_started_is_ended_when_it_is_stopped(live, alive):
    """Nobody has read yet that something was started: it is heard before the pipe is closed."""

    def starts(host):
        host.run(["sleep", "223.606"], deadline=60)

    started = start_probes(live, [("starts", starts, ("a",), 60.0)])
    assert wait_until(lambda: alive("223.606", 0))
    time.sleep(0.05)
    started.stop_probes()
    assert alive("223.606") == []


def test_a_huge_answer_arrives(live):
    assert len(one(live, huge).value) == 5_000_000


def test_deadlines_are_of_each_look(live):
    begun = time.monotonic()
    looks = [(f"hang{i}", hang, (f"h{i}",), 0.1 * i) for i in (1, 2, 3)]
    facts = run_probes(live, looks)
    assert 0.27 <= time.monotonic() - begun < HANG_S / 2  # a deadline includes what ending a look takes
    assert [f.gap for f in facts] == [f"no answer within 0.{i} s" for i in (1, 2, 3)]


def test_spare_time_is_added_to_each_deadline(live):
    def slow(_):
        time.sleep(0.3)
        return [Fact("a", 1)]

    assert run_probes(live, [("slow", hang, ("a",), 0.1)])[0].gap == "no answer within 0.1 s"
    assert run_probes(live, [("slow", slow, ("a",), 0.1)], extra_seconds=GENEROUS_S)[0].value == 1


def test_what_a_look_started_goes_with_it(live, alive):
    def starts(host):
        host.run(["sleep", "141.421"], deadline=60)

    begun = time.monotonic()
    assert one(live, starts, deadline=0.5).gap.startswith("no answer within ")  # a busy machine gets more time
    assert time.monotonic() - begun < 141.421 / 2
    assert alive("141.421") == []


def test_what_a_crashing_look_started_goes_with_it(live, alive):
    def starts(host):
        threading.Timer(0.2, lambda: os.kill(os.getpid(), 11)).start()
        host.run(["sleep", "173.205"], deadline=60)

    assert one(live, starts, deadline=GENEROUS_S).gap == "crashed: signal SEGV"
    assert alive("173.205") == []


def test_an_unkillable_look_is_left_and_named(live, monkeypatch):
    from gpuready.system.process import termination

    real, killed = os.kill, []
    monkeypatch.setattr(os, "killpg", lambda pid, _: killed.append(pid))
    monkeypatch.setattr(os, "kill", lambda *_: None)
    begun = time.monotonic()
    gap = one(live, hang, deadline=0.3).gap
    assert time.monotonic() - begun < HANG_S / 2
    assert gap.startswith(f"no answer within 0.3 s; unkillable: pid {killed[0]} in state S")
    monkeypatch.undo()
    real(killed[0], 9)
    assert termination.ends_within(killed[0], GENEROUS_S) and killed[0] in termination._unkillable
    assert one(live, prints).value is True
    assert killed[0] not in termination._unkillable  # the next look collects it: a server must not gather zombies


def spin(_):
    while True:
        pass


def test_a_probe_that_gets_no_processor_is_waited_for(live, monkeypatch):
    """At a load of 30 on two cores, the probe of a fresh environment took more than its 8 seconds, and an install failed."""
    used = iter([0.01, 0.02, 0.03])
    monkeypatch.setattr(isolation, "read_processor_seconds", lambda pid: next(used, 9.0))
    begun = time.monotonic()
    gap = one(live, spin, deadline=0.3).gap
    assert gap == f"no answer within {max(0.3, round(time.monotonic() - begun)):g} s"
    assert next(used, None) is None and time.monotonic() - begun >= 3 * isolation.LOOK_AGAIN_S


def test_a_probe_that_spins_is_ended_at_its_deadline(live):
    """It has had its seconds, on any machine: at the latest after ten times its deadline."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    assert one(live, spin, deadline=0.5).gap.startswith("no answer within")
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 0.5 + 2 * isolation.LOOK_AGAIN_S


def test_the_kernel_ends_a_look_that_nobody_collects(live, alive):
    """A parent that dies leaves no look behind: an alarm of its own ends it."""
    started = start_probes(live, [("hang", hang, ("a",), 0.1)])
    child = started._children[0]
    stat = Path(f"/proc/{child.pid}/stat")
    assert wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z", HANG_S / 2)
    assert started.collect_facts()[0].gap


def test_nothing_a_look_prints_is_heard(live, capfd):
    assert one(live, prints).value is True
    assert capfd.readouterr() == ("", "")


def test_looks_run_at_the_same_time(live, tmp_path):
    """Each waits until all are at work."""

    def look_beside_others(key):
        def look(_):
            (tmp_path / key).touch()
            return [Fact(key, wait_until(lambda: len(os.listdir(tmp_path)) == 5, GENEROUS_S / 2))]

        return look

    facts = run_probes(live, [(f"s{i}", look_beside_others(f"k{i}"), (f"k{i}",), GENEROUS_S) for i in range(5)])
    assert [fact.value for fact in facts] == [True] * 5


def test_work_may_be_done_between_start_and_collect(live):
    large = well("large", "x" * 1_000_000)  # more than a pipe holds
    started = start_probes(
        live,
        [("a", well("a"), ("a",), GENEROUS_S), ("big", large, ("large",), GENEROUS_S), ("hang", hang, ("h",), 0.2)],
    )
    for child in started._children[:2]:
        assert select.select([child.fd], [], [], GENEROUS_S)[0], "it has begun to answer"
        child.ends_at = (
            time.monotonic()
        )  # nobody reads until the deadline has passed: what was done in time still counts
    facts = started.collect_facts()
    assert facts[0].value == "fine"
    assert len(facts[1].value) == 1_000_000
    assert facts[2].gap == "no answer within 0.2 s"


def test_the_time_of_each_look_is_told(live):
    started = start_probes(live, [("a", well("a"), ("a",), GENEROUS_S), ("hang", hang, ("h",), 0.2)])
    started.collect_facts()
    assert started.seconds["a"] > 0
    assert 0.18 <= started.seconds["hang"] < HANG_S / 2


def test_looks_can_be_stopped(live):
    started = start_probes(live, [("hang", hang, ("h",), 60.0)])
    begun = time.monotonic()
    started.stop_probes()
    assert time.monotonic() - begun < HANG_S / 2
    assert started.collect_facts()[0].gap == "interrupted"


def test_an_interrupt_leaves_nothing_running(live, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    started = start_probes(live, [("hang", hang, ("h",), 60.0)])
    monkeypatch.setattr(started, "_wait_for_children", lambda: interrupt(None))
    with pytest.raises(KeyboardInterrupt):
        started.collect_facts()


def test_no_secret_leaves_a_look(live):
    def look(_):
        return [Fact("a", {"HF_TOKEN": "abcdef", "url": "https://u:hunter2@h/x"}, "read --token abcdef123456")]

    fact = one(live, look)
    assert fact.value == {"HF_TOKEN": "[redacted]", "url": "https://u:[redacted]@h/x"}
    assert fact.source == "read --token [redacted]"


def test_where_no_process_can_be_started(live, monkeypatch):
    def refuse():
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    assert one(live, well("a")).gap == "cannot start a process: resource temporarily unavailable"


def test_no_signal_falls_between_the_start_of_a_child_and_our_note_of_it(monkeypatch):
    """Each of these is an exception in the parent: it would leave a child that nobody knows of."""
    import signal

    held = []
    monkeypatch.setattr(
        probe_run, "_fork_probe", lambda host, look: held.append(signal.pthread_sigmask(signal.SIG_BLOCK, ())) or "none"
    )
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    probe_run._ForkedRun(None, [("one", well, ("well",), 1.0)])
    assert held and {signal.SIGINT, signal.SIGTERM, signal.SIGHUP} <= held[0]
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
