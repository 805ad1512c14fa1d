"""Every golden machine is judged as it was. ``pytest tests/machines --update-golden`` writes them anew; read the difference.

The machines are in park.py; the verdicts that an expert gives stand below in words, so that new goldens cannot unsay them.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuready.rules.gpu import row_remap_pending
from tests.every import every
from tests.machines import goldens
from tests.machines.goldens import by_framework as part
from tests.sampling import FUZZ, sample_cases

ROOT = Path(__file__).parents[2]


OTHERS = dict(zip(goldens.NAMES, itertools.cycle(goldens.FRAMEWORKS[1:])))


@pytest.mark.parametrize("name", goldens.NAMES)
def test_the_report_is_the_golden_one(name, request):
    """Of transformers and of one other framework in turn; of all, to the letter, with FUZZ=1 or --update-golden."""
    update = request.config.getoption("--update-golden")
    asked = goldens.FRAMEWORKS if FUZZ or update else ("transformers", OTHERS[name])
    document, screen = goldens.paths(name)
    reported, shown = goldens.made(name, asked)
    if update:
        document.parent.mkdir(exist_ok=True)
        document.write_text(reported)
        screen.write_text(shown)
    golden = document.read_text()
    assert part(reported, asked, asked) == part(golden, asked), (
        f"{document.name} differs; --update-golden writes it anew"
    )
    assert reported == golden or asked != goldens.FRAMEWORKS, f"{document.name} differs in its order"
    assert shown == screen.read_text(), f"{screen.name} differs; --update-golden writes it anew"


def test_every_framework_is_asked_of_many_machines():
    assert all(list(OTHERS.values()).count(one) >= 10 for one in goldens.FRAMEWORKS[1:])


def test_a_rule_that_judges_otherwise_is_seen(monkeypatch):
    """Not only a verdict that turns: also a finding that is graver, or put in other words."""
    golden = goldens.made("ecc-errors", ("transformers",))
    judge = row_remap_pending.judge
    for other in (
        lambda facts, contract: None,
        lambda facts, contract: judge(facts, contract).replace(severity="warning"),
        lambda facts, contract: judge(facts, contract).replace(so="nothing comes of it"),
    ):
        monkeypatch.setattr(row_remap_pending, "judge", other)
        assert goldens.made("ecc-errors", ("transformers",))[0] != golden[0]


@every("name", goldens.NAMES)
def test_three_findings_are_at_most_24_lines(name):
    golden, shown = (path.read_text() for path in goldens.paths(name))
    rows = [row for row in json.loads(golden)["says"] if row["for"] == "all" or "transformers" in row["for"].split()]
    if sum("error" in row or "warning" in row for row in rows) <= 3:
        assert shown.count("\n") <= 24


EXPERT = {
    "h100": "clear", "h200": "clear", "b200": "clear", "gb200": "clear", "gh200": "clear", "dgx-spark": "clear", "l40s": "clear",
    "a10g": "clear", "l4": "clear", "t4": "clear", "a100-80": "clear", "rtx4090-eight": "clear", "rtx5090": "clear", "wsl2": "clear",
    "gvisor": "clear", "hgx-docker": "clear", "docker": "clear", "podman": "clear", "apptainer": "clear", "forward-compat": "clear",
    "mig-seven": "clear", "exclusive": "clear", "mi250": "clear", "mi300x": "clear", "intel": "clear", "ascend": "clear",
    "gaudi": "clear", "apple": "clear", "rhel8": "clear", "ubuntu26": "clear", "h200-real": "clear",
    "v100-cu130": "GPU004", "rtx5090-old-torch": "GPU004", "gtx1080ti": "GPU004", "v100-new-driver": "GPU001", "mig-empty": "GPU007",
    "lost": "GPU013", "ecc-errors": "GPU009", "no-manager": "DRV010", "old-driver": "DRV001", "compat-geforce": "DRV011", "halves": "DRV002",
    "no-driver": "DRV004", "hidden": "GPU002", "alpine": "SYS005", "amazon2": "SYS005", "bare": "GPU001", "cpu-torch": "PKG001",
    "mi300x-cuda-torch": "PKG001", "old-numpy-torch": "PKG021", "shadowed": "PKG017", "bare-real": "GPU001", "cpu-torch-real": "PKG001",
}  # fmt: skip
"""Of transformers: clear, or the error that it must have."""

WARNED = {
    "held": "MEM002", "docker": "SYS001", "kubernetes": "SYS001", "tiny": "SYS002", "wrong-abi": "PKG011",
    "two-torches": "PKG006",
}  # fmt: skip


@every("name", EXPERT)
def test_an_expert_would_say_the_same(name):
    golden = json.loads(goldens.paths(name)[0].read_text())
    verdict, errors = golden["verdicts"]["transformers"], said(golden, "error")
    if EXPERT[name] == "clear":
        assert verdict == "clear" and not errors, errors
    else:
        assert verdict == "not-ready" and EXPERT[name] in errors, errors


@pytest.mark.parametrize("name", WARNED)
def test_what_is_not_grave_is_a_warning(name):
    golden = json.loads(goldens.paths(name)[0].read_text())
    assert WARNED[name] in said(golden, "warning")


def said(golden: dict, severity: str) -> list[str]:
    rows = [row for row in golden["says"] if severity in row and ("transformers" in row["for"] or row["for"] == "all")]
    return [row[severity].partition(":")[0] for row in rows]


def test_nothing_is_golden_that_is_no_machine_and_all_of_it_is_small():
    there = {path.stem for path in goldens.GOLDEN.iterdir()}
    assert there == set(goldens.NAMES) and len(there) >= 40
    whole = sum(path.stat().st_size for path in goldens.HERE.rglob("*") if path.is_file() and path.suffix != ".pyc")
    assert whole < 1_500_000


# -- the same recording, the same report ------------------------------------------------------------------

JUDGE = """
import hashlib, os, sys, time
from gpuready.render import json_document, junit, sarif, check_report
from gpuready.render.layout import Screen
from gpuready.workflow import check_machine
if sys.argv[2:]:
    def asked(*_):
        raise AssertionError("what was recorded is judged by the day on which it is judged")
    sys.modules["datetime"] = None
    for name in ("time", "time_ns", "localtime", "gmtime", "strftime", "ctime"):
        setattr(time, name, asked)
