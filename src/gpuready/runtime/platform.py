"""Platforms: device, visibility variable, communication backend, and the variables that a framework sets.

The data is in the accelerator catalogue and in the framework's contract; only the choice is made here. torch is not
imported: the caller passes what torch reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from gpuready.catalog import gpus
from gpuready.contracts.when import certainly_applies
from gpuready.model import Contract, ContractVariable, Fact, Facts, Record

PLATFORM_NAMES = ("cuda", "rocm", "npu", "xpu", "hpu", "mps", "cpu")
UNKNOWN_PLATFORM = "unknown"
"""A device that torch calls ``cuda`` and whose name says neither NVIDIA nor AMD."""

RENDEZVOUS_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
"""Set by the launcher for each process, not by the platform."""

_GROUP_BACKENDS = {"rccl": "nccl", "": "gloo"}
# torch calls RCCL nccl, and uses Gloo for devices without their own library.


class Platform(Record):
    """One kind of device, as torch and the launchers name it."""

    name: str
    device: str  # the device type of torch
    visibility: str = ""  # the variable that selects devices; empty if there is none
    visibilities: tuple[str, ...] = ()  # all such variables, the strongest first
    backend: str = "gloo"  # of a process group
    vendor: str = ""
    source: str = ""


def get_platform(name: str, contract: Contract | None = None) -> Platform:
    """Return the platform of this name, with the visibility variable that the contract uses."""
    if name == "cpu":
        return Platform("cpu", "cpu", source="torch.distributed, Backend.default_device_backend_map")
    row = gpus.find_vendor_by_backend("cuda" if name == UNKNOWN_PLATFORM else name)
    if row is None or name not in (*PLATFORM_NAMES, UNKNOWN_PLATFORM):
        raise ValueError(f"no platform is called {name!r}: it is one of {', '.join(PLATFORM_NAMES)}")
    variables, collective = tuple(row.get("select_env", ())), row.get("collective", "")
    return Platform(
        name,
        str(row["torch_device"]),
        visibility=_visibility_variable(variables, contract),
        visibilities=variables,
        backend=_GROUP_BACKENDS.get(collective, collective),
        vendor="" if name == UNKNOWN_PLATFORM else str(row["id"]),
        source=str(row["source"]),
    )


def choose_platform(available: Set[str], device_name: str | None = None) -> Platform:
    """Choose the platform as ROLL does: a CUDA device by its name, else the NPU, else the CPU.

    ``available`` has torch's device types; types other than cuda and npu are ignored.
    """
    if "cuda" not in available:
        return get_platform("npu" if "npu" in available else "cpu")
    shown = (device_name or "").upper()
    if "NVIDIA" in shown:
        return get_platform("cuda")
    return get_platform("rocm" if "AMD" in shown else UNKNOWN_PLATFORM)


def framework_variables(
    on: Platform, contract: Contract, environ: Mapping[str, str], torch: str | None = None, wants: Iterable[str] = ()
) -> dict[str, str]:
    """Return the variables that a framework sets for itself on a platform, as a process would see them.

    A variable that the framework also reads keeps its value. Rows whose condition cannot be decided (``torch`` not
    set) and variables that the launcher sets are left out.
    """
    facts = _platform_facts(on, torch, wants)
    rows = [v for v in contract.variables if _is_set_by_framework(v) and certainly_applies(v.when, facts)]
    return {v.name: _variable_value(v, environ) for v in rows}


def _visibility_variable(names: tuple[str, ...], contract: Contract | None) -> str:
    known = {v.name for v in contract.variables} if contract else set()
    return next((name for name in names if name in known), names[0] if names else "")


def _is_set_by_framework(variable: ContractVariable) -> bool:
    return bool(variable.value) and "set" in variable.access and variable.name not in RENDEZVOUS_VARIABLES


def _variable_value(variable: ContractVariable, environ: Mapping[str, str]) -> str:
    return environ.get(variable.name, variable.value) if "read" in variable.access else variable.value


def _platform_facts(on: Platform, torch: str | None, wants: Iterable[str]) -> Facts:
    stated = [Fact("platform.name", on.name), Fact("job.wants", tuple(wants))]
    return Facts([*stated, Fact("package.torch", torch)] if torch else stated)
