"""The record of a run, kept beside its logs: what was started, how each rank ended, who failed first."""

from __future__ import annotations

import json
import os

from gpuready import system
from gpuready.model.diagnosis import Diagnosis
from gpuready.model.run import RunOutcome

NAME, KIND = "run.json", "gpuready run"
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
    how = f"signal {ends[0].signal}" if ends[0].signal else f"exit {ends[0].code}"
    return f"gpuready run recorded: rank {ends[0].rank} on {ends[0].host} failed first ({how} after {ends[0].seconds:.0f} s)"