for name in sorted(os.listdir(sys.argv[1])):
    reports = check_machine(["transformers"], on=os.path.join(sys.argv[1], name))
    told = "".join(check_report.render_check_screen(one, Screen(), elapsed=0.1) for one in reports)
    told += json_document.format_json_document(json_document.reports_json_fields(reports)) + junit.render_junit_xml(reports) + sarif.render_sarif(reports, {})
    print(name, hashlib.sha256(told.encode()).hexdigest())
"""
AROUND = (
    {"PYTHONHASHSEED": "0", "TZ": "UTC", "LC_ALL": "C", "LANG": "C"},
    {"PYTHONHASHSEED": "4711", "TZ": "Pacific/Apia", "LC_ALL": "tr_TR.UTF-8", "LANG": "de_DE.UTF-8", "CUDA_VISIBLE_DEVICES": "7",
     "VIRTUAL_ENV": "/nowhere", "HF_HOME": "/elsewhere", "COLUMNS": "40", "NO_COLOR": "1"},
)  # fmt: skip


def test_the_same_recording_gives_the_same_bytes_whatever_is_around_it(tmp_path):
    folder = tmp_path / "recordings"
    folder.mkdir()
    names = sample_cases(goldens.NAMES, 3)
    for name in names:
        (folder / f"{name}.json").write_text(goldens.recorded(name))
    found = []
    for around, place, no_day in zip(AROUND, (tmp_path, ROOT), ([], ["no day"]), strict=True):
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src"), **around}
        argv = [sys.executable, "-c", JUDGE, str(folder), *no_day]
        found.append(subprocess.run(argv, env=env, cwd=place, capture_output=True, text=True, check=True).stdout)
    assert found[0] == found[1] and found[0].count("\n") == len(names)


def test_a_second_look_at_a_derived_machine_sees_the_same():
    first = goldens.recorded("a100-80", "vllm")
    assert goldens.recorded.__wrapped__("a100-80", "vllm") == first
