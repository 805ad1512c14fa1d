"""Choose the engine that reaches the nodes: the requested one, or the one found here, with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuready import system
from gpuready.fleet import ssh_hosts
from gpuready.fleet.kubernetes import KubernetesTransport
from gpuready.fleet.ray_cluster import RayTransport
from gpuready.fleet.slurm import SlurmTransport
from gpuready.fleet.transport import PARALLEL, Transport, TransportUnavailable
from gpuready.model.record import Record
from gpuready.probe import fact_helpers
from gpuready.workflow.fleet_recordings import RecordedTransport
from gpuready.workflow.refusal import Refused, call_or_refuse

ENGINES = ("ray", "slurm", "ssh", "kubernetes")


class ReachOptions(Record):
    """The command line's options for nodes and transport."""

    engine: str = ""
    hosts: str = ""
    hostfile: str = ""
    host_lines: str = ""  # the text of the hostfile
    nodes: str = ""
    address: str = ""
    python: str = ""
    namespace: str = ""
    image: str = ""
    pods: str = ""
    parallel: int = PARALLEL
    recordings: tuple[str, ...] = ()


def choose_fleet_engine(reach: ReachOptions, host: system.HostAccess, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the engine, and why it was chosen."""
    if reach.engine:
        return reach.engine, "--engine says so"
    if reach.hosts or reach.hostfile:
        return "ssh", "hosts were named"
    if reach.pods or reach.image or reach.namespace:
        return "kubernetes", "pods, an image or a namespace were named"
    if reach.address:
        return "ray", "--address names a Ray cluster"
    if environ.get("SLURM_JOB_ID"):
        return "slurm", f"this is inside Slurm's allocation {environ['SLURM_JOB_ID']}"
    if environ.get("RAY_ADDRESS"):
        return "ray", "RAY_ADDRESS is set"
    if host.find_program("sinfo") and host.find_program("srun"):
        return "slurm", "sinfo and srun are here"
    if host.find_program("ray"):
        return "ray", "the program ray is here"
    if host.find_program("kubectl"):
        return "kubernetes", "kubectl is here"
    raise Refused(
        "no engine is seen here (no Slurm, no Ray, no kubectl): name the hosts with --hosts n[01-16] or --hostfile FILE"
    )


def open_transport(reach: ReachOptions, token: str, frameworks: tuple[str, ...] = ()) -> tuple[Transport, str]:
    """Return the transport to the nodes, and the reason for it; Refused where there is none."""
    if reach.recordings:
        return RecordedTransport(reach.recordings, token), "nothing was reached"
    host = system.LiveHost()
    environ = host.get_environment()
    name, why = choose_fleet_engine(reach, host, environ)
    _refuse_unread_options(name, reach)
    if reach.parallel < 1:
        raise Refused(f"--parallel {reach.parallel}: at least one node is asked at a time")
    try:
        return _TRANSPORTS[name](reach, token, host, environ, frameworks), why
    except TransportUnavailable as error:
        raise Refused(NO_CLUSTER.format(error)) from None


NO_CLUSTER = (
    "no cluster answers here: {}; name the nodes: --hosts n[01-16], --hostfile FILE or recordings (a.json b.json)"
)
_READ_OPTIONS = {
    "ssh": ("hosts", "hostfile", "nodes"),
    "slurm": ("nodes", "hosts"),
    "ray": ("address",),
    "kubernetes": ("nodes", "namespace", "image", "pods"),
}
"""The options that say which nodes, of those that each engine reads."""
_INSTEAD = {"nodes": "hosts", "image": "pods"}
"""Options that are not read beside another one."""


def _refuse_unread_options(engine: str, reach: ReachOptions) -> None:
    """Refuse what would be ignored: who names nodes or pods means these and no others."""
    for name in dict.fromkeys(option for options in _READ_OPTIONS.values() for option in options):
        if getattr(reach, name) and name not in _READ_OPTIONS[engine]:
            takes = " and ".join(f"--{one}" for one in _READ_OPTIONS[engine]) or "no names of nodes"
            raise Refused(f"--{name} is not read where nodes are reached through {engine}, which takes {takes}")
    for name, other in _INSTEAD.items():
        if getattr(reach, name) and getattr(reach, other):
            raise Refused(f"--{name} and --{other} exclude each other: leave one of them out")


def _ssh_transport(reach: ReachOptions, token: str, host: system.LiveHost, environ: Any, frameworks: Any) -> Transport:
    if bool(reach.hosts or reach.nodes) == bool(reach.hostfile):
        raise Refused("ssh needs hosts: --hosts n[01-16] or --hostfile FILE, one of the two")
    if reach.hostfile:
        host_list = call_or_refuse(ssh_hosts.parse_hostfile, reach.host_lines, reach.hostfile)
    else:
        named = reach.hosts or reach.nodes
        if ssh_hosts.is_hostfile(fact_helpers.read_if_present(host.read_text, named) or ""):
            raise Refused(f"{named} is a file with hosts: give it with --hostfile")
        host_list = call_or_refuse(ssh_hosts.parse_host_list, named)
    return ssh_hosts.SshTransport(host_list, token, python=reach.python or "python3", parallel=reach.parallel)


def _slurm_transport(
    reach: ReachOptions, token: str, host: system.LiveHost, environ: Any, frameworks: Any
) -> Transport:
    only = reach.nodes or reach.hosts
    return SlurmTransport(host, token, node_list=only, python=reach.python, parallel=reach.parallel, environ=environ)


def _ray_transport(
    reach: ReachOptions, token: str, host: system.LiveHost, environ: Mapping[str, str], frameworks: Any
) -> Transport:
    address = reach.address or environ.get("RAY_ADDRESS", "")
    roll = "roll" in {one.partition("=")[0].partition(":")[0] for one in frameworks}
    if not address and roll and environ.get("MASTER_ADDR") and environ.get("MASTER_PORT"):
        address = f"{environ['MASTER_ADDR']}:{environ['MASTER_PORT']}"  # where ROLL starts its Ray head
    return RayTransport(
        host, token, address=address, interpreter=reach.python, python=reach.python, parallel=reach.parallel
    )


def _kubernetes_transport(
    reach: ReachOptions, token: str, host: system.LiveHost, environ: Any, frameworks: Any
) -> Transport:
    own = {name: getattr(reach, name) for name in ("python", "parallel", "namespace", "image", "pods")}
    return call_or_refuse(lambda: KubernetesTransport(host, token, node_list=reach.nodes, **own))


_TRANSPORTS = {
    "ssh": _ssh_transport,
    "slurm": _slurm_transport,
    "ray": _ray_transport,
    "kubernetes": _kubernetes_transport,
}
