"""gpuready: from a bare GPU machine to one proven ready for an LLM framework."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from gpuready.api import commands
    from gpuready.api.commands import Refused as Refused
    from gpuready.api.commands import bench as bench
    from gpuready.api.commands import contract as contract
    from gpuready.api.commands import env as env
    from gpuready.api.commands import explain as explain
    from gpuready.api.commands import report as report
    from gpuready.api.commands import search as search
    from gpuready.api.result import Result as Result

    check = commands.CallablePackage(commands.check)
    diagnose = commands.CallablePackage(commands.diagnose)
    fit = commands.CallablePackage(commands.fit)
    plan = commands.CallablePackage(commands.plan)
    probe = commands.CallablePackage(commands.probe)
    prove = commands.CallablePackage(commands.prove)
else:
    ModuleType = type(sys)

__version__ = "0.1.0"
_PUBLIC = {
    "configure": "gpuready.runtime.configure",
    "launch": "gpuready.runtime.launch",
    "launch_from_torch": "gpuready.runtime.launch",
    "launch_from_slurm": "gpuready.runtime.launch",
    "launch_from_openmpi": "gpuready.runtime.launch",
    "FusedAdamW": "gpuready.runtime.optimizers",
    "CPUAdam": "gpuready.runtime.optimizers",
    "load_extension": "gpuready.extensions",
    "Result": "gpuready.api.result",
    "Refused": "gpuready.workflow.refusal",
    "bench": "gpuready.api.commands",
    "contract": "gpuready.api.commands",
    "env": "gpuready.api.commands",
    "explain": "gpuready.api.commands",
    "report": "gpuready.api.commands",
    "search": "gpuready.api.commands",
}
_COMMAND_MODULES = ("check", "diagnose", "fit", "plan", "probe", "prove")
"""Commands that are also packages: the module itself is made callable, so both uses of the name work."""


def __getattr__(name: str) -> Any:
    """Import a public name on first access."""
    if name in _COMMAND_MODULES:
        return __import__(f"gpuready.{name}", fromlist=["__name__"])
    if name not in _PUBLIC:
        raise AttributeError(f"module 'gpuready' has no attribute {name!r}")
    return getattr(__import__(_PUBLIC[name], fromlist=[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC, *_COMMAND_MODULES})


class _CallableModule(ModuleType):
    """A package that can be called as its command: ``gpuready.fit("llama-3.1-8b", on="h100")``."""

    def __call__(self, *args: Any, **named: Any) -> Any:
        from gpuready.api import commands

        return getattr(commands, self.__name__.rpartition(".")[2])(*args, **named)


class _PackageModule(ModuleType):
    """This package. Importing a command's package sets it as an attribute here, which makes it callable."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _COMMAND_MODULES and type(value) is ModuleType:
            value.__class__ = _CallableModule
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _PackageModule
