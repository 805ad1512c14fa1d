"""The environment variables for a job: the contract's, and those that the hardware calls for.

Each has a reason in the facts: a toolkit that fits torch, GPUs to compile for, a network interface that NCCL
would choose wrongly, a GPU for which this torch has no code.
"""

from collections.abc import Mapping
from typing import Any

from gpuready.catalog import torch
from gpuready.contracts import variables as contracted
from gpuready.contracts.variables import WantedVariable
from gpuready.contracts.when import certainly_applies
from gpuready.model import Contract, Facts, versions
from gpuready.model.plan import EnvironmentSettings
from gpuready.plan import source_build

ARCH_LIST_CITE = "torch/utils/cpp_extension.py, _get_cuda_arch_flags"
CUDA_HOME_CITE = "torch/utils/cpp_extension.py, _check_cuda_version"
MAX_JOBS_CITE = "torch/utils/cpp_extension.py, _get_num_workers; about 2.5 GB for one nvcc"
SOCKET_VARIABLES = {
    "NCCL_SOCKET_IFNAME": "NCCL user guide, environment variables, NCCL_SOCKET_IFNAME",
    "GLOO_SOCKET_IFNAME": "torch.distributed, common environment variables, GLOO_SOCKET_IFNAME",
}
DEVICE_ORDER_CITE = "CUDA C++ programming guide, CUDA environment variables"
NODE_COUNT_VARIABLES = ("NNODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES")
LOCAL_INTERFACES = ("lo", "docker", "virbr", "veth", "podman", "cni-podman", "lxcbr", "lxdbr", "br-")
"""Name prefixes of interfaces that are local to one machine."""

BYTES_PER_COMPILER = 2_500_000_000
USER_VALUE_STAYS = "yours stays"


def recommend_variables(
    facts: Facts,
    contract: Contract,
    role: str | None = None,
    environment: Mapping[str, str] | None = None,
    in_process: bool = False,
) -> EnvironmentSettings:
    """Return what to set for a framework on this machine, by whom and why; user values are never overridden."""
    have = environment or {}
    mine = [
        *_build_variables(facts, contract, have),
        *_network_variables(facts, have),
        *_visible_devices_variables(facts, have),
    ]
    return contracted.framework_settings(facts, contract, role, have, mine, in_process)


# -- builds ---------------------------------------------------------------------------------------------


def _build_variables(facts: Facts, contract: Contract, have: Mapping[str, str]) -> list[WantedVariable]:
    """Return the toolkit, architectures and jobs, if the framework or the job compiles something."""
    if "cuda" not in contract.platforms:
        return []
    build_wanted = "build" in (_job_wants(facts) or ())
    wishes = _cuda_home_variable(facts, contract, build_wanted, have)
    if build_wanted or _framework_reads(facts, contract, "TORCH_CUDA_ARCH_LIST"):
        wishes += _arch_list_variable(facts, contract, have)
    return [*wishes, *(_max_jobs_variable(facts) if build_wanted else [])]


def _job_wants(facts: Facts) -> tuple[str, ...]:
    return tuple(facts.value_if_known("job.wants") or ()) if "job.wants" in facts else ()


def _framework_reads(facts: Facts, contract: Contract, name: str) -> bool:
    """Whether the framework reads a variable in this job."""
    rows = (v for v in contract.variables if v.name == name and "read" in v.access)
    return any(certainly_applies(v.when, facts) for v in rows)


def _cuda_home_variable(
    facts: Facts, contract: Contract, build_wanted: bool, have: Mapping[str, str]
) -> list[WantedVariable]:
    """Choose CUDA_HOME: the toolkit of torch's CUDA major, preferably the same minor."""
    cuda = facts.value_if_known("torch.cuda")
    required = any(n.level == "required" and not n.when for n in contract.requirements_for("toolkit.version"))
    if not cuda or not (build_wanted or required or _framework_reads(facts, contract, "CUDA_HOME")):
        return []
    rows = {str(r.get("path")): r for r in facts.value_if_known("toolkit.others") or ()}
    mine = rows.get(have.get("CUDA_HOME", "").rstrip("/"), {})
    fits = bool(mine.get("nvcc")) and versions.major_version(str(mine["version"])) == versions.major_version(str(cuda))
    path = have["CUDA_HOME"] if fits else source_build.find_toolkit_home(facts, str(cuda))
    if path is None:
        return []
    version = rows[path.rstrip("/")]["version"]
    why = f"nvcc {version} there goes with torch's CUDA {cuda}"
    return [
        WantedVariable(
            "CUDA_HOME", path, contract.name, why, CUDA_HOME_CITE, f"{USER_VALUE_STAYS}, and nvcc is taken from there"
        )
    ]


