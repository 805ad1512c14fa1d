"""Run probes in parallel, each in a forked child where that can be done: one that hangs or crashes only leaves its own facts unknown."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import copy_context
from itertools import islice
from typing import Any

from gpuready.model import Fact
from gpuready.system.host_access import HostAccess
from gpuready.system.process import isolation, termination
from gpuready.system.process.isolation import Emit, ForkedChild, summarize_error, wait_for_children
from gpuready.system.recording import RecordingHost, ReplayHost
from gpuready.system.redaction.text import may_contain_secret, redact_json

ProbeFunction = Callable[[HostAccess], "list[Fact] | Iterator[list[Fact]]"]
ProbeTask = tuple[str, ProbeFunction, Iterable[str], float]
ProbeAnswer = tuple[list[tuple[Any, ...]], dict[str, Any]]


def run_probes(host: HostAccess, tasks: Sequence[ProbeTask], extra_seconds: float = 0.0) -> list[Fact]:
    """Every fact of every probe, in order; a failed probe gives a gap for each of its keys.

    A probe may return its facts in parts, as a generator of lists: parts before a failure are kept.
    """
    return start_probes(host, tasks, extra_seconds).collect_facts()


def start_probes(host: HostAccess, tasks: Sequence[ProbeTask], extra_seconds: float = 0.0) -> ProbeRun:
    """Start every probe; `collect_facts` waits for them. `extra_seconds` is added to each deadline."""
    timed = [(name, task, keys, deadline + extra_seconds) for name, task, keys, deadline in tasks]
    if not host.is_live:
        return _SequentialRun(host, timed)
    return _ForkedRun(host, timed) if isolation.is_single_threaded() else _ThreadedRun(host, timed)


class ProbeRun:
    """Probes in progress."""

    def __init__(self, host: HostAccess, tasks: Sequence[ProbeTask]):
        self.host, self.tasks = host, tasks
        self.seconds: dict[str, float] = {}

    def collect_facts(self) -> list[Fact]:
        """Wait until every probe has answered or timed out; nothing is left running."""
        raise NotImplementedError

    def all_ready(self) -> bool:
        """Whether every probe has answered: a caller may use the time until then."""
        return True

    def stop_probes(self) -> None:
        """End the probes without waiting for them."""

    def _facts_of_probe(self, task: ProbeTask, parts: Sequence[ProbeAnswer], fault: str, seconds: float) -> list[Fact]:
        name, _, keys, _ = task
        self.seconds[name] = seconds
        if isinstance(self.host, RecordingHost):
            for _, recording in parts:
                self.host.recording.update(recording)
            if fault:
                self.host.record_failure(name, fault, len(parts))
        facts = [Fact(*fields) for reported, _ in parts for fields in reported]
        known = {fact.key for fact in facts} if fault else ()
        missing = [key for key in keys if key not in known] if fault else ()
        return [*facts, *(Fact(key, None, source=f"probe {name}", gap=fault) for key in missing)]


def _probe_answers(host: HostAccess, probe: ProbeFunction) -> Iterator[ProbeAnswer]:
    """Facts of one probe, part by part, as plain values, with what it recorded. Secrets are redacted."""
    at = host.branch_recording() if isinstance(host, RecordingHost) else host
    reported = probe(at)
    for facts in (reported,) if isinstance(reported, (list, tuple)) else reported:
        plain = [(f.key, f.value, f.source, f.how, f.gap) for f in facts]
        if may_contain_secret(plain):
            plain = [(k, redact_json(v), redact_json(s), how, redact_json(gap)) for k, v, s, how, gap in plain]
        yield plain, at.take_recording() if isinstance(at, RecordingHost) else {}


def _collect_parts(host: HostAccess, task: ProbeTask, parts: list[ProbeAnswer], at_most: int | None = None) -> str:
    """Run a probe here and collect its parts; return why it failed, or an empty text."""
    try:
        for part in islice(_probe_answers(host, task[1]), at_most):
            parts.append(part)  # one at a time: another thread reads what is there at the deadline
    except (Exception, SystemExit) as error:
        return summarize_error(error)
    return ""


class _SequentialRun(ProbeRun):
    """A recorded machine neither hangs nor crashes: its probes run here, one after the other."""

    def collect_facts(self) -> list[Fact]:
        return [fact for task in self.tasks for fact in self._run_probe(task)]

    def _run_probe(self, task: ProbeTask) -> list[Fact]:
        started, parts = time.monotonic(), []  # type: float, list[ProbeAnswer]
        recorded, most = self.host.recorded_failure(task[0]) if isinstance(self.host, ReplayHost) else ("", 0)
        # as many parts as there were before the recorded failure
        fault = _collect_parts(self.host, task, parts, most if recorded else None)
        return self._facts_of_probe(task, parts, fault or recorded, time.monotonic() - started)


class _ForkedRun(ProbeRun):
    """One child process per probe, all started at once."""

    def __init__(self, host: HostAccess, tasks: Sequence[ProbeTask]):
        super().__init__(host, tasks)
        termination.collect_unkillable()  # a server probes repeatedly: collect what could not be killed last time
        self._children: list[ForkedChild | str] = []
        before = termination.hold_signals()
        try:
            try:
                for task in tasks:
                    self._children.append(_fork_probe(host, task))
            finally:
                termination.release_signals(before)
        except BaseException:
            self.stop_probes()
            raise

    def __del__(self) -> None:
        self.stop_probes()  # the caller was interrupted before it could wait

    def collect_facts(self) -> list[Fact]:
        try:
            self._wait_for_children()
        finally:
            self.stop_probes()
        facts: list[Fact] = []
        for task, child in zip(self.tasks, self._children, strict=True):
            if isinstance(child, str):
                facts += self._facts_of_probe(task, (), child, 0.0)
            else:
                facts += self._facts_of_probe(task, child.sent, "" if child.done else child.fault, child.seconds)
        return facts

    def all_ready(self) -> bool:
        return wait_for_children(self._forked_children(), block=False)

    def _forked_children(self) -> list[ForkedChild]:
        return [child for child in self._children if isinstance(child, ForkedChild)]

    def stop_probes(self) -> None:
        for child in self._forked_children():
            child.end_child("interrupted")

    def _wait_for_children(self) -> None:
        wait_for_children(self._forked_children())


def _fork_probe(host: HostAccess, task: ProbeTask) -> ForkedChild | str:
    _, function, _, deadline = task

    def send_answers(emit: Emit) -> None:
        for part in _probe_answers(host, function):
            emit(part)

    try:
        return ForkedChild(send_answers, deadline, isolation.STARVED_FACTOR)
    except OSError as error:
        return f"cannot start a process: {(error.strerror or 'error').lower()}"


class _ThreadedRun(ProbeRun):
    """One daemon thread per probe, where other threads make a fork unsafe."""

    def __init__(self, host: HostAccess, tasks: Sequence[ProbeTask]):
        import threading

        super().__init__(host, tasks)
        self._begun = time.monotonic()
        self._parts: list[list[ProbeAnswer]] = [[] for _ in tasks]
        self._ends: list[list[tuple[str, float]]] = [[] for _ in tasks]
        self._threads = [
            threading.Thread(target=copy_context().run, args=(self._run_in_thread, task, parts, end), daemon=True)
            for task, parts, end in zip(tasks, self._parts, self._ends, strict=True)
        ]
        for thread in self._threads:
            thread.start()

    def all_ready(self) -> bool:
        return all(self._ends)

    def _run_in_thread(self, task: ProbeTask, parts: list[ProbeAnswer], end: list[tuple[str, float]]) -> None:
        fault = _collect_parts(self.host, task, parts)
        end.append((fault, time.monotonic() - self._begun))

    def collect_facts(self) -> list[Fact]:
        facts: list[Fact] = []
        for task, thread, parts, end in zip(self.tasks, self._threads, self._parts, self._ends, strict=True):
            thread.join(max(self._begun + task[3] - time.monotonic(), 0))
            late = (f"no answer within {task[3]:g} s", time.monotonic() - self._begun)
            fault, seconds = end[0] if end else late
            facts += self._facts_of_probe(task, list(parts), fault, seconds)
        return facts
