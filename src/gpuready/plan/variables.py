"""The environment variables for a job: the contract's, and those that the hardware calls for.

Each has a reason in the facts: a toolkit that fits torch, GPUs to compile for, a network interface that NCCL
would choose wrongly, a GPU for which this torch has no code.
"""

from __future__ import annotations

from gpuready import versions
from gpuready.catalog import torch
from gpuready.contracts import variables as contracted
from gpuready.contracts import when as conditions
from gpuready.contracts.variables import Wish
from gpuready.model import Unknown
from gpuready.plan import building

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gpuready.model import Contract, Facts
    from gpuready.planned import Settings

BUILDS = "torch/utils/cpp_extension.py, _get_cuda_arch_flags"
MAJOR = "torch/utils/cpp_extension.py, _check_cuda_version"
JOBS = "torch/utils/cpp_extension.py, _get_num_workers; about 2.5 GB for one nvcc"
SOCKETS = {
    "NCCL_SOCKET_IFNAME": "NCCL user guide, environment variables, NCCL_SOCKET_IFNAME",
    "GLOO_SOCKET_IFNAME": "torch.distributed, common environment variables, GLOO_SOCKET_IFNAME",
}
ORDER = "CUDA C++ programming guide, CUDA environment variables"
NODES = ("NNODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES")
LOCAL = ("lo", "docker", "virbr", "veth", "podman", "cni-podman", "lxcbr", "lxdbr", "br-")
"""Name prefixes of interfaces that are local to one machine."""

EACH = 2_500_000_000
YOURS = "yours stays"


def variables(
    facts: Facts, contract: Contract, role: str | None = None, environment: Mapping[str, str] | None = None
) -> Settings:
    """Return what to set for a framework on this machine, by whom and why; user values are never overridden."""
    have = environment or {}
    mine = [*_building(facts, contract, have), *_network(facts, have), *_visible(facts, have)]
    return contracted.settings(facts, contract, role, have, mine)


# -- builds ---------------------------------------------------------------------------------------------


def _building(facts: Facts, contract: Contract, have: Mapping[str, str]) -> list[Wish]:
    """Return the toolkit, architectures and jobs, if the framework or the job compiles something."""
    if "cuda" not in contract.platforms:
        return []
    asked = "build" in (_known_job(facts) or ())
    found = _home(facts, contract, asked, have)
    if asked or _reads(facts, contract, "TORCH_CUDA_ARCH_LIST"):
        found += _architectures(facts, contract, have)
    return [*found, *(_jobs(facts) if asked else [])]


def _known_job(facts: Facts) -> tuple[str, ...]:
    return tuple(facts.known("job.wants") or ()) if "job.wants" in facts else ()


def _reads(facts: Facts, contract: Contract, name: str) -> bool:
    """Whether the framework reads a variable in this job."""
    for variable in contract.variables:
        if variable.name != name or "read" not in variable.access:
            continue
        try:
            if conditions.applies(variable.when, facts):
                return True
        except Unknown:
            continue
    return False


def _home(facts: Facts, contract: Contract, asked: bool, have: Mapping[str, str]) -> list[Wish]:
    """Choose CUDA_HOME: the toolkit of torch's CUDA major, preferably the same minor."""
    cuda = facts.known("torch.cuda")
    required = any(n.level == "required" and not n.when for n in contract.wants("toolkit.version"))
    if not cuda or not (asked or required or _reads(facts, contract, "CUDA_HOME")):
        return []
    rows = {str(r.get("path")): r for r in facts.known("toolkit.others") or ()}
    mine = rows.get(have.get("CUDA_HOME", "").rstrip("/"), {})
    fits = bool(mine.get("nvcc")) and versions.major(str(mine["version"])) == versions.major(str(cuda))
    path = have["CUDA_HOME"] if fits else building.home(facts, str(cuda))
    if path is None:
        return []
    version = rows[path.rstrip("/")]["version"]
    why = f"nvcc {version} there goes with torch's CUDA {cuda}"
    return [Wish("CUDA_HOME", path, contract.name, why, MAJOR, f"{YOURS}, and nvcc is taken from there")]


