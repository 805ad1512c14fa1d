"""``gpuready.configure("axolotl")``: set what a framework wants, inside the job and before torch is imported.

torch is not imported here: its version is read from its metadata. User values stay; a warning names each conflict
with the framework, and the returned EnvironmentSettings list it.
"""

from __future__ import annotations

import os
import sys

from gpuready import contracts
from gpuready.contracts import variables
from gpuready.model import Fact, Facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from gpuready.planned import Clash, Settings

BACKENDS = {"rocm": "rocm", "xpu": "xpu"}


class TooLate(RuntimeError):
    """torch has read its variables already."""


def configure(
    framework: str, role: str | None = None, environ: MutableMapping[str, str] | None = None
) -> Settings:
    """Set the variables that a framework wants and that are unset; report which, why, and conflicts.

    ``framework`` may name a version and a variant (``roll:torch280-vllm``). Call it before torch is imported:
    TorchAlreadyImported otherwise. ValueError, in a sentence, for an unknown framework or role.
    """
    name, version, variant = contracts.parse(framework)
    contracts.known(name, version, variant)
    if "torch" in sys.modules:
        raise TooLate(
            "torch is imported already and has read its variables: call gpuready.configure before it"
        )
    target = os.environ if environ is None else environ
    installed = _version(contracts.distribution(name))
    contract = contracts.load(name, version, variant, installed)
    found = variables.settings(_facts(target), contract, role, target)
    for one in found.variables:
        if one.state == "set":
            target[one.name] = one.value
    _warn(found.conflicts)
    return found


def _version(distribution: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _facts(environ: MutableMapping[str, str]) -> Facts:
    """Return what the process knows of itself without torch and the driver."""
    torch = _version("torch")
    facts = [Fact("package.torch", torch, "metadata of torch")] if torch else []
    local = (torch or "").partition("+")[2]
    platform = next((name for mark, name in BACKENDS.items() if local.startswith(mark)), None)
    if platform:
        facts.append(Fact("platform.name", platform, "metadata of torch"))
    count = _gpus(environ)
    if count is not None:
        facts.append(Fact("gpu.count", count, "/dev and the environment"))
    return Facts(facts, otherwise="not looked at before torch is imported")


def _gpus(environ: MutableMapping[str, str]) -> int | None:
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


def _warn(conflicts: tuple[Clash, ...]) -> None:
    if not conflicts:
        return
    import warnings

    for one in conflicts:
        said = f"{one.name} is {one.have!r}, and {one.by} wants {one.wants!r}: {one.then}"
        warnings.warn(said, stacklevel=3)
