"""Recordings of every schema that there was stay readable.

``schema-N.json`` is a small recording as schema N wrote it, and frozen. A change that breaks it needs a new number, and a new file
beside the old one.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuready.model import SCHEMA
from gpuready.render import json_document as render
from gpuready.workflow import Refused, check_machine

HERE = Path(__file__).parent
OLD = sorted(HERE.glob("schema-*.json"))


def changed(tmp_path: Path, **fields: object) -> str:
    data = json.loads((HERE / f"schema-{SCHEMA}.json").read_text()) | fields
    path = tmp_path / "machine.json"
    path.write_text(json.dumps(data))
    return str(path)


# -- recordings ---------------------------------------------------------------------------------------------


def test_there_is_a_frozen_recording_of_every_schema():
    assert [json.loads(path.read_text())["schema"] for path in OLD] == list(range(1, SCHEMA + 1))


@pytest.mark.parametrize("path", OLD, ids=lambda path: path.stem)
def test_an_old_recording_is_read_and_judged(path):
    (report,) = check_machine(["transformers"], on=str(path))
    assert report.verdict == "clear" and len(report.judged) > 40
    assert report.facts.value("gpu.name") == ("NVIDIA H200",)


def test_the_first_recording_that_there_was_is_read_and_judged():
    """Facts that gpuready learned to look for since are a gap in it, and what they decide is undecided: never taken as absent."""
    (report,) = check_machine(["transformers"], on=str(HERE / "first-1.json"))
    assert report.verdict == "clear" and not report.findings and len(report.judged) > 60
    assert {one.code for one in report.undecided} == {"BLD015", "PKG017"}


def test_a_recording_of_the_future_is_refused_in_a_sentence(tmp_path):
    with pytest.raises(Refused) as refused:
        check_machine(["transformers"], on=changed(tmp_path, schema=SCHEMA + 1))
    assert f"has schema {SCHEMA + 1} and this gpuready reads {SCHEMA}: upgrade gpuready" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("schema", [None, "1", 0.5, -1, 0, True])
def test_a_schema_that_is_none_is_refused(tmp_path, schema):
    with pytest.raises(Refused):
        check_machine(["transformers"], on=changed(tmp_path, schema=schema))


def test_keys_that_nobody_knows_change_nothing(tmp_path):
    plain = check_machine(["transformers"], on=changed(tmp_path))
    facts = [fact | {"later": [1, 2]} for fact in json.loads((HERE / f"schema-{SCHEMA}.json").read_text())["facts"]]
    more = check_machine(["transformers"], on=changed(tmp_path, facts=facts, later={"a": 1}, tape=None))
    assert render.reports_json_fields(plain) == render.reports_json_fields(more)
