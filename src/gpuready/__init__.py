"""gpuready: from a bare GPU machine to one proven ready for an LLM framework."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from gpuready import verbs
    from gpuready.answer import Answer as Answer
    from gpuready.verbs import Refused as Refused
    from gpuready.verbs import bench as bench
    from gpuready.verbs import contract as contract
    from gpuready.verbs import env as env
    from gpuready.verbs import explain as explain
    from gpuready.verbs import report as report
    from gpuready.verbs import search as search

    check = verbs.Room(verbs.check)
    diagnose = verbs.Room(verbs.diagnose)
    fit = verbs.Room(verbs.fit)
    plan = verbs.Room(verbs.plan)
    probe = verbs.Room(verbs.probe)
    prove = verbs.Room(verbs.prove)
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
    "Answer": "gpuready.answer",
    "Refused": "gpuready.workflow.refusal",
    "bench": "gpuready.verbs",
    "contract": "gpuready.verbs",
    "env": "gpuready.verbs",
    "explain": "gpuready.verbs",
    "report": "gpuready.verbs",
    "search": "gpuready.verbs",
}
_ELSEWHERE = {"load_extension": "load"}
_ROOMS = ("check", "diagnose", "fit", "plan", "probe", "prove")
"""Commands that are also packages: the module itself is made callable, so both uses of the name work."""


def __getattr__(name: str) -> Any:
    """Import a public name on first access."""
    if name in _ROOMS:
        return __import__(f"gpuready.{name}", fromlist=["__name__"])
    if name not in _PUBLIC:
        raise AttributeError(f"module 'gpuready' has no attribute {name!r}")
    return getattr(__import__(_PUBLIC[name], fromlist=[name]), _ELSEWHERE.get(name, name))


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC, *_ROOMS})


class _Room(ModuleType):
    """A package that can be called as its command: ``gpuready.fit("llama-3.1-8b", on="h100")``."""

    def __call__(self, *args: Any, **named: Any) -> Any:
        from gpuready import verbs

        return getattr(verbs, self.__name__.rpartition(".")[2])(*args, **named)


class _House(ModuleType):
    """This package. Importing a command's package sets it as an attribute here, which makes it callable."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _ROOMS and type(value) is ModuleType:
            value.__class__ = _Room
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _House
