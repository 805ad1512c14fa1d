"""Each rule is flipped by a fault: at the door where a check can see it, in a log where only a log tells, elsewhere by the command that looks.

``python -m tests.faults.test_flips`` prints the table of all rules and how each is flipped.
"""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

import pytest

from gpuready import rules
from gpuready.catalog import causes
from gpuready.rules.log_rules import load_log_rules
from gpuready.workflow.diagnose import diagnose_logs
from tests.faults import flips
from tests.logs.pattern_samples import sample_text

ROOT = Path(__file__).parents[2]
NEEDS_ROOT = ("SYS020",)
LOG_RULES = frozenset(load_log_rules())
HEALTHY = "step 1 loss 2.31\nstep 2 loss 2.29\n" * 20


@pytest.fixture
def machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return flips.BreakableMachine(tmp_path)


def test_the_machine_at_the_door_is_well(machine, monkeypatch):
    assert machine.codes(monkeypatch) == set()


@pytest.mark.parametrize("code", sorted(flips.FAULTS))
def test_a_fault_at_the_door_flips_the_rule(machine, monkeypatch, code):
    if code in NEEDS_ROOT and os.geteuid() != 0:
        pytest.skip("only root can make a folder of another user")
    flips.FAULTS[code](machine)
    assert code in machine.codes(monkeypatch)


# -- in a log ----------------------------------------------------------------------------------------------


def worded(sign: object) -> list[str]:
    """A sign as it would stand in a log: bare, as the last line of a traceback, and as the kernel writes it."""
    text = sample_text(sign)
    more = " ".join(sign.get("with", ())) if isinstance(sign, dict) else ""
    line = f"{text} {more}".rstrip()
    error = line if re.match(r"[A-Za-z_.]*(?:Error|Exception|Interrupt)\b", line) else f"RuntimeError: {line}"
    trace = f'Traceback (most recent call last):\n  File "/job/train.py", line 7, in <module>\n    main()\n{error}\n'
    kernel = f"[12345.678901] {line}\n"
    return [f"{line}\n", trace, f"ERROR {line}\n", kernel]


def reported(text: str) -> set[str]:
    """The codes that a log leads to: its cause, and what else it may be."""
    found = diagnose_logs([[(HEALTHY + text).encode()]], look=False)
    return {
        found.code,
        *(other.code for other in found.alternatives),
        *(rule for c in found.consequences for rule in (getattr(c, "code", ""),)),
    }


@cache
def silent() -> set[str]:
    return reported("")


@pytest.mark.parametrize("code", sorted(LOG_RULES))
def test_a_line_in_a_log_flips_the_rule(code):
    assert code not in silent()
    lines = [line for sign in causes.list_patterns(code) for line in worded(sign)]
    assert any(code in reported(line) for line in lines[:80])


# -- all of them -------------------------------------------------------------------------------------------


def ways() -> dict[str, str]:
    """How each rule of the ledger is flipped."""
    found = {}
    for code in rules.list_codes():
        if code in flips.FAULTS:
            found[code] = "at the door"
        elif code in LOG_RULES:
            found[code] = "in a log"
        else:
            found[code] = flips.ELSEWHERE.get(code, "by its facts alone")
    return found


def test_every_rule_has_a_fault_that_flips_it():
    every = ways()
    assert [code for code, way in every.items() if way == "by its facts alone"] == []
    for way in every.values():
        if way.startswith("tests/"):
            file, _, name = way.partition("::")
            assert f"def {name}(" in (ROOT / file).read_text(), way


if __name__ == "__main__":
    for code, way in ways().items():
        print(f"| {code} | {rules.rule_name(code)} | {way} |")
