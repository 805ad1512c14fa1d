"""Every known way in which a machine breaks has its test, or says what it waits for."""

from __future__ import annotations

import ast
import os
import re
import subprocess
from functools import cache
from pathlib import Path

from tests.every import every
from tests.faults import rows
from tests.faults.leftovers import Leftovers

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CASES = rows.cases()


@cache
def named_in(path: Path) -> set[str]:
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}


def test_every_case_is_there_once():
    wanted = [f"{letter}{number:02}" for letter, count in rows.COUNTS.items() for number in range(1, count + 1)]
    assert [case["id"] for case in CASES] == wanted and len(wanted) == 58 + 16 + 23 + 64 + 35 + 24 + 18 == 238


@every("case", CASES, ids=lambda case: case["id"])
def test_a_case_has_a_test_or_says_why_not(case):
    assert set(case) - {"within"} == {"id", "fault", "how", "expect", "where"} and all(case.values())
    assert case["how"] in ("injected", "replayed", "recorded", "not run")
    assert len(set(case["where"])) == len(case["where"])
    for where in case["where"]:
        if where.startswith("not run:"):
            continue
        if where.startswith("record:"):
            _, file, words = where.split(": ", 2)
            assert words in (ROOT / file).read_text(), where
            continue
        file, _, name = where.partition("::")
        assert name.startswith("test_") and name in named_in(ROOT / file), where
    recorded = any(where.startswith("record:") for where in case["where"])
    assert recorded == (case["how"] == "recorded")
    assert rows.named(case) or case["how"] == "not run"


def test_a_row_shows_what_was_seen_and_what_was_not():
    """The table tells a failure, a skip, a deadline that was missed, and a test that was never run."""
    case = {
        "id": "A01",
        "fault": "x",
        "how": "injected",
        "expect": "y",
        "within": 1,
        "where": ["t.py::test_a", "t.py::test_b"],
    }
    blank = {
        "runs": 1,
        "duration": 0.1,
        "failed": [],
        "skipped": [],
        "told": [],
        "commands": [],
        "tracebacks": 0,
        "ready": 0,
    }
    well = {"t.py::test_a": dict(blank), "t.py::test_b": dict(blank)}
    assert rows.row(case, well)[4:] == ("holds: a", "0.10 of 1", "passed")
    said = well | {"t.py::test_b": blank | {"commands": [{"exit": 1, "says": "no|GPU", "seconds": 2.0}]}}
    assert rows.row(case, said)[4:] == ("exit 1: no|GPU; holds: a", "2.00 of 1", "late") and "no\\|GPU" in rows.table(
        [case], said
    )
    assert rows.outcome(case, {"t.py::test_a": blank}) == "1 of 2 tests not run"
    assert rows.outcome(case, well | {"t.py::test_a": blank | {"failed": ["E broke"]}}) == "FAILED: E broke"
    skipped = {name: blank | {"skipped": ["no root"]} for name in well}
    assert rows.outcome(case, skipped) == "skipped: no root"
    assert rows.bad([case], said, {"files": []}) and rows.bad([case], well, {"files": ["/tmp/x"]})
    assert not rows.bad([case], well, {"files": []})
    result = well | {"t.py::test_a": blank | {"told": [["A01, B02", "", "named", 0.5]]}}
    assert rows.row(case, result)[4:6] == ("named", "0.50 of 1")
    assert "| A01, B02 |  | named | 0.50 |" in rows.besides(result) and rows.besides(well) == ""


def test_what_a_run_leaves_is_told():
    left = Leftovers()
    process = subprocess.Popen(["sleep", "60"], env={**os.environ, **left.variables})
    try:
        (Path(left.folder) / "draft").write_text("")
        (Path(left.folder) / "pytest-of-ada").mkdir()  # pytest's own, which goes with the folder
        found = left.after(0.2)
    finally:
        process.kill()
        process.wait()
    mine = [path for path in found["files"] if path.startswith(left.folder)]  # other work here makes files too
    assert mine == [f"{left.folder}/draft"] and found["processes"] == [f"{process.pid} sleep 60"]
    assert found["ports"] == [] and not os.path.exists(left.folder)


def test_every_test_of_a_case_is_in_the_table():
    """A test that carries the number of a case is found from that case."""
    listed = {(case["id"].lower(), where) for case in CASES for where in case["where"]}
    for path in HERE.glob("test_*.py"):
        for name in named_in(path):
            for number in re.findall(r"(?<=_)([a-g]\d\d)(?=_)", name):
                assert (number, f"tests/faults/{path.name}::{name}") in listed, name


def test_only_what_needs_root_is_kept_for_make_faults():
    kept = [*HERE.glob("test_root*.py"), *HERE.glob("test_fleet_*.py"), *HERE.glob("test_watched*.py")]
    for path in kept:
        assert "pytest.mark.faults" in path.read_text()
    roots = {path.name for path in kept}
    others = [p.name for p in HERE.glob("test_*.py") if p.name not in roots | {"test_cases.py"}]
    assert len(others) >= 3 and not [name for name in others if "mark.faults" in (HERE / name).read_text()]
