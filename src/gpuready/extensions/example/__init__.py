"""The example that comes with gpuready: saxpy for the GPU and the CPU, which proofs and BUILD_EXT=1 build."""

from gpuready.extensions.recipe import Extension

_FOLDER = __file__.rpartition("/")[0]
SAXPY_ARGUMENTS = "qfppp"
"""Of ``saxpy``: count, factor, addresses of x and y, stream."""

SAXPY_CUDA = Extension("gpuready_saxpy_cuda", (f"{_FOLDER}/saxpy.cu",))
SAXPY_CPU = Extension("gpuready_saxpy_cpu", (f"{_FOLDER}/saxpy.cpp",))
EXAMPLE_EXTENSIONS = (SAXPY_CUDA, SAXPY_CPU)
