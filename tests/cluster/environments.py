"""The variables that launchers set."""

from __future__ import annotations

import pytest

from gpuready.cluster import RendezvousUnclear, discover_rendezvous

TORCH = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "gpu-0", "MASTER_PORT": "29500"}  # fmt: skip
SLURM = {
    "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NODEID": "2", "SLURM_NTASKS": "6",
    "SLURM_NNODES": "3", "SLURM_JOB_NODELIST": "gpu[01-03]", "SLURM_TASKS_PER_NODE": "2(x3)",
}  # fmt: skip
OMPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_RANK": "1", "PMIX_NAMESPACE": "job-9"}  # fmt: skip
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}


def problems(environ, **options) -> str:
    with pytest.raises(RendezvousUnclear) as raised:
        discover_rendezvous(environ, **options)
    return str(raised.value)
