"""tarmac: from a bare GPU machine to one proven ready for an LLM framework."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    from tarmac import verbs
    from tarmac.answer import Answer as Answer
    from tarmac.verbs import Refused as Refused
    from tarmac.verbs import bench as bench
    from tarmac.verbs import contract as contract
    from tarmac.verbs import env as env
    from tarmac.verbs import explain as explain
    from tarmac.verbs import report as report
    from tarmac.verbs import search as search

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
    "configure": "tarmac.runtime.configure",
    "launch": "tarmac.runtime.launch",
    "launch_from_torch": "tarmac.runtime.launch",
    "launch_from_slurm": "tarmac.runtime.launch",
    "launch_from_openmpi": "tarmac.runtime.launch",
    "FusedAdamW": "tarmac.runtime.optimizers",
    "CPUAdam": "tarmac.runtime.optimizers",
    "load_extension": "tarmac.extensions",
    "Answer": "tarmac.answer",
    "Refused": "tarmac.workflow.refusal",
    "bench": "tarmac.verbs",
    "contract": "tarmac.verbs",
    "env": "tarmac.verbs",
    "explain": "tarmac.verbs",
    "report": "tarmac.verbs",
    "search": "tarmac.verbs",
}
_ELSEWHERE = {"load_extension": "load"}
_ROOMS = ("check", "diagnose", "fit", "plan", "probe", "prove")
"""Commands whose names are also rooms: the room itself is made callable, so that both readings of the name hold."""


def __getattr__(name: str) -> Any:
    """The public names, each imported when it is first asked for."""
    if name in _ROOMS:
        return __import__(f"tarmac.{name}", fromlist=["__name__"])
    if name not in _PUBLIC:
        raise AttributeError(f"module 'tarmac' has no attribute {name!r}")
    return getattr(__import__(_PUBLIC[name], fromlist=[name]), _ELSEWHERE.get(name, name))


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC, *_ROOMS})


class _Room(ModuleType):
    """A room that is called as the command of its name: ``tarmac.fit("llama-3.1-8b", on="h100")``."""

    def __call__(self, *args: Any, **named: Any) -> Any:
        from tarmac import verbs

        return getattr(verbs, self.__name__.rpartition(".")[2])(*args, **named)


class _House(ModuleType):
    """This package. An import hands each room to it here, which is where the room becomes callable."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _ROOMS and type(value) is ModuleType:
            value.__class__ = _Room
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _House
