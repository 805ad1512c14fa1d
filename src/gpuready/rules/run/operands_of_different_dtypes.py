"""The operands of one operation have different dtypes.

An operation needs both operands in one dtype, and got two: weights in bf16 and inputs in fp32, adapters in fp32 over a model in
fp16, a cache in another dtype than the query. Usually autocast would have cast them and was not on, as in generate() after training, or
one part of the model was loaded in its own dtype.

Load all parts in the same dtype, run under autocast, or cast where they meet. Labels of a wrong type are the program's own.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "RUN014"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    "mat1 and mat2 must have the same dtype",
    "mat1 and mat2 to have the same dtype",
    "m1 and m2 to have the same dtype",
    "self and mat2 must have the same dtype",
    "must have the same dtype, but got",
    "have the same dtype, but got input",
    {"says": "to have the same dtype, but got", "without": ("_flat_param.py",)},
    "expected scalar type Half but found",
    "expected scalar type BFloat16 but found",
    "expected scalar type Float but found Half",
    "expected scalar type Float but found BFloat16",
    "Expected query, key, and value to have the same dtype",
    "Query/Key/Value should either all have the same dtype",
    "Index put requires the source and destination dtypes match",
    {"says": "Input type ({one}) and bias type ({other}) should be the same"},
    {"says": "Input type (torch.cuda.{one}) and weight type (torch.cuda.{other}) should be the same"},
    {"says": "Input type (float) and weight type ("},
    {"says": "Input type (c10::{one}) and weight type ("},
    {"says": "Input type (CUDA{one}) and weight type (CUDA{other}) should be the same"},
    {"says": "FlashAttention only support fp16 and bf16 data type"},
    {"says": "FlashAttention only supports fp16", "in": "exception"},
    {"says": "Flash attention only supports float16", "in": "exception"},
    {"says": "expected dtype {one} for `{what}` but got dtype", "in": "exception"},
    {"says": "expected input and weight to have the same dtype", "in": "exception"},
    {"says": "tensors are not the same dtype", "in": "exception"},
    {"says": "arguments expected to have the same dtype", "in": "exception"},
    {"says": "All tensors must have the same dtype", "in": "exception"},
    {"says": "source and destination dtypes match", "in": "exception"},
    {"says": "index_copy_(): self and source expected to have the same dtype", "in": "exception"},
    {"says": "scatter(): Expected self.dtype to be equal to src.dtype", "in": "exception"},
    {"says": "expected self and source to have same dtype", "in": "exception"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