def _arch_list_variable(facts: Facts, contract: Contract, have: Mapping[str, str]) -> list[WantedVariable]:
    here = source_build.list_gpu_capabilities(facts)
    listed = have.get("TORCH_CUDA_ARCH_LIST", "").replace(" ", ";").split(";")
    if not here or all(torch.covers_capability(listed, one)[0] for one in here):
        return []
    why = f"what is compiled here is for {', '.join(here)}, the GPUs of this machine"
    if contract.framework == "colossalai":
        why += "; where a GPU is visible most of its extensions set the list themselves"
    then = f"{USER_VALUE_STAYS}, and what is compiled is for those"
    return [WantedVariable("TORCH_CUDA_ARCH_LIST", ";".join(here), contract.name, why, ARCH_LIST_CITE, then)]


def _max_jobs_variable(facts: Facts) -> list[WantedVariable]:
    """Limit MAX_JOBS if one compiler per processor would exceed the memory."""
    cores, room = facts.value_if_known("host.cores_usable"), source_build.usable_build_memory(facts)
    if not cores or not room or int(cores) * BYTES_PER_COMPILER <= room:
        return []
    fits = max(1, room // BYTES_PER_COMPILER)
    why = f"{cores} compilers at once want more memory than the {room / 2**30:.0f} GiB here"
    return [WantedVariable("MAX_JOBS", str(fits), "torch", why, MAX_JOBS_CITE, USER_VALUE_STAYS)]


# -- the network ----------------------------------------------------------------------------------------


def _network_variables(facts: Facts, have: Mapping[str, str]) -> list[WantedVariable]:
    """Choose the interface for a multi-node job if NCCL's own choice is local to this machine."""
    taken = facts.value_if_known("net.interface")
    if not taken or not str(taken).startswith(LOCAL_INTERFACES) or not _is_multi_node(facts, have):
        return []
    best = _best_interface(facts.value_if_known("net.interfaces") or {})
    if best is None:
        return []
    why = f"NCCL would take {taken}, which exists on this machine alone"
    return [WantedVariable(name, best, "NCCL", why, cite, USER_VALUE_STAYS) for name, cite in SOCKET_VARIABLES.items()]


def _is_multi_node(facts: Facts, have: Mapping[str, str]) -> bool:
    if "multi-node" in _job_wants(facts):
        return True
    counts = [have.get(name, "").strip() for name in NODE_COUNT_VARIABLES]
    return any(count.isdecimal() and len(count) < 9 and int(count) > 1 for count in counts)


def _best_interface(table: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Prefer InfiniBand, as NCCL does, then Ethernet; the interface must be up with an address."""
    usable = [n for n, row in table.items() if row.get("up") and row.get("addresses") != []]
    for kind in ("infiniband", "ethernet"):
        for name in usable:
            if table[name].get("kind") == kind and not name.startswith(LOCAL_INTERFACES):
                return name
    return None


# -- devices --------------------------------------------------------------------------------------------


def _visible_devices_variables(facts: Facts, have: Mapping[str, str]) -> list[WantedVariable]:
    """Set CUDA_VISIBLE_DEVICES if a GPU would stop the job: lost, or without code in this torch."""
    here = facts.value_if_known("gpu.capability") or ()
    if len(here) < 2 or "CUDA_VISIBLE_DEVICES" in have:
        return []
    reasons = _unusable_gpus(facts, [str(one) for one in here])
    kept = [str(i) for i in range(len(here)) if i not in reasons]
    if not reasons or not kept:
        return []
    why = "; ".join(f"GPU {i} {reason}" for i, reason in reasons.items())
    return [
        WantedVariable(
            "CUDA_DEVICE_ORDER",
            "PCI_BUS_ID",
            "CUDA",
            "so that the numbers are those of nvidia-smi",
            DEVICE_ORDER_CITE,
            USER_VALUE_STAYS,
        ),
        WantedVariable("CUDA_VISIBLE_DEVICES", ",".join(kept), "CUDA", why, DEVICE_ORDER_CITE, USER_VALUE_STAYS),
    ]


def _unusable_gpus(facts: Facts, here: list[str]) -> dict[int, str]:
    lost = set(facts.value_if_known("gpu.lost") or ())
    reasons = {i: "has fallen off the bus" for i in sorted(lost) if i < len(here)}
    listed, cuda = facts.value_if_known("torch.arch"), facts.value_if_known("torch.cuda")
    for i, capability in enumerate(here if listed else ()):
        known = i not in reasons and versions.is_version(capability)
        if known and not torch.covers_capability(listed or (), capability, cuda)[0]:
            reasons[i] = f"has compute capability {capability}, for which this torch has no code"
    return reasons
