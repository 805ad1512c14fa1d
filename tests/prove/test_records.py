"""What the catalogue says was executed by us has a record: sealed, and passed on that device."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuready.catalog import proofs
from gpuready.model.proof import ProofRecord

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
RECORDS = {"h200": "prove-h200.jsonl", "cpu": "prove-cpu.jsonl"}


def passed(where: str) -> set[str]:
    found = set()
    for line in (RESULTS / RECORDS[where]).read_text().splitlines():
        evidence = ProofRecord.from_json(json.loads(line))
        assert evidence.is_intact, f"a run of {evidence.made} is not what was sealed"
        on_gpu = where != "cpu"
        found |= {
            proof.name.removesuffix(", cpu")
            for proof in evidence.proofs
            if proof.verdict == "passed" and proof.device.startswith("cuda") is on_gpu
        }
    return found


@pytest.mark.parametrize("where", RECORDS)
def test_what_is_said_to_be_executed_has_a_record(where):
    said = {row.name for row in proofs.list_proofs() if where in row.executed.split()}
    assert said and said <= passed(where), said - passed(where)
