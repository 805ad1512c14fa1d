"""Records of earlier runs, as gpuready run writes them, beside the report of a fleet."""

from __future__ import annotations

import sys

import pytest
from tests.fleet.faked import SSH
from tests.fleet.test_command import FakeService

from gpuready.model.run import LaunchAttempt, LaunchJob, RankEnd, RunNote, RunOutcome
from gpuready.workflow import run_record
from gpuready.workflow.refusal import Refused
from gpuready.workflow.run_record import describe_earlier_runs


def record(folder, name: str, first: str = "", *, lost: bool = False, slow: str = "") -> None:
    """One run on good1 to good3, of which a rank of the first host failed."""
    hosts = ("good1", "good2", "good3")
    ends = tuple(
        RankEnd(at, host, 7, 1 if host == first else 0, lost=lost and host == first) for at, host in enumerate(hosts)
    )
    notes = (RunNote("slow", "slow", rank=0, host=slow),) if slow else ()
    made = LaunchAttempt(ends=ends, first=(hosts.index(first),) if first else (), notes=notes, code=int(bool(first)))
    (folder / name).mkdir(parents=True)
    job = LaunchJob("slurm", "python", "script", ("t.py",), 1, nnodes=3, logs=str(folder / name))
    run_record.write_record(
        RunOutcome(job, (made,), made.code, "failed" if first else "done"), None, "2026-11-17T00:00:00Z"
    )


def test_hosts_that_stood_out_are_told(tmp_path):
    record(tmp_path, "a", "good2")
    record(tmp_path, "b", "good2", slow="good3")
    record(tmp_path, "c", "good1", lost=True)
    record(tmp_path, "d", slow="good3")
    record(tmp_path, "e", "good3")
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "run.json").write_text("{not json")
    assert describe_earlier_runs(str(tmp_path)) == [
        f"5 earlier runs of {tmp_path} were read",
        "good1 was lost in 1 of 5 earlier runs",
        "good2 failed first in 2 of 5 earlier runs",
        "good3 kept the others waiting in 2 of 5 earlier runs",
    ]


def test_one_failure_accuses_nobody(tmp_path):
    record(tmp_path, "a", "good2")
    record(tmp_path, "b")
    assert describe_earlier_runs(str(tmp_path)) == [f"2 earlier runs of {tmp_path} were read: no host stands out"]


@pytest.mark.parametrize("name", ["", "none"])
def test_a_folder_without_records_is_one_sentence(tmp_path, name):
    with pytest.raises(Refused, match="--runs"):
        describe_earlier_runs(str(tmp_path / name))


def test_fleet_tells_them_as_notes(tmp_path):
    service = FakeService(tmp_path)
    service.bin.put("ssh", SSH)
    for name in ("a", "b"):
        record(tmp_path / "gpuready-logs", name, "good2")
    words = ("drift", "--hosts", "good[1-3]", "--python", sys.executable, "--runs", str(tmp_path / "gpuready-logs"))
    found = service.json(*words)
    assert "good2 failed first in 2 of 2 earlier runs" in found["notes"] and found["exclude"] == ""
