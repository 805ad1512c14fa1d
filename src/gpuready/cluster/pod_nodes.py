"""Which node of a job a pod is: what PyTorchJob, TrainJob and Indexed Jobs (JobSet) set for torchrun.

PET_* are torchrun's own defaults and count outside of pods too. In a pod RANK and JOB_COMPLETION_INDEX number the pods.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpuready.cluster.address import parse_whole_number
from gpuready.model.record import Record


class PodNodes(Record):
    """The nodes of a job as a pod sees them; None and empty where nothing is said."""

    nodes: int | None = None
    node: int | None = None
    master: str = ""  # HOST:PORT
    nproc: str = ""  # a number, or auto, gpu or cpu, as torchrun takes them
    problem: str = ""  # a number of nodes that is none


def is_pod(environ: Mapping[str, str]) -> bool:
    return "KUBERNETES_SERVICE_HOST" in environ


def read_pod_nodes(environ: Mapping[str, str]) -> PodNodes:
    """Return what the variables say about nodes; nothing inside of a rank that a launcher has started."""
    outside = not is_pod(environ) and "PET_NNODES" not in environ
    if outside or "LOCAL_RANK" in environ:
        return PodNodes()
    found = PodNodes(master=_find_master(environ), nproc=environ.get("PET_NPROC_PER_NODE", "").strip())
    try:
        return found.replace(nodes=_count_nodes(environ), node=_find_node(environ))
    except ValueError as error:
        return found.replace(problem=str(error))


def _count_nodes(environ: Mapping[str, str]) -> int | None:
    """PET_NNODES, or WORLD_SIZE where every pod is one process."""
    text = environ.get("PET_NNODES", "").strip()
    if not text:
        alone = "RANK" in environ and "WORLD_SIZE" in environ
        return parse_whole_number(environ["WORLD_SIZE"], "WORLD_SIZE") if alone else None
    least, _, most = text.partition(":")
    if most and most != least:
        raise ValueError(f"PET_NNODES is {text}, and gpuready run starts a fixed number of nodes")
    return parse_whole_number(least, "PET_NNODES")


def _find_node(environ: Mapping[str, str]) -> int | None:
    for name in ("PET_NODE_RANK", "RANK", "JOB_COMPLETION_INDEX"):
        if environ.get(name, "").strip():
            return parse_whole_number(environ[name], name)
    return None


def _find_master(environ: Mapping[str, str]) -> str:
    for prefix in ("PET_", ""):
        host, port = environ.get(f"{prefix}MASTER_ADDR", "").strip(), environ.get(f"{prefix}MASTER_PORT", "").strip()
        if host and port:
            return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"
    return environ.get("PET_RDZV_ENDPOINT", "").strip()
