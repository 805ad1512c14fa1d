"""How long ranks have after a signal: --grace, the scheduler's own time, or 30 seconds."""

from __future__ import annotations

import signal
from types import SimpleNamespace

import pytest

from gpuready.launcher.supervisor import SCHEDULER_GRACE_SECONDS, Supervisor


@pytest.mark.parametrize(
    ("number", "environ", "grace", "seconds"),
    [
        (signal.SIGTERM, {}, 0.0, 30.0),
        (signal.SIGINT, {"SLURM_JOB_ID": "1"}, 0.0, 30.0),
        (signal.SIGTERM, {"SLURM_JOB_ID": "1"}, 0.0, SCHEDULER_GRACE_SECONDS),
        (signal.SIGTERM, {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}, 0.0, SCHEDULER_GRACE_SECONDS),
        (signal.SIGTERM, {"PBS_JOBID": "1"}, 0.0, SCHEDULER_GRACE_SECONDS),
        (signal.SIGTERM, {"SLURM_JOB_ID": "1"}, 12.0, 12.0),
    ],
)
def test_a_scheduler_gives_the_ranks_its_own_time(number, environ, grace, seconds):
    run = SimpleNamespace(job=SimpleNamespace(grace=grace), environ=environ)
    assert Supervisor._interrupt_grace(run, number) == seconds  # type: ignore[arg-type]
