"""Extensions: kernels with a plain C interface, built ahead of time or on first use, loaded without torch's
headers.

    from gpuready import extensions

    mine = extensions.Extension("scale", ("scale.cu",))
    scale = extensions.load_extension(mine, torch=torch).function("scale", "pqfp")
    scale(x.data_ptr(), x.numel(), 2.0, torch.cuda.current_stream().cuda_stream)
"""

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