def _architectures(facts: Facts, contract: Contract, have: Mapping[str, str]) -> list[Wish]:
    here = building.capabilities(facts)
    listed = have.get("TORCH_CUDA_ARCH_LIST", "").replace(" ", ";").split(";")
    if not here or all(torch.covers(listed, one)[0] for one in here):
        return []
    why = f"what is compiled here is for {', '.join(here)}, the GPUs of this machine"
    if contract.framework == "colossalai":
        why += "; where a GPU is visible most of its extensions set the list themselves"
    then = f"{YOURS}, and what is compiled is for those"
    return [Wish("TORCH_CUDA_ARCH_LIST", ";".join(here), contract.name, why, BUILDS, then)]


def _jobs(facts: Facts) -> list[Wish]:
    """Limit MAX_JOBS if one compiler per processor would exceed the memory."""
    cores, room = facts.known("host.cores_usable"), building.memory(facts)
    if not cores or not room or int(cores) * EACH <= room:
        return []
    fits = max(1, room // EACH)
    why = f"{cores} compilers at once want more memory than the {room / 2**30:.0f} GiB here"
    return [Wish("MAX_JOBS", str(fits), "torch", why, JOBS, YOURS)]


# -- the network ----------------------------------------------------------------------------------------


def _network(facts: Facts, have: Mapping[str, str]) -> list[Wish]:
    """Choose the interface for a multi-node job if NCCL's own choice is local to this machine."""
    taken = facts.known("net.interface")
    if not taken or not str(taken).startswith(LOCAL) or not _several(facts, have):
        return []
    best = _best(facts.known("net.interfaces") or {})
    if best is None:
        return []
    why = f"NCCL would take {taken}, which exists on this machine alone"
    return [Wish(name, best, "NCCL", why, cite, YOURS) for name, cite in SOCKETS.items()]


def _several(facts: Facts, have: Mapping[str, str]) -> bool:
    if "multi-node" in _known_job(facts):
        return True
    counts = [have.get(name, "").strip() for name in NODES]
    return any(count.isdecimal() and len(count) < 9 and int(count) > 1 for count in counts)


def _best(table: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Prefer InfiniBand, as NCCL does, then Ethernet; the interface must be up with an address."""
    usable = [n for n, row in table.items() if row.get("up") and row.get("addresses") != []]
    for kind in ("infiniband", "ethernet"):
        for name in usable:
            if table[name].get("kind") == kind and not name.startswith(LOCAL):
                return name
    return None


# -- devices --------------------------------------------------------------------------------------------


def _visible(facts: Facts, have: Mapping[str, str]) -> list[Wish]:
    """Set CUDA_VISIBLE_DEVICES if a GPU would stop the job: lost, or without code in this torch."""
    here = facts.known("gpu.capability") or ()
    if len(here) < 2 or "CUDA_VISIBLE_DEVICES" in have:
        return []
    reasons = _useless(facts, [str(one) for one in here])
    kept = [str(i) for i in range(len(here)) if i not in reasons]
    if not reasons or not kept:
        return []
    why = "; ".join(f"GPU {i} {said}" for i, said in reasons.items())
    return [
        Wish(
            "CUDA_DEVICE_ORDER",
            "PCI_BUS_ID",
            "CUDA",
            "so that the numbers are those of nvidia-smi",
            ORDER,
            YOURS,
        ),
        Wish("CUDA_VISIBLE_DEVICES", ",".join(kept), "CUDA", why, ORDER, YOURS),
    ]


def _useless(facts: Facts, here: list[str]) -> dict[int, str]:
    lost = set(facts.known("gpu.lost") or ())
    found = {i: "has fallen off the bus" for i in sorted(lost) if i < len(here)}
    listed, cuda = facts.known("torch.arch"), facts.known("torch.cuda")
    for i, capability in enumerate(here if listed else ()):
        known = i not in found and versions.is_version(capability)
        if known and not torch.covers(listed or (), capability, cuda)[0]:
            found[i] = f"has compute capability {capability}, for which this torch has no code"
    return found
