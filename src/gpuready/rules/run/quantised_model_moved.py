"""A quantised model was moved.

Weights of 8 or 4 bits are packed for the device that they were loaded on, with their scales beside them. Moving or casting such a
model afterwards, by .to(), .cuda() or .half(), in a trainer, in DeepSpeed, or in a script that was written for plain weights, would
break it, and transformers refuses.

Place it while loading (device_map={"": LOCAL_RANK}) and leave it there. An accelerate or transformers that is older than the other
calls .to() itself: update both.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "RUN015"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    "`.to` is not supported for",
    "is not supported for `4-bit` or `8-bit`",
    "is not supported for `8-bit` models",
    "is not supported for `4-bit` models",
    {"says": "`.half()` is not supported for"},
    {"says": "`.float()` is not supported for"},
    {"says": "Calling `cuda()` is not supported for"},
    {"says": "Calling `to()` is not supported for"},
    "is not supported for HQQ-quantized models",
    "is not supported for quantized models",
    "You cannot cast a GPTQ model in a new `dtype`",
    "You cannot cast a bitsandbytes model in a new `dtype`",
    {"says": "You cannot cast a {kind} model in a new `dtype`"},
    {"says": "You are trying to move a quantized model", "in": "exception"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
