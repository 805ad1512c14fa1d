"""Every statement of the five environment pages, by its id: a contract has it, and something acts on it.

The pages themselves are not here; their statements are, in our own words, in ``tests/pages/statements.toml``.
``docs/reference/environment-pages.md`` is made of the same file by ``tools/environment_pages.py``.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from collections import Counter
from pathlib import Path

import pytest

from gpuready import contracts, rules
from gpuready.catalog import causes, gpus
from gpuready.catalog import facts as catalogue
from gpuready.logs.log_patterns import compile_patterns, fold_whitespace
from gpuready.model import Finding
from gpuready.render.contract import render_contract_screen
from gpuready.render.layout import Screen
from tests.every import every
from tests.pages import reading
from tests.pages.reading import PAGES, STATEMENTS, contract, judged, rows, says, world

ROOT = Path(__file__).parent.parent
SECTIONS = ["overview", "requirements", "dependencies", "credentials", "install", "evidence", "errors", "notes"]
COUNTS = {"colossalai": 63, "colossalai-init": 21, "axolotl": 79, "roll": 83, "transformers": 69}
KINDS = {"requirement", "rule", "variable", "error", "step", "package", "note"}
REPORTED = ("step", "by hand", "gpuready contract show")
FIELDS = {
    *("id", "page", "section", "kind", "says", "row", "expect", "handled", "holds", "today"),
    *("broken", "healthy", "severity", "cases"),
}


def codes(statement):
    return [name for name in statement["handled"] if re.fullmatch(r"[A-Z]{3}\d{3}", name)]


def functions(statement):
    return [name for name in statement["handled"] if re.fullmatch(r"gpuready(\.\w+)+", name)]


def proofs(statement):
    return [name.removeprefix("can.") for name in statement["handled"] if name.startswith("can.")]


def agreed(statement):
    return contract(PAGES[statement["page"]]["contract"])


def each(chosen=lambda statement: True):
    picked = [statement for statement in STATEMENTS if chosen(statement)]
    assert picked
    return every("statement", picked, ids=[one["id"] for one in picked])


# -- every statement ----------------------------------------------------------------------------------


@each()
def test_statement(statement):
    """The contract of the page has the row, the row says what the statement claims, and somebody acts on it."""
    found = rows(agreed(statement), statement["row"])
    assert found, f"no row {statement['row']} in {PAGES[statement['page']]['contract']}"
    expect = statement.get("expect", {})
    if isinstance(found[0], str):
        assert len(found) == 1 and not expect and "environment page" in found[0]
    else:
        assert any(says(row, expect) for row in found), found
    assert statement["handled"]
    known = [*codes(statement), *functions(statement), *(f"can.{name}" for name in proofs(statement)), *REPORTED]
    assert set(statement["handled"]) <= set(known)


@each(lambda one: one["row"].partition(":")[0] != "notes")
def test_the_row_cites_the_page(statement):
    cited = rows(agreed(statement), statement["row"])
    expected = [row for row in cited if says(row, statement.get("expect", {}))]
    assert any("environment page" in getattr(row, "cite", getattr(row, "note", "")) for row in expected) or (
        "setup.py" in expected[0].cite  # what the page leaves to a table of the install
    )


@each(lambda one: "today" in one)
def test_what_the_code_of_today_says(statement):
    today = statement["today"]
    other = contract(today["contract"])
    assert other.framework == agreed(statement).framework and today["contract"] != agreed(statement)
    found = rows(other, today["row"])
    if today.get("absent"):
        assert not found
    else:
        assert any(isinstance(row, str) or says(row, today.get("expect", {})) for row in found), found


# -- rules --------------------------------------------------------------------------------------------


@each(codes)
def test_the_rule_fires_on_the_broken_machine(statement):
    known = world(statement, "healthy", "broken")
    for code in codes(statement):
        found = judged(code, known, agreed(statement))
        assert isinstance(found, Finding), f"{code} is silent"
        assert found.severity == statement.get("severity", rules.load_rule(code).SEVERITY)
        assert found.code == code and found.found and found.fix


@each(codes)
def test_the_rule_is_silent_on_the_healthy_machine(statement):
    for code in codes(statement):
        assert judged(code, world(statement, "healthy"), agreed(statement)) is None


@each(lambda one: codes(one) and one["row"].startswith("needs:"))
def test_the_finding_names_the_row_of_the_page(statement):
    """Where a rule judges by the contract, the row of this very statement is among the reasons."""
    known = world(statement, "healthy", "broken")
    for code in codes(statement):
        reasons = judged(code, known, agreed(statement)).needs
        if any(need in agreed(statement).needs for need in reasons):
            mine = [row for row in rows(agreed(statement), statement["row"]) if row in reasons]
            assert any(says(row, statement.get("expect", {})) for row in mine), reasons


def test_a_machine_in_order_breaks_no_rule_of_a_page():
    named = {code for statement in STATEMENTS for code in codes(statement)}
    for page in PAGES.values():
        statement = {"page": page["id"]}
        for code in sorted(named):
            assert judged(code, world(statement), contract(page["contract"])) is None, (page["id"], code)


# -- functions, capabilities, steps, variables, errors ------------------------------------------------


@each(functions)
def test_the_function_decides_as_the_page_says(statement):
    path = functions(statement)[0]
    assert statement["cases"] and all(callable(reading.function(name)) for name in functions(statement))
    for case in statement["cases"]:
        result = reading.called(path, case)
        assert ("gives" in case) != ("has" in case)
        if "gives" in case:
            assert reading.gives(result, case["gives"]), (case, result)
        else:
            assert reading.has(result, case["has"]), (case, result)


@each(proofs)
def test_the_capability_can_be_proved(statement):
    for name in proofs(statement):
        listed = [row for row in agreed(statement).capabilities if row.name == name]
        assert listed and catalogue.find_declaration(f"can.{name}")
        assert all(not row.gate or gpus.find_feature(row.gate) for row in listed)


@each(lambda one: "step" in one["handled"])
def test_the_step_is_an_argument_list(statement):
    steps = rows(agreed(statement), statement["row"])
    assert steps and all(step.run and step.safety in ("safe", "ask") for step in steps)


@each(lambda one: "by hand" in one["handled"])
def test_what_is_done_by_hand_is_described(statement):
    steps = rows(agreed(statement), statement["row"])
    assert steps and all(step.safety == "manual" and step.does and step.note for step in steps)


@each(lambda one: "gpuready contract show" in one["handled"])
def test_what_is_only_told_is_told(statement):
    table = statement["row"].partition(":")[0]
    screen = " ".join(render_contract_screen(agreed(statement), Screen()).split())
    row = rows(agreed(statement), statement["row"])[0]
    outcome = row if table == "notes" else getattr(row, reading.WORDS[table])
    assert " ".join(outcome.split()) in screen


@each(lambda one: one["row"].startswith("variables:"))
def test_the_variable_is_read_or_set(statement):
    for variable in rows(agreed(statement), statement["row"]):
        assert variable.access in ("read", "set", "read and set")
        assert not variable.required or "read" in variable.access
        assert not variable.allowed or not variable.value or variable.value in variable.allowed


@each(lambda one: one["row"].startswith("errors:"))
def test_the_error_has_a_cause_a_fix_and_the_code_of_the_rule_that_knows_it(statement):
    for error in rows(agreed(statement), statement["row"]):
        assert len(error.cause) > 10 and len(error.fix) > 10
        assert not error.code or error.code in rules.list_codes()


@functools.cache
def sure_signs():
    signs = [sign for code in rules.list_codes() for sign in compile_patterns(code, causes.list_patterns(code))]
    return [sign for sign in signs if sign.strength == "root" and not (sign.near or sign.also or sign.place)]


@pytest.mark.parametrize("row", contracts.list_contract_rows(), ids=lambda row: row["file"])
def test_an_error_that_a_rule_has_a_sign_for_carries_its_code(row):
    one = contracts.load_contract(row["framework"], row["version"], row["variant"] or None)
    for error in one.errors:
        knowing = {sign.code for sign in sure_signs() if sign.match_text(fold_whitespace(error.message)) is not None}
        # The rule that predicts it may be another than the one that reads it in a log.
        assert not knowing or error.code, f"{error.message!r} is a sign of {knowing}"


# -- the whole ----------------------------------------------------------------------------------------


def test_every_page_has_all_of_its_statements():
    counted = Counter(statement["page"] for statement in STATEMENTS)
    assert counted == COUNTS == {page["id"]: page["statements"] for page in PAGES.values()}


def test_every_section_of_every_page_is_there():
    for page in PAGES.values():
        found = list(dict.fromkeys(s["section"] for s in STATEMENTS if s["page"] == page["id"]))
        assert found == page["sections"]
        assert found == (SECTIONS if page["id"] != "colossalai-init" else ["overview", "usage", "steps"])


def test_statements_are_well_formed():
    ids = [statement["id"] for statement in STATEMENTS]
    assert len(ids) == len(set(ids))
    for one in STATEMENTS:
        assert set(one) <= FIELDS and one["kind"] in KINDS and one["holds"]
        assert re.fullmatch(rf"{one['page']}\.[a-z0-9]+(-[a-z0-9]+)*", one["id"])
        assert one["says"].endswith(".") and len(one["says"]) < 160
        assert bool(codes(one)) == ("broken" in one) and bool(functions(one)) == ("cases" in one)


@pytest.mark.parametrize("name", sorted({page["contract"] for page in PAGES.values()}))
def test_no_row_that_cites_a_page_is_without_a_statement(name):
    one = contract(name)
    mine = [s for s in STATEMENTS if PAGES[s["page"]]["contract"] == name]
    named = [row for s in mine for row in rows(one, s["row"]) if says(row, s.get("expect", {}))]
    cited = [row for table in ("needs", "capabilities", "variables", "errors") for row in getattr(one, table)]
    cited = [row for row in cited if row.cite.startswith("environment page")]
    outcome = [note for note in one.notes if "environment page" in note]
    assert [row for row in (*cited, *one.steps, *outcome) if row not in named] == []


def test_few_statements_are_only_told():
    """What nobody acts on is a purpose, a place in a script, or an error that no rule can foresee."""
    outcome = [s for s in STATEMENTS if set(s["handled"]) <= {"gpuready contract show", "by hand"}]
    assert len(outcome) <= 40 and not [s["id"] for s in outcome if s["kind"] == "requirement"]


def test_the_page_of_the_reference_is_fresh():
    spec = importlib.util.spec_from_file_location("environment_pages", ROOT / "tools" / "environment_pages.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert not tool.stale(), "run `make catalog`"
