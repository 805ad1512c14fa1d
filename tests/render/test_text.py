"""What the screen says of a Report, and what it leaves to the Report."""

from __future__ import annotations

import re

import pytest

from gpuready.model import (
    Contract,
    Fact,
    Facts,
    Finding,
    IgnoredFinding,
    PassedRule,
    Report,
    Requirement,
    UndecidedRule,
)
from gpuready.render import check_report
from gpuready.render.layout import Screen

from . import machines
from .machines import REPORTS, facts, holding

DEMO = Contract("demo", "1.0")


def screen(report: Report, **options) -> str:
    return check_report.render_check_screen(report, Screen(), **options)


def row(report: Report, name: str) -> str:
    """The row of one family, or nothing where it is left out."""
    rows = [line for line in screen(report, verbose=True).splitlines() if line[2:].startswith(f"{name}: ")]
    return rows[0] if rows else ""


def finding(code: str, severity: str = "error") -> Finding:
    return Finding(code, severity, f"{code} is wrong")


@pytest.mark.parametrize(
    ("findings", "undecided", "judged", "mark"),
    [
        (("error", "warning"), 1, 1, "✗"),
        (("warning", "info"), 1, 1, "!"),
        (("info",), 1, 1, "?"),
        (("info",), 0, 0, "✓"),
        ((), 0, 1, "✓"),
    ],
)
def test_the_mark_of_a_family_is_its_gravest(findings, undecided, judged, mark):
    report = Report(
        DEMO,
        facts(),
        tuple(finding(f"DRV00{i}", severity) for i, severity in enumerate(findings)),
        undecided=tuple(UndecidedRule(f"DRV01{i}", "error", "It is wrong") for i in range(undecided)),
        judged=tuple(PassedRule(f"DRV02{i}", ("driver.version",)) for i in range(judged)),
    )
    assert row(report, "driver")[0] == mark


def test_the_count_is_of_all_rules_that_were_judged():
    report = Report(
        DEMO,
        facts(),
        (finding("SYS001"), finding("SYS002"), finding("SYS003", "warning"), finding("SYS004", "info")),
        undecided=(UndecidedRule("SYS005", "warning", "x"),),
        judged=holding(("SYS", 3, ("system.shm",))),
        ignored=(IgnoredFinding(finding("SYS006"), "why"),),
    )
    assert " 2 errors, 1 warning, 1 can't tell, 1 ignored, 9 checks\n" in screen(report, verbose=True)


def test_a_family_of_which_nothing_was_judged_is_left_out_and_proof_never():
    report = Report(DEMO, machines.H100, judged=holding(("GPU", 1, ("gpu.count",))))
    assert row(report, "gpu") and not row(report, "driver") and not row(report, "fleet")
    assert "nothing executed yet" in row(report, "proof")
    assert row(report, "proof").endswith(f"gpuready prove {DEMO.framework}")


@pytest.mark.parametrize(
    ("ran", "mark", "says"),
    [
        ({"can.matmul": True, "can.nccl": True}, "✓", "matmul, nccl"),
        ({"can.matmul": True, "can.fp8": False}, "!", "matmul; failed: fp8"),
        ({"can.matmul": None}, "?", "unknown: matmul"),
    ],
)
def test_proof_shows_what_was_executed(ran, mark, says):
    known = [Fact(k, v, "prove", "run", gap="" if v is not None else "it hung") for k, v in ran.items()]
    shown = row(Report(DEMO, Facts(known)), "proof")
    assert shown[0] == mark and says in shown


def test_what_was_not_given_is_one_line():
    assert "  ?  not given: driver, torch (-v)\n" in screen(REPORTS["stated"])


def test_nothing_given_is_not_a_tick():
    shown = screen(REPORTS["stated"], verbose=True)
    assert "\n? driver: 1 not given\n? packages: 2 not given\n" in shown
    assert "gpuready plan axolotl --on h100x8" in shown
    assert "torch.cuda      PKG001, PKG002" in shown
    assert "gpuready prove" not in shown, "nobody can execute anything on a machine that is only named"
    assert "3 checks passed, 3 not given" in shown


