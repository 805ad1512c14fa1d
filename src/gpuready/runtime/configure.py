"""``gpuready.configure("axolotl")``: set what a framework wants, inside the job and before torch is imported.

torch is not imported here: its version is read from its metadata. User values stay; a warning names each conflict
with the framework, and the returned EnvironmentSettings list it.
"""

import os
import sys
import warnings
from collections.abc import MutableMapping
from importlib import metadata

from gpuready import contracts
from gpuready.contracts import variables
from gpuready.model import Fact, Facts
from gpuready.model.plan import EnvironmentSettings, VariableConflict

TORCH_BUILD_PLATFORMS = {"rocm": "rocm", "xpu": "xpu"}


class TorchAlreadyImported(RuntimeError):
    """torch has read its variables already."""


def configure(
    framework: str, role: str | None = None, environ: MutableMapping[str, str] | None = None
) -> EnvironmentSettings:
    """Set the variables that a framework wants and that are unset; report which, why, and conflicts.

    ``framework`` may name a version and a variant (``roll:torch280-vllm``). Call it before torch is imported:
    TorchAlreadyImported otherwise. ValueError, in a sentence, for an unknown framework or role.
    """
    name, version, variant = contracts.parse_contract_spec(framework)
    contracts.check_contract_exists(name, version, variant)
    if "torch" in sys.modules:
        raise TorchAlreadyImported(
            "torch is imported already and has read its variables: call gpuready.configure before it"
        )
    target = os.environ if environ is None else environ
    installed = _installed_version(contracts.distribution_name(name))
    contract = contracts.load_contract(name, version, variant, installed)
    settings = variables.framework_settings(_process_facts(target), contract, role, target, in_process=True)
    for one in settings.variables:
        if one.state == "set":
            target[one.name] = one.value
    _warn_conflicts(settings.conflicts)
    return settings


def _installed_version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _process_facts(environ: MutableMapping[str, str]) -> Facts:
    """Return what the process knows of itself without torch and the driver."""
    torch = _installed_version("torch")
    facts = [Fact("package.torch", torch, "metadata of torch")] if torch else []
    local = (torch or "").partition("+")[2]
    platform = next((name for mark, name in TORCH_BUILD_PLATFORMS.items() if local.startswith(mark)), None)
    if platform:
        facts.append(Fact("platform.name", platform, "metadata of torch"))
    count = _count_job_gpus(environ)
    if count is not None:
        facts.append(Fact("gpu.count", count, "/dev and the environment"))
    return Facts(facts, otherwise="not looked at before torch is imported")


def _count_job_gpus(environ: MutableMapping[str, str]) -> int | None:
    """Count the job's GPUs: by its world size, by visible devices, by device files."""
    for name in ("LOCAL_WORLD_SIZE", "WORLD_SIZE"):
        text = environ.get(name, "").strip()
        if text.isdecimal() and len(text) < 9:
            return int(text)
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([one for one in visible.split(",") if one.strip() and one.strip() != "-1"])
    try:
        entries = os.listdir("/dev")
    except OSError:
        return None
    return sum(entry.startswith("nvidia") and entry[6:].isdecimal() for entry in entries)


def _warn_conflicts(conflicts: tuple[VariableConflict, ...]) -> None:
    if not conflicts:
        return
    for one in conflicts:
        message = f"{one.name} is {one.have!r}, and {one.by} wants {one.wants!r}: {one.then}"
        warnings.warn(message, stacklevel=3)
