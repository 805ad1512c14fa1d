"""Names of Slurm and Kubernetes with a meaning for a shell, a program or a terminal: refused in one short sentence, or not used."""

from __future__ import annotations

import pytest

from gpuready.workflow.launch_job import choose_run_engine, parse_master
from gpuready.workflow.refusal import Refused

NAMES = [
    "$(touch mark)", "`touch mark`", "-oProxyCommand=id", "--overlap", "a;id", "a b", "a\nb", "../../x", "n[1-99999999]", "n[1-2", "x" * 5000,
    "\x1b[2Jn1", "n1\u202e", "|id", "n[1-3][1-9999][1-9999]", "%s", "'", '"', "~root", "-", "a\0b",
]  # fmt: skip
SLURM = {
    "SLURM_JOB_ID": "7",
    "SLURM_NNODES": "2",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_NODEID": "0",
}
POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "PET_NNODES": "2", "PET_NODE_RANK": "0", "MASTER_PORT": "29500", "PET_MASTER_PORT": "29500"}  # fmt: skip


def master_of(environ):
    engine, nodes, _, master = choose_run_engine(None, None, None, environ)
    return parse_master(master, nodes or 1, engine)[0] if master else ""


@pytest.mark.parametrize("variable", ["SLURM_JOB_NODELIST", "SLURM_STEP_NODELIST", "MASTER_ADDR", "PET_MASTER_ADDR"])
def test_no_hostile_name_becomes_the_address_of_rank_0(variable):
    environ = SLURM if variable.startswith("SLURM") else POD
    for name in NAMES:
        taken = ""
        try:
            taken = master_of(environ | {variable: name, "SLURM_JOB_NAME": name, "HOSTNAME": name})
        except Refused as refusal:
            assert str(refusal).isprintable() and len(str(refusal)) < 400, (variable, name)
        assert not taken, (variable, name, taken)


def test_an_ordinary_name_does():
    assert master_of(SLURM | {"SLURM_JOB_NODELIST": "gpu[07-08]"}) == "gpu07"
    assert master_of(POD | {"MASTER_ADDR": "job-worker-0.job"}) == "job-worker-0.job"
