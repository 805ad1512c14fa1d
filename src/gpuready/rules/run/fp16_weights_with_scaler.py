"""The trained weights are fp16, which a gradient scaler refuses.

A gradient scaler multiplies the loss so that small gradients survive in fp16, and divides them again before the step. It does so on
gradients in fp32. Where the trained weights themselves were loaded in fp16, their gradients are fp16 too, and torch refuses.

Load the trained weights in fp32 (with LoRA: the adapters) and let autocast compute in fp16, or train in bf16 without a scaler. Frozen
weights may stay in fp16.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "RUN011"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    "Attempting to unscale FP16 gradients",
    "Attempting to unscale fp16 Gradients",
    "Attempting to unscale FP16 Gradients",
    {"says": "Attempting to unscale a grad with type {type} Unscaling non-fp32 grads", "as": "clue"},
    {"says": "Unscaling non-fp32 grads may indicate an error", "as": "clue"},
    {"says": "_amp_foreach_non_finite_check_and_unscale_cuda\" not implemented for 'BFloat16'"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
