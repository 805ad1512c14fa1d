"""A real Slurm drains a node for a reason that its prolog prints, and for no mistake of an administrator."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.launcher import engines
from tests.running import SRC

HEALTH = """#!/bin/sh
. {folder}/of-$SLURMD_NODENAME
why=$($program fleet check --prolog $words 2>/dev/null)
[ $? -eq 1 ] && [ -n "$why" ] || exit 0
scontrol update nodename="$SLURMD_NODENAME" state=drain reason="$why"
exit 1
"""


@pytest.mark.faults
def test_a_real_slurm_drains_for_a_reason_and_for_no_mistake(tmp_path, monkeypatch, seen):
    engines.program("srun")
    health, fault = tmp_path / "gpuready-health", tmp_path / "fault"
    health.write_text(HEALTH.format(folder=tmp_path))
    fault.write_text("#!/bin/sh\necho 'gpuready: GPU013 fallen off the bus: GPU 3'\nexit 1\n")
    for path in (health, fault):
        path.chmod(0o755)
    ours = f"env PYTHONPATH={SRC} {sys.executable} -m gpuready"
    nodes = {"n01": (ours, ""), "n02": (ours, "trasnformers"), "n03": ("/not/mounted/gpuready", ""), "n04": (fault, ""),
             "n05": (ours, "--no-such-flag"), "n06": ("false", "")}  # fmt: skip
    for name, (program, words) in nodes.items():
        (tmp_path / f"of-{name}").write_text(f"program='{program}'; words='{words}'\n")
    prolog = f"KillWait=5\nProlog={health}\nPrologFlags=Alloc"
    monkeypatch.setattr(engines, "CONF", engines.CONF.replace("KillWait=5", prolog))
    (tmp_path / "slurm").mkdir()
    with engines.Slurm(tmp_path / "slurm", len(nodes)) as slurm:
        env = {**os.environ, **slurm.environ}
        for name in nodes:
            subprocess.run(
                ["srun", "-w", name, "-N1", "--immediate=20", "true"], env=env, capture_output=True, timeout=60
            )
        said = subprocess.run(["sinfo", "-h", "-N", "-o", "%N %T %E"], env=env, capture_output=True, text=True).stdout
    rows = dict(line.split(" ", 1) for line in said.splitlines())
    assert rows.pop("n04") == "drained gpuready: GPU013 fallen off the bus: GPU 3", said
    assert all(state.startswith("idle") for state in rows.values()), said
    seen("srun, prolog", "one node drained, five mistakes not", said.replace("\n", "; "), 0.0)
