"""Which rank a process is, by the variables of its launcher. Standard library only, Python 3.8 and newer."""

from __future__ import annotations

from typing import Any

from gpuready.rollcall.interface_check import choose_gloo_interface

_OMPI, _PMI = "OMPI_COMM_WORLD_", "PMI_"
_RANK_VARIABLES = {
    "slurm": ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "", "SLURM_NODEID", "SLURM_NNODES"),
    "mpi": (f"{_OMPI}RANK", f"{_OMPI}LOCAL_RANK", f"{_OMPI}SIZE", f"{_OMPI}LOCAL_SIZE", "", ""),
    "pmi": ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE", "MPI_LOCALNRANKS", "", ""),
}
TORCHRUN_NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")


def read_own_rank(engine: str, environ: Any) -> dict[str, str]:
    """Read from the launcher's variables which rank this process is, under torchrun's names."""
    names = _RANK_VARIABLES.get("pmi" if engine == "mpi" and f"{_OMPI}RANK" not in environ else engine)
    if names is None:
        return {}
    variables = {ours: environ[theirs] for ours, theirs in zip(TORCHRUN_NAMES, names) if theirs in environ}  # noqa: B905
    if engine == "slurm" and "LOCAL_WORLD_SIZE" not in variables:
        variables["LOCAL_WORLD_SIZE"] = environ.get("SLURM_STEP_TASKS_PER_NODE", "1").split("(")[0].split(",")[0]
    return variables


def choose_interface(nnodes: int, environ: dict[str, str]) -> tuple[dict[str, str], str]:
    """Between hosts gloo needs an interface where the host's name leads to a loopback: its variable, and a note."""
    if nnodes < 2 or "MASTER_ADDR" not in environ:
        return {}, ""
    try:
        note = choose_gloo_interface(environ, environ["MASTER_ADDR"])
    except Exception:  # an older Python: the rank goes as it is
        return {}, ""
    return ({"GLOO_SOCKET_IFNAME": environ["GLOO_SOCKET_IFNAME"]} if note else {}), note
