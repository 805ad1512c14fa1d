"""Extensions: kernels with a plain C interface, built ahead of time or on first use, loaded without torch's
headers.

    from gpuready import extensions

    mine = extensions.Extension("scale", ("scale.cu",))
    scale = extensions.load_extension(mine, torch=torch).function("scale", "pqfp")
    scale(x.data_ptr(), x.numel(), 2.0, torch.cuda.current_stream().cuda_stream)

The names below are imported on first access.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.extensions.ahead import build
    from gpuready.extensions.jit import Loaded, load
    from gpuready.extensions.judging import Ground, Outlook, outlook
    from gpuready.extensions.ours import OURS, Rows, Settings, adamw
    from gpuready.extensions.recipe import CannotBuild, Extension
    from gpuready.extensions.sight import look

__all__ = [
    "OURS",
    "CannotBuild",
    "Extension",
    "Ground",
    "Loaded",
    "Outlook",
    "Rows",
    "Settings",
    "adamw",
    "build",
    "load",
    "look",
    "outlook",
]

_WHERE = {
    "OURS": "ours",
    "CannotBuild": "recipe",
    "Extension": "recipe",
    "Ground": "judging",
    "Loaded": "jit",
    "Outlook": "judging",
    "Rows": "ours",
    "Settings": "ours",
    "adamw": "ours",
    "build": "ahead",
    "load": "jit",
    "look": "sight",
    "outlook": "judging",
}


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(__import__(f"{__name__}.{_WHERE[name]}", fromlist=[name]), name)
