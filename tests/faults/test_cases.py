"""Every known way in which a machine breaks has its test, or says what it waits for."""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CASES = tomllib.loads((HERE / "cases.toml").read_text())["case"]
LATER = re.compile(r"later: needs (install|launch|fleet|prove), .+")


@cache
def named_in(path: Path) -> set[str]:
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}


def test_every_case_is_there_once_and_in_order():
    wanted = [f"D{number:02}" for number in range(1, 65)] + [f"C{number:02}" for number in range(1, 24)]
    wanted += [f"F{number:02}" for number in range(1, 25)]
    wanted += [f"A{number:02}" for number in range(1, 59)] + [f"B{number:02}" for number in range(1, 17)]
    wanted += [f"G{number:02}" for number in range(1, 19)]
    assert [case["id"] for case in CASES] == wanted


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_a_case_has_a_test_or_says_what_it_waits_for(case):
    assert set(case) == {"id", "fault", "where"} and case["fault"] and case["where"]
    assert len(set(case["where"])) == len(case["where"])
    for where in case["where"]:
        if where.startswith("later:"):
            assert LATER.fullmatch(where), where
            continue
        if where.startswith("not run:"):
            assert any("::" in other for other in case["where"]), case
            continue
        if where.startswith("record:"):
            _, file, words = where.split(": ", 2)
            assert words in (ROOT / file).read_text(), where
            continue
        file, _, name = where.partition("::")
        assert name.startswith("test_") and name in named_in(ROOT / file), where


def test_every_test_of_a_case_is_in_the_table():
    """A test that carries the number of a case is found from that case."""
    listed = {(case["id"].lower(), where) for case in CASES for where in case["where"]}
    for path in HERE.glob("test_*.py"):
        for name in named_in(path):
            for number in re.findall(r"(?<=_)([abcdfg]\d\d)(?=_)", name):
                assert (number, f"tests/faults/{path.name}::{name}") in listed, name


def test_only_what_needs_root_is_kept_for_make_faults():
    kept = [*HERE.glob("test_root*.py"), *HERE.glob("test_fleet_*.py")]
    for path in kept:
        assert "pytestmark = pytest.mark.faults" in path.read_text()
    roots = {path.name for path in kept}
    others = [p.name for p in HERE.glob("test_*.py") if p.name not in roots | {"test_cases.py"}]
    assert len(others) >= 3 and not [name for name in others if "mark.faults" in (HERE / name).read_text()]