def test_little_that_holds_of_what_is_not_stated_is_no_tick_either():
    stated = REPORTS["stated"]
    more = stated.replace(judged=(*stated.judged, PassedRule("PKG009", ("gpu.count",))))
    assert row(more, "packages")[0] == "?" and row(more, "packages").endswith("2 not given, 1 check")
    half = stated.replace(unstated=(*stated.unstated, UndecidedRule("GPU009", "error", "x")))
    assert row(half, "gpu")[0] == "✓", "the GPU is stated, and three of its rules hold"


def test_a_contract_that_says_something_says_it_under_the_header():
    assert screen(REPORTS["stated"]).splitlines()[3].startswith("  judged by    no requirements of 0.19.0")
    two = REPORTS["stated"].contract.replace(says="no requirements of it; its pins are its own")
    report = REPORTS["stated"].replace(contract=two)
    assert "pins" not in screen(report) and "its pins are its own" in screen(report, verbose=True)


def test_undecided_names_the_fact_and_why():
    shown = " ".join(screen(REPORTS["undecided"], verbose=True).split())
    assert (
        "can't tell for 3 checks (GPU004, DRV001, SYS009): gpu.capability, driver.version, memory.total unknown "
        "(permission denied)" in shown
    )
    brief = " ".join(screen(REPORTS["undecided"]).split())
    assert brief.startswith("can't tell: 4 checks could not be made")
    assert "? can't tell whether gcc is too new for nvcc: compiler.gcc unknown BLD001 (it hung)" in brief


def test_ignored_shows_the_reason():
    shown = " ".join(screen(REPORTS["ignored"]).split())
    assert "ignored: the driver is older than the torch wheel needs (reason: DRV003 the driver is upgraded" in shown
    assert shown.startswith("not ready: 1 warning, 1 ignored (strict) ")
    loud = " ".join(screen(REPORTS["ignored"], verbose=True).split())
    assert "ignored error[DRV003]: the driver is older than the torch wheel needs;" in loud
    assert "reason: the driver is upgraded tonight; ticket 4711" in loud and "1 ignored, strict" in loud


def test_info_is_one_line():
    note = Finding("CAP001", "info", "fp8 is not there", found=(Fact("a.b", 1),), so="slower")
    assert "  -  1 note (-v)" in screen(Report(DEMO, facts(), (note,)))
    shown = screen(Report(DEMO, facts(), (note,)), verbose=True)
    assert "info[CAP001]: fp8 is not there\n" in shown and "slower" not in shown and "a.b" not in shown


def test_errors_come_before_warnings_before_information():
    order = (finding("SYS001", "error"), finding("SYS002", "warning"), finding("SYS003", "info"))
    brief = screen(Report(DEMO, facts(), order))
    assert re.findall(r"^  (\S)  .*? (\S+)$", brief, flags=re.M) == [("1", "SYS001"), ("2", "SYS002"), ("-", "SYS003")]
    shown = screen(Report(DEMO, facts(), order), verbose=True)
    places = [shown.index(mark) for mark in ("error[SYS001]", "warning[SYS002]", "info[SYS003]")]
    assert places == sorted(places)


def test_the_time_is_a_detail_and_may_be_absent():
    report = Report(DEMO, facts())
    assert " ms" not in screen(report, elapsed=0.083) and "0 checks passed\n" in screen(report, verbose=True)
    assert " 83 ms\n" in screen(report, elapsed=0.083, verbose=True)


def test_what_comes_next():
    assert "fix it:   gpuready fix axolotl\n" in screen(REPORTS["old_driver"])
    assert "prove it:  gpuready prove transformers\n" in screen(REPORTS["clear_h200"])
    unreadable = screen(REPORTS["undecided"], verbose=True)
    assert "gpuready explain GPU004" in unreadable and "gpuready fix" not in unreadable, "nothing to fix"
    assert "gpuready explain" not in screen(REPORTS["clear_h200"], verbose=True)
    assert "judged by the catalogue of 2026-11-15" in screen(REPORTS["clear_h200"], verbose=True)
    assert "catalogue" not in unreadable, "no date, no line"
    assert "catalogue" not in screen(REPORTS["clear_h200"]), "a detail"


