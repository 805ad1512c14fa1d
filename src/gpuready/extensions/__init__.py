"""Extensions: kernels with a plain C interface, built ahead of time or on first use, loaded without torch's
headers.

    from gpuready import extensions

    mine = extensions.Extension("scale", ("scale.cu",))
    scale = extensions.load_extension(mine, torch=torch).function("scale", "pqfp")
    scale(x.data_ptr(), x.numel(), 2.0, torch.cuda.current_stream().cuda_stream)

The names below are imported on first access.
"""

from __future__ import annotations

from importlib import import_module

from gpuready.extensions.assessment import BuildAssessment, BuildEnvironment, assess_build
from gpuready.extensions.build_environment import read_build_environment
from gpuready.extensions.loader import LoadedExtension, load_extension
from gpuready.extensions.prebuild import build_extensions
from gpuready.extensions.recipe import CannotBuild, Extension, read_recipe

__all__ = [
    "BuildAssessment",
    "BuildEnvironment",
    "CannotBuild",
    "Extension",
    "LoadedExtension",
    "assess_build",
    "build_extensions",
    "load_extension",
    "read_build_environment",
    "read_recipe",
]

_LAZY_NAMES = {
    "assessment": ("BuildAssessment", "BuildEnvironment", "assess_build"),
    "build_environment": ("read_build_environment",),
    "loader": ("LoadedExtension", "load_extension"),
    "prebuild": ("build_extensions",),
    "recipe": ("CannotBuild", "Extension", "read_recipe"),
}


def __getattr__(name: str) -> object:
    for module, names in _LAZY_NAMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
