"""What the screen says of a Report, and what it leaves to the Report."""

from __future__ import annotations

import pytest

from gpuready.model import Contract, Fact, Facts, Finding, IgnoredFinding, PassedRule, Report, UndecidedRule
from gpuready.render import check_report
from gpuready.render.layout import Screen

from . import machines
from .machines import REPORTS, facts, holding

DEMO = Contract("demo", "1.0")


def screen(report: Report, **options) -> str:
    return check_report.render_check_screen(report, Screen(), **options)


def row(report: Report, name: str) -> str:
    """The row of one family, or nothing where it is left out."""
    rows = [line for line in screen(report).splitlines() if line[4:].startswith(f"{name} ")]
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
    assert row(report, "driver")[2] == mark


def test_the_count_is_of_all_rules_that_were_judged():
    report = Report(
        DEMO,
        facts(),
        (finding("SYS001"), finding("SYS002"), finding("SYS003", "warning"), finding("SYS004", "info")),
        undecided=(UndecidedRule("SYS005", "warning", "x"),),
        judged=holding(("SYS", 3, ("system.shm",))),
        ignored=(IgnoredFinding(finding("SYS006"), "why"),),
    )
    assert " 2 errors, 1 warning, 1 undecided, 1 ignored, 9 rules\n" in screen(report)


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
    assert shown[2] == mark and says in shown and shown.endswith(f"{len(ran)} executed")


def test_nothing_stated_is_not_a_tick():
    shown = screen(REPORTS["stated"])
    assert "  ? driver     not stated" in shown and "  ? packages   not stated" in shown
    assert "gpuready plan axolotl --on h100x8" in shown
    assert "torch.cuda      PKG001, PKG002" in shown
    assert "gpuready prove" not in shown, "nobody can execute anything on a machine that is only stated"
    assert "3 not stated" in shown.splitlines()[-1]


def test_little_that_holds_of_what_is_not_stated_is_no_tick_either():
    stated = REPORTS["stated"]
    more = stated.replace(judged=(*stated.judged, PassedRule("PKG009", ("gpu.count",))))
    assert row(more, "packages")[2] == "?" and row(more, "packages").endswith("2 not stated, 1 rule")
    half = stated.replace(unstated=(*stated.unstated, UndecidedRule("GPU009", "error", "x")))
    assert row(half, "gpu")[2] == "✓", "the GPU is stated, and three of its rules hold"


def test_a_contract_that_says_something_says_it_under_the_header():
    assert screen(REPORTS["stated"]).splitlines()[1].startswith("  no contract for 0.19.0")


def test_undecided_names_the_fact_and_why():
    shown = " ".join(screen(REPORTS["undecided"]).split())
    assert (
        "? GPU004 cannot tell whether the GPU is older than the wheel has code for: "
        "gpu.capability unknown, permission denied" in shown
    )
    assert "cannot tell whether NVML and the driver disagree" in shown, "a name keeps its capitals"
    assert "undecided: 1 rule holds, 4 undecided" in shown


def test_ignored_shows_the_reason():
    shown = " ".join(screen(REPORTS["ignored"]).split())
    assert "ignored error[DRV003]: the driver is older than the torch wheel needs;" in shown
    assert "reason: the driver is upgraded tonight; ticket 4711" in shown
    assert "1 ignored, strict" in shown


def test_info_is_one_line():
    note = Finding("CAP001", "info", "fp8 is not there", found=(Fact("a.b", 1),), so="slower")
    shown = screen(Report(DEMO, facts(), (note,)))
    assert "info[CAP001]: fp8 is not there\n" in shown and "slower" not in shown and "a.b" not in shown


def test_errors_come_before_warnings_before_information():
    order = (finding("SYS001", "error"), finding("SYS002", "warning"), finding("SYS003", "info"))
    shown = screen(Report(DEMO, facts(), order))
    places = [shown.index(mark) for mark in ("error[SYS001]", "warning[SYS002]", "info[SYS003]")]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("elapsed", "verbose", "ends"), [(None, False, "0 undecided"), (0.083, False, "0.1s"), (0.083, True, "83 ms")]
)
def test_the_time_may_be_absent(elapsed, verbose, ends):
    shown = screen(Report(DEMO, facts()), elapsed=elapsed, verbose=verbose)
    assert shown.splitlines()[-1].endswith(ends)


def test_what_comes_next():
    blind = screen(REPORTS["undecided"])
    assert "gpuready explain GPU004" in blind and "gpuready plan" not in blind, "no fix, so nothing to plan"
    assert "gpuready explain" not in screen(REPORTS["clear_h200"])
    assert "judged by the catalogue of 2026-11-15" in screen(REPORTS["clear_h200"])
    assert "catalogue" not in blind, "no date, no line"


def test_verbose_shows_facts_and_timings_and_brief_does_not():
    report = REPORTS["clear_h200"]
    loud = screen(report, verbose=True, seconds={"packages": 0.004, "nvml": 0.0161})
    assert "PKG500  package.torch    2.11.0+cu130" in loud
    assert "package.nothing  absent" in loud, "what was looked for and is not there is evidence too"
    assert "timings: nvml 16 ms, packages 4 ms" in loud, "the slowest first"
    assert "PKG500" not in screen(report) and "timings" not in screen(report)
    assert "rules that hold" not in screen(Report(DEMO, facts()), verbose=True)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("old_driver", "axolotl 0.18.0: not ready (DRV003)\n"),
        ("clear_h200", "transformers 5.22: clear\n"),
        ("proven", "transformers 5.22: ready\n"),
        ("undecided", "transformers 5.22: undecided (GPU004, DRV001)\n"),
        ("ignored", "axolotl 0.18.0: not ready (SYS004)\n"),
    ],
)
def test_quiet_is_one_line(name, line):
    assert check_report.format_check_line(REPORTS[name]) == line


def test_quiet_under_strict_names_every_undecided_rule():
    codes = check_report.format_check_line(REPORTS["undecided"].replace(strict=True))
    assert codes == "transformers 5.22: undecided (GPU004, DRV001, SYS009, BLD001)\n"


def test_quiet_is_one_line_whatever_the_names_are():
    line = check_report.format_check_line(REPORTS["hostile"])
    assert line.endswith("\n") and line[:-1].isprintable()


def test_one_reason_for_many_rules_is_told_once():
    dark = Fact("gpu.count", None, "NVML", gap="NVML did not answer within 20 s")
    many = tuple(UndecidedRule(f"GPU{i:03}", "error", "The GPU is lost", (dark,)) for i in range(1, 28))
    shown = screen(Report(DEMO, Facts([dark]), undecided=many))
    assert shown.count("NVML did not answer") == 2, "in its row and in one sentence"
    assert "27 rules cannot tell" in shown
    assert all(item.code in shown for item in many)
    other = UndecidedRule("SYS002", "error", "The disk is full", (Fact("disk.free", None, gap="denied"),))
    assert "? SYS002 cannot tell whether the disk is full" in screen(Report(DEMO, Facts([]), undecided=(*many, other)))
