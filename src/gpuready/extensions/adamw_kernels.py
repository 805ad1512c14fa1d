"""The kernels bundled with gpuready: AdamW over many tensors, on the GPU and on the CPU."""

from __future__ import annotations

from gpuready.extensions import loader
from gpuready.extensions.recipe import CannotBuild, Extension
from gpuready.model import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

SOURCES_FOLDER = f"{__file__.rpartition('/')[0]}/sources"
DTYPE_CODES = {"float32": 0, "bfloat16": 1, "float16": 2}
INSTRUCTION_SETS = {1: "plain", 2: "AVX2", 3: "AVX-512"}

ADAMW_CUDA = Extension(
    "gpuready_adamw_cuda",
    (f"{SOURCES_FOLDER}/adamw.cu",),
    (f"{SOURCES_FOLDER}/adamw.h",),
    flags=("-fvisibility=hidden",),
)
ADAMW_CPU = Extension(
    "gpuready_adamw_cpu",
    (f"{SOURCES_FOLDER}/adamw.cpp",),
    (f"{SOURCES_FOLDER}/adamw.h",),
    flags=("-fvisibility=hidden", "-fno-math-errno", "-fno-trapping-math"),
    openmp=True,
)
BUNDLED_EXTENSIONS = (ADAMW_CUDA, ADAMW_CPU)


class AdamWSettings(Record):
    """Hyperparameters of one AdamW step, and its number (the first is 1)."""

    lr: float
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    step: int = 1
    scale: float = 1.0  # factor applied to the gradient
    decoupled: bool = True
    maximize: bool = False


class AdamWTensors(Record):
    """Tensors of one kind: addresses of parameters, gradients and both states, and the element count of each."""

    parameters: Sequence[int]
    gradients: Sequence[int]
    first: Sequence[int]
    second: Sequence[int]
    sizes: Sequence[int]
    kinds: tuple[str, str, str]  # of parameters, gradients, states: float32, bfloat16, float16


class AdamWKernel:
    """The kernel for one device kind (cuda, cpu), called with addresses."""

    def __init__(self, loaded: loader.LoadedExtension, device: str):
        self.loaded, self.device = loaded, device
        name = f"gpuready_adamw_{device}"
        self._step = loaded.function(name, "qpppppiiipi" + ("p" if device == "cuda" else "i"))

    def step(self, rows: AdamWTensors, settings: AdamWSettings, where: int = 0, how: int = 0) -> None:
        """Run one step. On cuda ``where`` is the device index and ``how`` a stream; on cpu thread count and
        instruction set.
        """
        from array import array

        pointers = (rows.parameters, rows.gradients, rows.first, rows.second)
        tables = [array("Q", column) for column in pointers] + [array("q", rows.sizes)]
        hyper = array("d", _pack_settings(settings))
        kinds = [DTYPE_CODES[kind] for kind in rows.kinds]
        at = [table.buffer_info()[0] for table in tables]
        code = self._step(len(rows.sizes), *at, *kinds, hyper.buffer_info()[0], where, how)
        if code:
            raise CannotBuild(self._error_message(code, rows))

    def _error_message(self, code: int, rows: AdamWTensors) -> str:
        if code == (-1 if self.device == "cuda" else 1):
            what = "parameters in {}, gradients in {} and states in {}".format(*rows.kinds)
            return f"the AdamW kernel is not compiled for {what}"
        if self.device == "cpu":
            return "this processor does not have the instruction set that was asked for"
        describe_error: Callable[..., Any] = self.loaded.function("gpuready_cuda_says", "i", "s")
        return f"the AdamW kernel could not be launched: {describe_error(code).decode()}"

    def instruction_set(self) -> str:
        """Return the instruction set used on this processor; empty on cuda."""
        return (
            INSTRUCTION_SETS[self.loaded.function("gpuready_adamw_cpu_flavour", "")()] if self.device == "cpu" else ""
        )

    def has_openmp(self) -> bool:
        """Whether it was compiled with OpenMP."""
        return self.device == "cpu" and bool(self.loaded.function("gpuready_adamw_cpu_threaded", "")())


def _pack_settings(s: AdamWSettings) -> list[float]:
    flags = (1 if s.decoupled else 0) | (2 if s.maximize else 0)
    return [s.lr, s.beta1, s.beta2, s.eps, s.weight_decay, float(s.step), s.scale, float(flags)]


def load_adamw(device: str, torch: Any = None, arch: str = "") -> AdamWKernel:
    """Load the AdamW kernel of a device kind: prebuilt, cached or built now. CannotBuild says why it failed."""
    return AdamWKernel(loader.load_extension(ADAMW_CUDA if device == "cuda" else ADAMW_CPU, torch, arch), device)
