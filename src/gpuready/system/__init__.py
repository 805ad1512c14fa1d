"""The only access to the machine: files, programs, environment, NVML. It can be recorded and replayed.

The names below are resolved on first access, so importing this package costs next to nothing.
"""

from __future__ import annotations

# Not lazy: once loaded, a module of the same name would replace the function.
from gpuready.system.redact import redact, redact_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.system.door import Blind, Door, Ran
    from gpuready.system.isolate import Started, launch, together
    from gpuready.system.keep import private, save
    from gpuready.system.live import Live
    from gpuready.system.tape import Recorder, Replay

__all__ = [
    "Blind",
    "Door",
    "Live",
    "Ran",
    "Recorder",
    "Replay",
    "Started",
    "launch",
    "private",
    "redact",
    "redact_value",
    "save",
    "together",
]

_WHERE = {
    "Blind": "door",
    "Door": "door",
    "Ran": "door",
    "private": "keep",
    "save": "keep",
    "Started": "isolate",
    "launch": "isolate",
    "together": "isolate",
    "Live": "live",
    "Recorder": "tape",
    "Replay": "tape",
}


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = __import__(f"{__name__}.{_WHERE[name]}", fromlist=[name])
    globals()[name] = value = getattr(module, name)
    return value
