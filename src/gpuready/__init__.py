"""gpuready: from a bare GPU machine to one proven ready for an LLM framework."""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Generic, ParamSpec, TypeVar

    from gpuready.commands.bench import bench as bench
    from gpuready.commands.check import check as _check
    from gpuready.commands.contract import contract as contract
    from gpuready.commands.diagnose import diagnose as _diagnose
    from gpuready.commands.env import env as env
    from gpuready.commands.explain import explain as explain
    from gpuready.commands.fit import fit as _fit
    from gpuready.commands.fix import fix as fix
    from gpuready.commands.plan import plan as _plan
    from gpuready.commands.probe import probe as _probe
    from gpuready.commands.prove import prove as _prove
    from gpuready.commands.report import report as report
    from gpuready.commands.result import Result as Result
    from gpuready.workflow.refusal import Refused as Refused

    P = ParamSpec("P")
    R = TypeVar("R")

    class CallablePackage(ModuleType, Generic[P, R]):
        """A package that can be called as the command of its name."""

        def __init__(self, does: Callable[P, R]) -> None: ...
        def __call__(self, *args: P.args, **named: P.kwargs) -> R: ...

    check = CallablePackage(_check)
    diagnose = CallablePackage(_diagnose)
    fit = CallablePackage(_fit)
    plan = CallablePackage(_plan)
    probe = CallablePackage(_probe)
    prove = CallablePackage(_prove)

__version__ = "0.1.0"
_PUBLIC = {
    "configure": "gpuready.runtime.configure",
    "launch": "gpuready.runtime.launch",
    "launch_from_torch": "gpuready.runtime.launch",
    "launch_from_slurm": "gpuready.runtime.launch",
    "launch_from_openmpi": "gpuready.runtime.launch",
    "load_extension": "gpuready.extensions",
    "Result": "gpuready.commands.result",
    "Refused": "gpuready.workflow.refusal",
}
_COMMAND_FUNCTIONS = ("bench", "contract", "env", "explain", "fix", "report")
_COMMAND_MODULES = ("check", "diagnose", "fit", "plan", "probe", "prove")
"""Commands that are also packages: the module itself is made callable, so both uses of the name work."""


def __getattr__(name: str) -> Any:
    """Import a public name on first access."""
    if name in _COMMAND_MODULES:
        return import_module(f"gpuready.{name}")
    if name in _COMMAND_FUNCTIONS:
        return _load_function(name)
    if name not in _PUBLIC:
        raise AttributeError(f"module 'gpuready' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC, *_COMMAND_FUNCTIONS, *_COMMAND_MODULES})


def _load_function(name: str) -> Any:
    from gpuready.commands import load_function

    return load_function(name)


class _CallableModule(ModuleType):
    """A package that can be called as its command: ``gpuready.fit("llama-3.1-8b", on="h100")``."""

    def __call__(self, *args: Any, **named: Any) -> Any:
        return _load_function(self.__name__.rpartition(".")[2])(*args, **named)

    @property
    def __signature__(self) -> Any:
        return _load_function(self.__name__.rpartition(".")[2]).__signature__


class _PackageModule(ModuleType):
    """This package. Importing a command's package sets it as an attribute here, which makes it callable."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _COMMAND_MODULES and type(value) is ModuleType:
            value.__class__ = _CallableModule
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _PackageModule
