"""The JSON: one document, the fields as keys, ASCII, and nothing that JSON does not have."""

from __future__ import annotations

import json as decoder

import pytest

from gpuready import __version__
from gpuready.model import Fact, Facts, Finding, Report
from gpuready.render import json_document

from .machines import REPORTS


def read(fields: dict) -> dict:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return decoder.loads(json_document.format_json_document(fields), parse_constant=refuse)


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_survives_the_journey(name):
    report = REPORTS[name]
    read_back = read(json_document.report_json_fields(report))
    assert list(read_back)[:6] == ["schema", "gpuready", "verdict", "answer", "exit", "host"]
    assert read_back["schema"] == 1 and read_back["gpuready"] == __version__
    assert read_back["verdict"] == report.verdict and read_back["exit"] == report.exit
    assert tuple(Finding.from_json(f) for f in read_back["findings"]) == report.findings or name == "hostile"
    assert set(Report._fields) <= set(read_back)
    facts = Facts([Fact.from_json(f) for f in read_back["facts"]], read_back["host"])
    assert facts == report.facts
    assert read_back["requirements"] == read_back["contract"]


def test_every_verdict_of_a_document_has_its_words_and_names_of_machines_stay_theirs():
    place = {"verdict": "does not fit", "places": [{"verdict": "undecided"}], "contract_note": "read from 5.17"}
    found = read({"verdict": "clear", "fit": place, "facts": [{"value": {"verdict": "clear", "contract": "a.toml"}}]})
    assert found["answer"] == "no problems found" and found["fit"]["answer"] == "does not fit"
    assert found["fit"]["places"] == [{"verdict": "undecided", "answer": "can't tell"}]
    assert found["fit"]["requirements_note"] == found["fit"]["contract_note"] == "read from 5.17"
    assert found["facts"] == [{"value": {"verdict": "clear", "contract": "a.toml"}}]


def test_several_reports_come_under_the_worst_verdict():
    whole = read(
        json_document.reports_json_fields([REPORTS["clear_h200"], REPORTS["old_driver"], REPORTS["undecided"]])
    )
    assert whole["verdict"] == "not-ready" and whole["exit"] == 1 and whole["schema"] == 1
    assert [r["verdict"] for r in whole["reports"]] == ["clear", "not-ready", "undecided"]
    assert read(json_document.reports_json_fields([REPORTS["clear_h200"], REPORTS["undecided"]]))["exit"] == 3


def test_the_document_is_ascii_and_ends_its_line():
    text = json_document.format_json_document(json_document.report_json_fields(REPORTS["hostile"]))
    assert text.isascii() and text.endswith("}\n")
    assert all(line.isprintable() for line in text.splitlines())


def test_what_json_has_not_becomes_text():
    facts = Facts([Fact("a.nan", float("nan")), Fact("a.inf", (float("inf"), {"deep": float("-inf")}))])
    values = [f["value"] for f in read(json_document.facts_json_fields(facts))["facts"]]
    assert values == ["nan", ["inf", {"deep": "-inf"}]]
    assert read({"path": object})["path"].startswith("<class")
