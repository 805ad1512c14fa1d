"""What a fix does to imports that fail: the reinstall, the install or the removal that a finding names clears it."""

from __future__ import annotations

from typing import Any

import pytest

from gpuready import workflow
from gpuready.model import Contract, Fact, Facts
from gpuready.plan.fix import plan_fix

CONTRACT = Contract("demo", "1.0", distribution="demo", platforms=())
SITE = "/venv/lib/python3.12/site-packages"
CUT = {
    "kind": "damaged",
    "path": f"{SITE}/a/a.so",
    "detail": "it is cut off",
    "distribution": "alpha",
    "roots": ("demo",),
}
ABSENT = {
    "kind": "absent",
    "path": "",
    "detail": "not installed",
    "distribution": "beta",
    "by": "demo",
    "want": ">=2",
    "roots": ("demo",),
}
OLD = {
    "kind": "version",
    "path": "",
    "detail": "1.26.4 is installed",
    "distribution": "numpy",
    "by": "jax",
    "want": ">=2",
    "roots": (),
}
NUMPY = {
    "kind": "numpy",
    "path": f"{SITE}/arrow/p.so",
    "detail": "it takes numpy >=2, and 1.26.4 is installed",
    "want": ">=2",
    "distribution": "arrow",
    "roots": ("demo",),
}
ERRORS = {
    "cut": (CUT, f"ImportError: {CUT['path']}: it is cut off", CUT["path"]),
    "absent": (ABSENT, "ModuleNotFoundError: No module named 'beta'", f"{SITE}/demo/__init__.py"),
    "imported because it is there": (OLD, "AttributeError: module 'numpy.dtypes' has no attribute 'StringDType'", f"{SITE}/jax/dtypes.py"),
    "another numpy": (NUMPY, "ImportError: numpy.core.multiarray failed to import", f"{SITE}/arrow/__init__.py"),
}  # fmt: skip
COMMANDS = {
    "cut": ("install", "--reinstall", "alpha==1.0"),
    "absent": ("install", "beta>=2"),
    "imported because it is there": ("uninstall", "jax"),
    "another numpy": ("install", "numpy>=2"),
}


def make_facts(*names: str) -> Facts:
    rows = tuple(ERRORS[name][0] for name in names)
    _, error, file = ERRORS[names[0]]
    result = {"demo": {"module": "demo", "error": error, "file": file, "line": 3, "chain": (f"{file}:3",)}}
    values: dict[str, Any] = {"import.damage": rows, "import.hidden": (), "import.result": result}
    values |= {"package.alpha": "1.0", "package.jax": "0.10", "package.numpy": "1.26.4", "package.arrow": "26.0"}
    values |= {"python.path": "/venv/bin/python", "python.version": "3.12.3", "package.demo": "1.0"}
    return Facts([Fact(key, value, "the test") for key, value in values.items()], "machine")


def judge(facts: Facts) -> Any:
    return workflow.judge_contract(facts, CONTRACT, {}, False)


@pytest.mark.parametrize("name", ERRORS)
def test_the_fix_of_a_failing_import_is_a_command_that_clears_it(name: str) -> None:
    report = judge(make_facts(name))
    assert {"PKG042", "PKG046"} & {finding.code for finding in report.findings}
    result = plan_fix(report, judge)
    (change,) = [one for one in result.changes if one.code in ("PKG042", "PKG046")]
    assert change.step.run[:2] == ("uv", "pip") and all(
        any(word.startswith(part) for word in change.step.run) for part in COMMANDS[name]
    ), change.step.run
    assert not change.trusts
    assert not [finding for finding in result.report.findings if finding.severity == "error"]


def test_what_else_differs_is_not_settled_by_it() -> None:
    """The rows of other packages stay, and are fixed by steps of their own."""
    result = plan_fix(judge(make_facts("cut", "absent")), judge)
    words = [word for change in result.changes for word in change.step.run]
    assert "alpha==1.0" in words and any(word.startswith("beta") for word in words)


def test_what_another_package_requires_is_not_removed() -> None:
    row = NUMPY | {
        "detail": "it takes numpy <2, and 2.2.6 is installed",
        "want": "<2",
        "roots": (),
        "users": ("datasets",),
    }
    facts = make_facts("another numpy").with_facts(Fact("import.damage", (row,), "the test"))
    report = judge(facts)
    (finding,) = [one for one in report.findings if one.code == "PKG046"]
    assert not any("uninstall" in step.run for step in finding.fix)
    assert finding.fix[-1].does == "or remove arrow and datasets, if no job uses them"
    (change,) = [one for one in plan_fix(report, judge).changes if one.code == "PKG046"]
    assert change.step.run[:3] == ("uv", "pip", "install") and "arrow" in change.step.run
