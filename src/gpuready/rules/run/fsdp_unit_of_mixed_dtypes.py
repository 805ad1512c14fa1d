"""A unit of FSDP has parameters of different dtypes.

FSDP joins the parameters of one unit into a single flat tensor, which has one dtype. Adapters in fp32 beside weights in bf16, a norm
that was kept in fp32, or quantised weights whose storage is uint8 give a unit more than one, and wrapping fails.

Load everything in one dtype, cast the adapters, and for quantised weights set bnb_4bit_quant_storage to the dtype of the rest. Mixed
precision of FSDP itself is set in its policy, not in the weights.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "RUN013"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    "Must flatten tensors with uniform dtype but got",
    "Must flatten tensors with the same dtype",
    {"says": "Must flatten tensors {} dtype"},
    "FSDP expects uniform original parameter dtype",
    "FSDP expects all parameters to have the same dtype",
    "expects uniform dtype but got",
    "Cannot flatten integer dtype tensors",
    {"says": "parameters to have uniform dtype", "in": "exception"},
    {"says": "FSDP{}must have the same original dtype", "in": "exception"},
    {"says": "All parameters in a bucket must have the same dtype", "in": "exception"},
    {
        "says": "same dtype",
        "in": "exception",
        "with": ("_flat_param.py", "flat_param.py", "_fsdp_param_group.py", "_fsdp_collectives.py"),
    },
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
