"""The record of a run, kept beside its logs: what was started, how each rank ended, who failed first; and what several say of a host."""

import json
import os
from collections.abc import Iterable, Mapping

from gpuready import system
from gpuready.launcher.rank_logs import RECORD
from gpuready.model.diagnosis import Diagnosis
from gpuready.model.run import LaunchAttempt, RunOutcome
from gpuready.workflow.refusal import Refused

NAME, KIND = RECORD, "gpuready run"
MAX_BYTES = 64 << 20


def write_record(outcome: RunOutcome, diagnosis: Diagnosis | None, started: str) -> None:
    """Write the record; a disk that is full loses it, not the run's answer."""
    found = {"code": diagnosis.code, "says": diagnosis.says, "rank": diagnosis.rank} if diagnosis is not None else {}
    fields = {"record": KIND, "started": started, **outcome.to_json(), "diagnosis": found}
    path = os.path.join(outcome.job.logs, NAME)
    try:
        system.save_atomically(path, json.dumps(fields))
    except system.AccessError:
        return


def read_record(path: str) -> RunOutcome | None:
    """Return the run that a file records; None if it is no such file."""
    try:
        fields = json.loads(system.LiveHost().read_text(path, MAX_BYTES) or "")
        return RunOutcome.from_json({**fields, "diagnosis": {}}) if fields.get("record") == KIND else None
    except (system.AccessError, ValueError, TypeError, AttributeError, KeyError):
        return None


def describe_file(path: str) -> str:
    """Say in a sentence what a record says; empty if the file is none."""
    outcome = read_record(path)
    if outcome is None:
        return ""
    ends = outcome.last.first_ends
    if not ends:
        return f"gpuready run recorded: {outcome.verdict}, exit {outcome.code}"
    who = f"rank {ends[0].rank} on {ends[0].host}"
    return f"gpuready run recorded: {who} failed first ({ends[0].how} after {ends[0].seconds:.0f} s)"


MAX_RECORDS, MAX_HOSTS = 2000, 16
OFTEN = 2
"""Once may be chance, and the first failure is often the program's: so many are reported. A node that was lost is reported at once."""
LOST, FIRST, SLOW = "was lost", "failed first", "kept the others waiting"
STOOD_OUT = {"slow": SLOW, "silent": LOST, "stopped": SLOW, "kernel": SLOW}
"""Notes of a run that name a host."""


def describe_earlier_runs(folder: str) -> list[str]:
    """Say which hosts stand out in the runs that are recorded in a folder, or in the folders in it."""
    attempts = [attempt for path in _list_records(folder) if (run := read_record(path)) for attempt in run.attempts]
    if not attempts:
        raise Refused(f"--runs {folder}: there is no {NAME} of gpuready run, here or one folder below")
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
        paths = [os.path.join(one, NAME) for one in every]
        return [path for path in paths if host.stat_path(path) is not None]
    except system.AccessError as error:
        raise Refused(f"--runs {folder}: {error}") from None


def _find_events(attempt: LaunchAttempt) -> Iterable[tuple[str, str]]:
    """Yield what happened to hosts in one start; nothing where it was not decided which rank was first."""
    if len({end.host for end in attempt.first_ends if end.host and (end.pid or end.lost)}) == 1:
        end = attempt.first_ends[0]
        yield end.host, LOST if end.lost else FIRST
    for note in attempt.notes:
        if note.host and note.kind in STOOD_OUT:
            yield note.host, STOOD_OUT[note.kind]


def _describe_host(host: str, counts: Mapping[str, int], runs: int) -> str:
    parts = [f"{what} in {count}" for what, count in sorted(counts.items()) if count >= OFTEN or what == LOST]
    return f"{host} {', '.join(parts)} of {max(runs, *counts.values())} earlier runs" if parts else ""
