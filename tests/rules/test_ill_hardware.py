"""Machines with ill GPUs: what the rules about hardware say together, held against the truth in ill_hardware.toml."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from gpuready import rules
from gpuready.check.evaluate import judge
from gpuready.model import Fact, Facts
from tests.every import every
from tests.rules.worlds import H100, contract

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CASES = tomllib.loads(Path(__file__).with_name("ill_hardware.toml").read_text())["case"]
RULES = [rules.load_rule(code) for code in ("GPU008", "GPU009", "GPU013", "GPU020", "GPU025", "SYS021")]
PCI = ("0000:3b:00.0", "0000:5e:00.0")


def xid_rows(case: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    rows = [{"xid": n, "pci": PCI[0], "line": f"NVRM: Xid (PCI:0000:3b:00): {n}, pid=7"} for n in case.get("xids", ())]
    if "last_line" in case:
        rows[-1]["line"] = case["last_line"]
    return tuple(rows)


def machine(case: dict[str, Any]) -> Facts:
    values = dict(H100) | {
        "gpu.count": 2,
        "gpu.visible": (0, 1),
        "gpu.pci": PCI,
        "gpu.name": H100["gpu.name"] * 2,
        "gpu.uuid": ("GPU-0", "GPU-1"),
        "gpu.nvlink": tuple(case.get("nvlink", (18, 18))),
        "gpu.nvlink_errors": (case.get("nvlink_errors", 0), 0),
        "fabric.switches": case.get("switches", 0),
        "gpu.remap_pending": (0,) if case.get("remap_pending") else (),
        "gpu.remap_failure": (0,) if case.get("remap_failure") else (),
        "gpu.lost": (0,) if case.get("lost") else (),
        "gpu.recovery": (case.get("recovery", "unsupported"), "none"),
        "kernel.xids": xid_rows(case),
    }
    if "ecc_errors" in case or "xids" not in case:
        values["gpu.ecc_errors"] = (case.get("ecc_errors", 0), 0)
    gaps = {"kernel.xids": case["log_gap"]} if "log_gap" in case else {}
    return Facts([Fact(k, None if k in gaps else v, "test", gap=gaps.get(k, "")) for k, v in values.items()])


@every("case", CASES, ids=lambda case: case["title"])
def test_ill_hardware_is_not_clear(case):
    report = judge(RULES, machine(case), contract())
    severities = {finding.severity for finding in report.findings}
    assert ("error" if "error" in severities else "warning" if severities else "") == case["worst"]
    assert bool(report.undecided) == case.get("undecided", False)
    assert (report.verdict == "not-ready") == (case["worst"] == "error")


@pytest.mark.parametrize("case", [case for case in CASES if case["worst"] == "error"], ids=lambda case: case["title"])
def test_nvidias_action_and_its_source_are_named(case):
    for finding in judge(RULES, machine(case), contract()).findings:
        assert all(need.cite.startswith("NVIDIA") for need in finding.needs)
        words = " ".join(step.does for step in finding.fix)
        assert any(word in words for word in ("reset", "reboot", "replace", "power-cycle", "NVIDIA", "peer-to-peer"))


def test_what_another_container_has_is_none_of_this_one():
    ill = {"xid": 79, "pci": "0000:99:00.0", "line": "NVRM: Xid (PCI:0000:99:00): 79, pid=7"}
    base = machine({"title": ""}).with_facts(Fact("kernel.xids", (ill,), "test"))
    assert judge(RULES, base, contract()).verdict == "not-ready"
    inside = base.with_facts(Fact("os.container", "docker", "test"))
    assert judge(RULES, inside, contract()).verdict == "clear"
