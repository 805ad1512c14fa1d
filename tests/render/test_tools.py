"""SARIF and JUnit: well-formed, complete, and no place for what is undecided to pass as fine."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuready.model import (
    Contract,
    Fact,
    Facts,
    Finding,
    FixStep,
    IgnoredFinding,
    PassedRule,
    Report,
    Requirement,
    UndecidedRule,
)
from gpuready.render import json_document as answers
from gpuready.render import junit, sarif

HOSTILE = 'a"b<c>&\x1b]0;x\x07 \ud800\ufffe'
REPORT = Report(
    Contract("demo", "1.0"),
    Facts([], "here"),
    findings=(
        Finding(
            "DRV001",
            "error",
            HOSTILE,
            (Fact("driver.version", "550", "/sys/module/nvidia/version"),),
            (Requirement("driver.version", ">=580", cite="notes"),),
            "nothing runs",
            (FixStep("upgrade"),),
        ),
        Finding("SYS001", "warning", "small", (Fact("system.shm", 1, "statvfs"),)),
        Finding("MEM001", "info", "told"),
    ),
    undecided=(
        UndecidedRule("GPU004", "error", "Not covered", (Fact("gpu.capability", None, gap="denied"),)),
        UndecidedRule("SYS002", "warning", "Full", (Fact("disk.free", None, gap="denied"),)),
    ),
    unstated=(UndecidedRule("NET001", "error", "Down"),),
    judged=(PassedRule("PKG001", ("torch.build",)),),
    ignored=(IgnoredFinding(Finding("PKG002", "error", "missing"), "on purpose"),),
)
SUMMARIES = {"DRV001": {"code": "DRV001", "name": "driver-old", "severity": "error", "title": "Old.", "text": "Story."}}


def test_sarif_has_every_finding_with_its_rule_and_place():
    run = json.loads(sarif.render_sarif([REPORT], SUMMARIES))["runs"][0]
    results = {r["ruleId"]: r for r in run["results"]}
    assert set(results) == {"DRV001", "SYS001", "MEM001", "GPU004", "SYS002", "PKG002"}
    assert [results[c]["level"] for c in ("DRV001", "SYS001", "MEM001")] == ["error", "warning", "note"]
    assert results["GPU004"]["kind"] == "open" and "denied" in results["GPU004"]["message"]["text"]
    assert results["PKG002"]["suppressions"][0]["justification"] == "on purpose"
    place = results["DRV001"]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert place == "file:///sys/module/nvidia/version"
    assert results["SYS001"]["locations"][0]["logicalLocations"][0]["name"] == "statvfs"
    assert results["DRV001"]["properties"]["found"][0]["key"] == "driver.version"
    assert run["tool"]["driver"]["rules"][0]["shortDescription"]["text"] == "Old."


def suite(report):
    return ET.fromstring(junit.render_junit_xml([report]))[0]


def test_junit_counts_what_fails_and_what_is_skipped():
    found = suite(REPORT)
    assert found.attrib == {"name": "demo 1.0", "tests": "8", "failures": "2", "skipped": "3"}
    cases = {case.attrib["name"]: case for case in found}
    assert cases["PKG001"].find("failure") is None and len(cases["PKG001"]) == 0
    assert "driver.version: 550" in cases["DRV001"].find("failure").text
    assert cases["GPU004"].find("failure") is not None, "undecided is never passed"
    assert cases["SYS002"].find("skipped") is not None
    assert "on purpose" in cases["PKG002"].find("skipped").text


def test_they_say_how_old_the_catalogue_is():
    dated = REPORT.replace(catalog="2026-11-15 <old>")
    run = json.loads(sarif.render_sarif([dated, dated], SUMMARIES))["runs"][0]
    assert run["properties"] == {"catalog": "2026-11-15 <old>"}
    result = suite(dated).find("properties/property")
    assert result.attrib == {"name": "catalog", "value": "2026-11-15 <old>"}
    assert answers.report_json_fields(dated)["catalog"] == "2026-11-15 <old>"
    assert "properties" not in json.loads(sarif.render_sarif([REPORT], SUMMARIES))["runs"][0]
    assert suite(REPORT).find("properties") is None, "no date, no claim"


def test_junit_strict_fails_on_warnings_and_everything_undecided():
    assert suite(REPORT.replace(strict=True)).attrib["failures"] == "4"


@given(st.text())
def test_any_text_is_well_formed_xml(text):
    finding = Finding("DRV001", "error", text, so=text)
    ET.fromstring(junit.render_junit_xml([Report(Contract(text or "x", "1"), Facts([]), (finding,))]))


@pytest.mark.parametrize("text", ["\x00", "\x1b[31m", "\ufffe", "\ud800"])
def test_what_xml_cannot_hold_is_made_visible(text):
    finding = Finding("DRV001", "error", text)
    assert "\\" in suite(Report(Contract("x", "1"), Facts([]), (finding,)))[0][0].attrib["message"]
