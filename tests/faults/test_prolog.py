"""A prolog drains a node for its own faults, and for no environment, variable or mistake of an administrator."""

from __future__ import annotations

import pytest

from gpuready import system
from gpuready.render.fleet import drain_reason
from gpuready.system.process import probe_run
from gpuready.workflow import fleet_node
from tests.faults import flips
from tests.faults.flips.machine import MachineAccess

NODE_FAULTS = (
    "GPU008", "GPU009", "GPU013", "GPU020", "GPU025", "DRV002", "DRV004", "DRV007", "DRV008", "DRV009", "DRV010", "SYS011",
)  # fmt: skip
NOT_THE_NODE = (
    "GPU001", "GPU002", "GPU003", "GPU004", "GPU005", "GPU010", "GPU012", "GPU015", "DRV001", "DRV003", "PKG001", "PKG002",
    "SYS005", "SYS006", "SYS013", "NET001", "NET006", "NET008",
)  # fmt: skip
"""Among them the whole environment gone, variables of root's shell, what a contract wants, and slower than usual."""


def reason_of(machine: flips.BreakableMachine, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(probe_run, "_ForkedRun", probe_run._SequentialRun)
    for name in ("LiveHost", "ReadOnlyHost"):
        monkeypatch.setattr(system, name, lambda *_: MachineAccess(machine))
    return drain_reason(fleet_node.check_this_node())[0]


@pytest.mark.parametrize("code", [*NODE_FAULTS, *(code for code in NOT_THE_NODE if code in flips.FAULTS)])
def test_faults_of_the_node_alone_drain_it(tmp_path, monkeypatch, code):
    monkeypatch.chdir(tmp_path)
    machine = flips.BreakableMachine(tmp_path)
    flips.FAULTS[code](machine)
    reason = reason_of(machine, monkeypatch)
    assert (f"gpuready: {code}" in reason or f"also {code}" in reason) == (code in NODE_FAULTS), reason
    assert bool(reason) == (code in NODE_FAULTS), reason
