"""Choose the engine that reaches the nodes: the requested one, or the one found here, with the reason."""

from __future__ import annotations

from gpuready import system
from gpuready.fleet.transport import PARALLEL, Unreached
from gpuready.noun import Noun
from gpuready.workflow.refusal import Refused, refusing, text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gpuready.fleet.transport import Transport

ENGINES = ("ray", "slurm", "ssh", "elastic")


class Reach(Noun):
    """The command line's options for nodes and transport."""

    engine: str = ""
    hosts: str = ""
    hostfile: str = ""
    nodes: str = ""
    address: str = ""
    python: str = ""
    parallel: int = PARALLEL


def engine(reach: Reach, door: system.Door, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the engine, and why it was chosen."""
    if reach.engine:
        return reach.engine, "--engine says so"
    if reach.hosts or reach.hostfile:
        return "ssh", "hosts were named"
    if reach.address:
        return "ray", "--address names a Ray cluster"
    if "TORCHELASTIC_RUN_ID" in environ and _several(environ.get("GROUP_WORLD_SIZE", "")):
        return "elastic", f"this is a torchrun job of {environ['GROUP_WORLD_SIZE']} nodes"
    if environ.get("SLURM_JOB_ID"):
        return "slurm", f"this is inside Slurm's allocation {environ['SLURM_JOB_ID']}"
    if environ.get("RAY_ADDRESS"):
        return "ray", "RAY_ADDRESS is set"
    if door.which("sinfo") and door.which("srun"):
        return "slurm", "sinfo and srun are here"
    if door.which("ray"):
        return "ray", "the program ray is here"
    raise Refused(
        "no engine is seen here (no Slurm, no Ray, no torchrun): name the hosts with --hosts n[01-16] or --hostfile FILE"
    )


def _several(text: str) -> bool:
    return text.isdecimal() and int(text[:9]) > 1


def transport(reach: Reach, token: str, frameworks: tuple[str, ...] = ()) -> tuple[Transport, str]:
    """Return the transport to the nodes, and the reason for it; Refused where there is none."""
    door = system.Live()
    environ = door.environ()
    name, why = engine(reach, door, environ)
    if reach.parallel < 1:
        raise Refused(f"--parallel {reach.parallel}: at least one node is asked at a time")
    try:
        return _MADE[name](reach, token, door, environ, frameworks), why
    except Unreached as cannot:
        raise Refused(str(cannot)) from None


def _ssh(reach: Reach, token: str, door: system.Live, environ: Any, frameworks: Any) -> Transport:
    from gpuready.fleet import hosts

    if bool(reach.hosts or reach.nodes) == bool(reach.hostfile):
        raise Refused("ssh needs hosts: --hosts n[01-16] or --hostfile FILE, one of the two")
    if reach.hostfile:
        found = refusing(hosts.hostfile, text_of(reach.hostfile), reach.hostfile)
    else:
        found = refusing(hosts.listed, reach.hosts or reach.nodes)
    return hosts.Hosts(found, token, python=reach.python or "python3", parallel=reach.parallel)


def _slurm(reach: Reach, token: str, door: system.Live, environ: Any, frameworks: Any) -> Transport:
    from gpuready.fleet.slurm import Slurm

    only = reach.nodes or reach.hosts
    return Slurm(door, token, only=only, python=reach.python, parallel=reach.parallel, environ=environ)


def _ray(
    reach: Reach, token: str, door: system.Live, environ: Mapping[str, str], frameworks: Any
) -> Transport:
    from gpuready.fleet.ray_cluster import Ray

    address = reach.address or environ.get("RAY_ADDRESS", "")
    roll = "roll" in {one.partition("=")[0].partition(":")[0] for one in frameworks}
    if not address and roll and environ.get("MASTER_ADDR") and environ.get("MASTER_PORT"):
        address = (
            f"{environ['MASTER_ADDR']}:{environ['MASTER_PORT']}"  # where ROLL starts its Ray head
        )
    return Ray(
        door,
        token,
        address=address,
        interpreter=reach.python,
        python=reach.python,
        parallel=reach.parallel,
    )


def _elastic(reach: Reach, token: str, door: system.Live, environ: Any, frameworks: Any) -> Transport:
    from gpuready.cluster import discover
    from gpuready.fleet.elastic import Elastic
    from gpuready.probe.patient import patient

    where = refusing(discover, environ, "torchrun")
    python = refusing(patient, door, reach.python or None).path
    return Elastic(where, door.hostname(), python)


_MADE = {"ssh": _ssh, "slurm": _slurm, "ray": _ray, "elastic": _elastic}