def test_versions_that_do_not_fit_are_one_table():
    """Whatever is compared with a bound: what was found beside what is needed; many are counted."""
    keys = [f"package.p{i}" for i in range(8)]
    many = Finding(
        "PKG003",
        "error",
        "8 packages have versions that demo 1.0 does not accept",
        found=tuple(Fact(key, f"{i}.0") for i, key in enumerate(keys)),
        needs=tuple(Requirement(key, ">=9,<10") for key in keys),
    )
    shown = screen(Report(DEMO, facts(), (many,))).splitlines()
    start = shown.index("  1  8 packages have versions that demo 1.0 does not accept               PKG003")
    assert shown[start + 1 : start + 4] == [
        "         p0  0.0  needs >= 9, < 10",
        "         p1  1.0  needs >= 9, < 10",
        "         … 6 more (-v)",
    ]
    loud = screen(Report(DEMO, facts(), (many,)), verbose=True)
    assert all(key in loud for key in keys)


def test_verbose_shows_facts_and_timings_and_brief_does_not():
    report = REPORTS["clear_h200"]
    loud = screen(report, verbose=True, seconds={"packages": 0.004, "nvml": 0.0161})
    assert "PKG500  package.torch    2.11.0+cu130" in loud
    assert "package.nothing  absent" in loud, "what was looked for and is not there is evidence too"
    assert "timings: nvml 16 ms, packages 4 ms" in loud, "the slowest first"
    assert "PKG500" not in screen(report) and "timings" not in screen(report)
    assert "checks that passed" not in screen(Report(DEMO, facts()), verbose=True)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("old_driver", "axolotl 0.18.0: not ready (DRV003)\n"),
        ("clear_h200", "transformers 5.22: no problems found (nothing imported)\n"),
        ("proven", "transformers 5.22: ready\n"),
        ("undecided", "transformers 5.22: can't tell (GPU004, DRV001)\n"),
        ("ignored", "axolotl 0.18.0: not ready (SYS004), 1 ignored\n"),
    ],
)
def test_quiet_is_one_line(name, line):
    assert check_report.format_check_line(REPORTS[name]) == line


def test_quiet_under_strict_names_every_undecided_rule():
    codes = check_report.format_check_line(REPORTS["undecided"].replace(strict=True))
    assert codes == "transformers 5.22: can't tell (GPU004, DRV001, SYS009, BLD001)\n"


def test_quiet_is_one_line_whatever_the_names_are():
    line = check_report.format_check_line(REPORTS["hostile"])
    assert line.endswith("\n") and line[:-1].isprintable()


def test_one_reason_for_many_rules_is_told_once():
    dark = Fact("gpu.count", None, "NVML", gap="NVML did not answer within 20 s")
    many = tuple(UndecidedRule(f"GPU{i:03}", "error", "The GPU is lost", (dark,)) for i in range(1, 28))
    brief = screen(Report(DEMO, Facts([dark]), undecided=many))
    assert "can't tell for 27 checks: gpu.count unknown" in brief and " GPU001 +26\n" in brief
    shown = screen(Report(DEMO, Facts([dark]), undecided=many), verbose=True)
    assert shown.count("NVML did not answer") == 2, "of the machine, and in one sentence"
    assert "can't tell for 27 checks" in shown
    assert all(item.code in shown for item in many)
    other = UndecidedRule("SYS002", "error", "The disk is full", (Fact("disk.free", None, gap="denied"),))
    loud = screen(Report(DEMO, Facts([]), undecided=(*many, other)), verbose=True)
    assert "?  can't tell whether the disk is full: disk.free unknown (denied)      SYS002\n" in loud
