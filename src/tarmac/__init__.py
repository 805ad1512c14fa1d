"""tarmac: from a bare GPU machine to one proven ready for an LLM framework."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0.dev0"
_PUBLIC = {
    "configure": "tarmac.runtime.configure",
    "launch": "tarmac.runtime.launch",
    "launch_from_torch": "tarmac.runtime.launch",
    "launch_from_slurm": "tarmac.runtime.launch",
    "launch_from_openmpi": "tarmac.runtime.launch",
}


def __getattr__(name: str) -> Any:
    """The public names, each imported when it is first asked for."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'tarmac' has no attribute {name!r}")
    return getattr(__import__(_PUBLIC[name], fromlist=[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
