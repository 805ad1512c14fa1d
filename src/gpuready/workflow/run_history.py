"""What the records of earlier runs say of each host: where ranks failed first, were lost, or kept the others waiting."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from gpuready import system
from gpuready.model.run import LaunchAttempt
from gpuready.workflow import run_record
from gpuready.workflow.refusal import Refused

MAX_RECORDS, MAX_HOSTS = 2000, 16
OFTEN = 2
"""Once may be chance, and the first failure is often the program's: so many are reported. A node that was lost is reported at once."""
LOST, FIRST, SLOW = "was lost", "failed first", "kept the others waiting"
STOOD_OUT = {"slow": SLOW, "silent": LOST, "stopped": SLOW, "kernel": SLOW}
"""Notes of a run that name a host."""


def describe_earlier_runs(folder: str) -> list[str]:
    """Say which hosts stand out in the runs that are recorded in a folder, or in the folders in it."""
    attempts = [
        attempt for path in _list_records(folder) if (run := run_record.read_record(path)) for attempt in run.attempts
    ]
    if not attempts:
        raise Refused(f"--runs {folder}: there is no {run_record.NAME} of gpuready run, here or one folder below")
    took_part: dict[str, int] = {}
    counts: dict[str, dict[str, int]] = {}
    for attempt in attempts:
        for host in {end.host for end in attempt.ends}:
            took_part[host] = took_part.get(host, 0) + 1
        for host, what in set(_find_events(attempt)):
            counts.setdefault(host, {})[what] = counts.setdefault(host, {}).get(what, 0) + 1
    found = [text for host in sorted(counts) if (text := _describe_host(host, counts[host], took_part.get(host, 0)))]
    summary = f"{len(attempts)} earlier runs of {folder} were read" + ("" if found else ": no host stands out")
    return [summary, *found[:MAX_HOSTS]]


def _list_records(folder: str) -> list[str]:
    host = system.LiveHost()
    try:
        names = host.list_directory(folder) or ()
        every = [folder, *(os.path.join(folder, name) for name in sorted(names)[:MAX_RECORDS])]
        paths = [os.path.join(one, run_record.NAME) for one in every]
        return [path for path in paths if host.stat_path(path) is not None]
    except system.AccessError as error:
        raise Refused(f"--runs {folder}: {error}") from None


def _find_events(attempt: LaunchAttempt) -> Iterable[tuple[str, str]]:
    """Yield what happened to hosts in one start."""
    for end in attempt.first_ends:
        yield end.host, LOST if end.lost else FIRST
    for note in attempt.notes:
        if note.host and note.kind in STOOD_OUT:
            yield note.host, STOOD_OUT[note.kind]


def _describe_host(host: str, counts: Mapping[str, int], runs: int) -> str:
    parts = [f"{what} in {count}" for what, count in sorted(counts.items()) if count >= OFTEN or what == LOST]
    return f"{host} {', '.join(parts)} of {max(runs, *counts.values())} earlier runs" if parts else ""
