"""The compiled path of Transformer Engine fails.

Transformer Engine fuses small functions (bias with GELU, dropout, corrections of the softmax) with ``torch.compile``, as soon as its first layer runs.
Where Dynamo, Inductor or Triton do not go with this Python or this torch, or have no compiler to work with, that fusion fails, and the whole
layer with it, although the kernels of Transformer Engine themselves are in order.

``NVTE_TORCH_COMPILE=0`` turns the fusion off at little cost. A failure of ``torch.compile`` in the user's own model, without files of
Transformer Engine in the traceback, is no case of this.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "PKG033"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    "BackendCompilerFailed.__init__() missing 1 required positional argument",
    {"says": "torch._dynamo.exc.", "in": "exception", "with": ("transformer_engine",)},
    {"says": "torch._inductor.exc.", "in": "exception", "with": ("transformer_engine",)},
    {"says": "BackendCompilerFailed", "in": "exception", "with": ("transformer_engine",)},
    {"says": "InternalTorchDynamoError", "in": "exception", "with": ("transformer_engine",)},
    {"says": "Dynamo is not supported", "in": "exception", "with": ("transformer_engine",)},
    {"says": "torch.compile is not supported", "in": "exception", "with": ("transformer_engine",)},
    {
        "says": "transformer_engine/pytorch/jit.py",
        "with": ("torch/_dynamo", "torch/_inductor", "torch.compile", "torch/jit"),
    },
    {"says": "Segmentation fault", "with": ("transformer_engine/pytorch/jit.py", "bias_gelu_fused_", "jit_fuser")},
    {"says": "set NVTE_TORCH_COMPILE=0", "as": "clue"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
