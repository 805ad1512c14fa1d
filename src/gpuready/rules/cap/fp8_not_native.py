"""A GPU does not compute in 8-bit floating point.

FP8 matrix products begin with Ada (compute capability 8.9) and Hopper (9.0). Nothing emulates them: below,
``torch._scaled_mm`` and Transformer Engine refuse, and some frameworks quietly compute in another precision
instead. A framework may ask for more than the hardware does; some take FP8 on Hopper and newer alone, and
then that floor counts.

It is an error when the job asks for fp8, and a warning where the framework only recommends such GPUs for it: it
then keeps the weights alone in fp8, or computes in 16 bits. Otherwise it is a line of information, where the
framework offers fp8 and the GPUs lack it. Below the floor, use bf16 on Ampere, fp16 before.
"""

from __future__ import annotations

from gpuready.model import Finding, FixStep
from gpuready.rules import capability_floors, visible_gpus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts

CODE = "CAP002"
SEVERITY = "error"
READS = capability_floors.READS
PATTERNS = (
    "torch._scaled_mm is only supported on CUDA devices with compute capability",
    "Device compute capability 8.9 or higher required for FP8 execution",
    {"says": "Device compute capability {needs} or higher required for FP8"},
    {"says": "Device compute capability {needs} or higher required for MXFP8"},
    "FP8 quantized models is only supported on GPUs with compute capability",
    {"says": "quantization method fp8 is not supported for the current GPU"},
    {"says": "quantization method {} is not supported for the current GPU. Minimum capability: 89"},
    {"says": "quantization method {} is not supported for the current GPU. Minimum capability: 90"},
    {"says": "type fp8e4nv not supported in this architecture"},
    {"says": "fp8e4nv not supported in this architecture"},
    {"says": "fp8 {} not supported in this architecture"},
    {"says": "requires .target sm_89 or higher", "with": ("e4m3", "e5m2", "fp8", "FP8")},
    {"says": "Float8 is only supported on SM89 or later"},
    {"says": "float8 is only supported on", "in": "exception"},
    {"says": "Float8 dtypes are only supported", "in": "exception"},
    {"says": "FP8 is only supported", "in": "exception"},
    {"says": "FP8 is not supported", "in": "exception"},
    {"says": "fp8 is not supported on", "in": "exception"},
    {"says": "does not support FP8", "in": "exception"},
    {"says": "does not support fp8", "in": "exception"},
    {"says": "FP8 training requires", "in": "exception"},
    "fp8e4nv data type is not supported on CUDA arch",
    "fp8e4nv data type is not supported",
    {"says": "data type is not supported on CUDA arch < 89"},
    {"says": "fp8e4b8 data type is not supported"},
    {"says": "type fp8e4nv not supported"},
    {"says": "Unsupported conversion from f8E4M3"},
    {"says": "Conversion from/to f8e4m3nv is only supported on compute capability >= 89"},
    {"says": "only supported on compute capability >= 89"},
    {"says": "compute capability of at least 8.9", "in": "exception"},
    {"says": "compute capability >= 8.9", "in": "exception"},
    {"says": "compute capability >= 89", "in": "exception"},
    {"says": "requires compute capability 8.9", "in": "exception"},
    {"says": "requires GPU with compute capability >= 8.9"},
    {"says": "FP8 quantized models is only supported on GPUs"},
    {"says": "fp8 quantization is only supported", "in": "exception"},
    {"says": "kv_cache_dtype=fp8{}not supported", "in": "exception"},
    {"says": "FP8 E4M3 is not supported"},
    {"says": "does not support FP8 computation"},
    {"says": "fp8 is only supported", "in": "exception"},
    {"says": "\"addmm_cuda\" not implemented for 'Float8_e4m3fn'"},
    {"says": "not implemented for 'Float8_e"},
    {"says": "Your GPU does not have native support for FP8 computation", "as": "clue"},
    {"says": "FP8 is not supported by this device"},
    {"says": "FP8 models require a GPU with Compute Capability {needs} or higher"},
    {"says": "FP8 models require a GPU with compute capability {needs} or higher"},
)
BROKEN = {
    "job.wants": ("fp8",),
    "gpu.count": 1,
    "gpu.visible": (0,),
    "gpu.name": ("NVIDIA A100-SXM4-80GB",),
    "gpu.capability": ("8.0",),
}
HEALTHY = BROKEN | {"gpu.name": ("NVIDIA H100 80GB HBM3",), "gpu.capability": ("9.0",)}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    shortfall = capability_floors.feature_shortfall(facts, contract, "fp8")
    if shortfall is None:
        return None
    requested, floors, old = shortfall
    own = floors[1:]  # the first is from the catalog
    goes_on = bool(own) and all(need.level != "required" for need in own)
    severity = "warning" if goes_on else SEVERITY
    return Finding(
        CODE,
        severity if requested else "info",
        f"{contract.framework} does not compute in fp8 on {visible_gpus.describe_gpus(facts, old, old)}",
        found=(facts.fact("gpu.capability"), facts.fact("gpu.name")),
        needs=tuple(floors),
        so="the job computes in another precision than it was told"
        if goes_on
        else "the job stops where fp8 begins, or runs in another precision than it was told",
        fix=(
            FixStep("ask for bf16, or for fp16 before Ampere"),
            FixStep(f"use GPUs of compute capability {capability_floors.highest_floor(floors)} or newer"),
        ),
    )
