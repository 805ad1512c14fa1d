"""An extension was built without this GPU.

torch itself has kernels for the GPU, and an extension has none: it was compiled on another machine, or with a
``TORCH_CUDA_ARCH_LIST`` that leaves the card out, or its wheel is older than the card. The first kernel of the extension
that is launched fails with *no kernel image is available* or *invalid device function*, and the traceback goes through its files.

Rebuild the extension where the GPU is seen, or name its capability in ``TORCH_CUDA_ARCH_LIST``. It is no case of this when torch
warns at the start that it does not know the GPU: then torch is the one to be replaced.
"""

from __future__ import annotations

from gpuready.rules import log_findings
from gpuready.rules.log_phrases import EXTENSION_FRAMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "PKG025"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    {
        "says": "no kernel image is available for execution on the device",
        "with": EXTENSION_FRAMES,
        "unless": ("is not compatible with the current PyTorch",),
    },
    {
        "says": "no kernel image is available for execution on the device at line",
        "unless": ("is not compatible with the current PyTorch",),
    },
    {"says": "CUDA error: invalid device function", "with": EXTENSION_FRAMES},
    {"says": "CUDA error: named symbol not found", "with": EXTENSION_FRAMES, "as": "clue"},
    {"says": "was not compiled for the current GPU"},
    {"says": "is not compiled with support for this GPU"},
    {"says": "has no kernel image for compute capability"},
    {"says": "no device kernel image was found{}compiled for", "as": "clue"},
    {
        "says": "CUDA Error: no kernel image is available for execution on the device",
        "unless": ("is not compatible with the current PyTorch",),
    },
    {"says": "failed with error code no kernel image is available for execution on the device"},
    {
        "says": "no kernel image is available for execution on the device",
        "with": (
            "sgl_kernel",
            "flashinfer",
            "turbomind",
            "lmdeploy",
            "TurboMind",
            "ggml",
            "mamba_ssm",
            "causal_conv1d",
            "apex/",
            "transformer_engine",
            "deep_gemm",
            "exllama",
            "awq_ext",
            "gptq",
        ),
        "unless": ("is not compatible with the current PyTorch",),
    },
    {
        "says": "CUDA kernel failed : no kernel image is available",
        "unless": ("is not compatible with the current PyTorch",),
    },
    {"says": "GPUassert: no kernel image is available", "unless": ("is not compatible with the current PyTorch",)},
    {
        "says": "cudaCheckError() failed : no kernel image is available",
        "unless": ("is not compatible with the current PyTorch",),
    },
    {
        "says": "error in {kernel}: no kernel image is available",
        "with": ("error in ",),
        "unless": ("is not compatible with the current PyTorch",),
    },
    {"says": "CUDA kernel failed : invalid device function"},
    {"says": "GPUassert: invalid device function"},
    {"says": "Warp CUDA error 209: no kernel image is available"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
