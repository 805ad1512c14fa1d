"""The screen of prove: 80 columns, one line for each proof, failures with their step and last lines, nothing hostile let through."""

from __future__ import annotations

import pytest

from gpuready.model import Capability, Contract, Fact, Facts, Finding, Report
from gpuready.model.proof import ProofRecord, ProofResult
from gpuready.render import prove
from gpuready.render.layout import Screen
from tests.prove.test_fold import GOOD

HOSTILE = "\x1b[31mowned\x07\u202e " + "x" * 300
PROOFS = (
    GOOD.replace(executed="h200", seconds=3.2, hardware={"backend": "flash"}),
    GOOD.replace(name="new", executed="cpu"),
    ProofResult(
        "broken",
        "failed",
        "error is 0.5, and has to be <= 0.01",
        "cuda:0",
        steps=("begin", "multiply"),
        output="one\ntwo\nthree\n4\n5\n6\n7\nthe last words\n",
    ),
    ProofResult(
        "dead", "crashed", "ended by SIGSEGV, in the step: import torch", steps=("begin", "import torch"), exit=-11
    ),
    ProofResult("gone", "absent", "no GPU in this machine"),
    ProofResult("left", "skipped", "it needs 2 GPUs, and 1 can be seen"),
    ProofResult(
        HOSTILE, "failed", HOSTILE, HOSTILE, steps=(HOSTILE,), output=HOSTILE, cause={"code": "SYS001", "says": HOSTILE}
    ),
)
REPORT = Report(
    Contract("demo", "1", capabilities=(Capability("bf16", "required"),)), Facts([Fact("gpu.count", 1)], "host")
)


def page(width: int = 80, **options) -> str:
    evidence = ProofRecord("host", "/py", PROOFS, "2026-11-15T00:00:00Z").with_digest()
    return prove.render_proof_screen([REPORT], evidence, Screen(width), elapsed=12.0, **options)


@pytest.mark.parametrize("width", [40, 80, 100])
@pytest.mark.parametrize("verbose", [False, True])
def test_no_line_is_too_long_and_nothing_hostile_is_let_through(width, verbose):
    text = page(width, verbose=verbose, saved_path="/home/ada/" + "y" * 200, note=HOSTILE)
    assert all(len(line) <= width for line in text.splitlines())
    assert not set(text) & {"\x1b", "\x07", "\u202e"}


def test_each_proof_has_its_line():
    lines = page().splitlines()
    assert any(
        "✓ matmul-bf16" in line and "x 1 <= 2; flash" in line and line.endswith("cuda:0  3.2s") for line in lines
    )
    assert any("✓ new" in line and "not tested before" in line for line in lines)
    assert any("✗ broken" in line and "failed in: multiply" in line for line in lines)
    assert any("? gone" in line and line.endswith("not run") for line in lines)


def test_a_failure_shows_its_steps_and_its_last_lines():
    text = page()
    assert "broken: failed: error is 0.5, and has to be <= 0.01" in text
    assert "steps: begin, multiply" in text and "  | the last words" in text and "  | one" not in text
    assert "  | one" in page(verbose=True)
    assert "cause: SYS001" in text


def test_the_number_that_tells_most_is_shown():
    rows = {
        "far_error": {"value": 1e-9, "bound": "most", "limit": 1.0},
        "near_error": {"value": 0.9, "bound": "most", "limit": 1.0},
        "free": {"value": 7.0},
        "count": {"value": 3, "bound": "least", "limit": 1},
    }
    assert prove.format_key_number(GOOD.replace(numbers=rows)) == "near error 0.9 <= 1, 2 more numbers"
    assert prove.format_key_number(GOOD.replace(numbers={k: rows[k] for k in ("free", "count")})) == "count 3 >= 1"
    assert prove.format_key_number(GOOD.replace(numbers={"free": {"value": 7.0}})) == ""


def test_what_did_not_run_for_one_reason_is_told_once():
    several = tuple(ProofResult(f"p{n}", "absent", "no GPU in this machine") for n in range(20))
    evidence = ProofRecord("host", "/py", (*several, PROOFS[0]), "now").with_digest()
    text = prove.render_proof_screen([REPORT], evidence, Screen(80))
    assert text.count("no GPU in this machine") == 1 and "? 20 absent: no GPU" in text and "p0, p1, p2" in text
    assert prove.render_proof_screen([REPORT], evidence, Screen(80), verbose=True).count("no GPU in this machine") == 20


def test_all_that_would_be_executed_is_named_and_many_names_of_others_are_counted():
    several = tuple(ProofResult(f"p{n}", v, "so it is") for n in range(20) for v in ("absent", "unsupported"))
    evidence = ProofRecord("host", "/py", several, "now").with_digest()
    text = " ".join(prove.render_proof_screen([REPORT], evidence, Screen(80)).split())
    assert "p18, p19" in text and "p10, 9 more (-v)" in text


def test_findings_are_listed_as_by_a_check_and_their_evidence_is_in_the_details():
    finding = Finding("PKG002", "error", "torch is not installed", found=(), needs=(), so="nothing runs without it")
    report = REPORT.replace(findings=(finding,))
    evidence = ProofRecord("host", "/py", PROOFS, "now").with_digest()
    details = [("details", ("gpuready", "prove", "trl", "-v"))]
    short = prove.render_proof_screen([report, report], evidence, Screen(80), commands=details)
    assert short.count("  1  torch is not installed") == 1 and "nothing runs without it" not in short
    assert short.endswith("details:  gpuready prove trl -v\n")
    full = prove.render_proof_screen([report], evidence, Screen(80), commands=details, verbose=True)
    assert "nothing runs without it" in full and "details:" not in full


def test_what_we_have_executed_counts_for_its_kind_of_device_only():
    assert prove.executed_before(GOOD.replace(executed="h200")) and not prove.executed_before(
        GOOD.replace(executed="cpu")
    )
    assert prove.executed_before(GOOD.replace(executed="cpu", device="cpu")) and not prove.executed_before(
        GOOD.replace(executed="", device="cpu")
    )
