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
    from gpuready.extensions.adamw_kernels import BUNDLED_EXTENSIONS, AdamWSettings, AdamWTensors, load_adamw
    from gpuready.extensions.assessment import BuildAssessment, BuildEnvironment, assess_build
    from gpuready.extensions.build_environment import read_build_environment
    from gpuready.extensions.loader import LoadedExtension, load_extension
    from gpuready.extensions.prebuild import build_extensions
    from gpuready.extensions.recipe import CannotBuild, Extension

__all__ = [
    "BUNDLED_EXTENSIONS",
    "AdamWSettings",
    "AdamWTensors",
    "BuildAssessment",
    "BuildEnvironment",
    "CannotBuild",
    "Extension",
    "LoadedExtension",
    "assess_build",
    "build_extensions",
    "load_adamw",
    "load_extension",
    "read_build_environment",
]

_LAZY_MODULES = {
    "BUNDLED_EXTENSIONS": "adamw_kernels",
    "CannotBuild": "recipe",
    "Extension": "recipe",
    "BuildEnvironment": "assessment",
    "LoadedExtension": "loader",
    "BuildAssessment": "assessment",
    "AdamWTensors": "adamw_kernels",
    "AdamWSettings": "adamw_kernels",
    "load_adamw": "adamw_kernels",
    "build_extensions": "prebuild",
    "load_extension": "loader",
    "read_build_environment": "build_environment",
    "assess_build": "assessment",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY_MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(__import__(f"{__name__}.{_LAZY_MODULES[name]}", fromlist=[name]), name)
