"""The KV cache does not fit.

An engine that serves (vLLM, SGLang, the rollout of an RLHF framework) loads the weights, measures one pass, and gives the
rest of its share of the GPU to the cache of keys and values. Here the rest is less than one request of the longest allowed
length needs, or nothing at all. The context that a model announces (128k and more) is reserved unless a shorter one is asked for.

Ask for a shorter context, give the engine a larger share (gpu_memory_utilization, mem-fraction-static), spread the model over more
GPUs, or quantise it. Memory that another process holds before the engine starts is another matter (MEM002).
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "MEM005"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    "is larger than the maximum number of tokens that can be stored in KV cache",
    "To serve at least one request with the model",
    "KV cache is needed, which is larger than the available KV cache memory",
    "No available memory for the cache blocks",
    "Not enough memory. Please try to increase --mem-fraction-static",
    "Not enough memory. Please try increasing --mem-fraction-static",
    "Not enough memory; Please try to increase --mem-fraction-static",
    "Please increase --mem-fraction-static",
    "Not enough GPU memory for KV cache",
    "Insufficient memory for KV cache",
    "Not enough memory to handle {tokens} prefill tokens",
    "Not enough memory to handle `max_total_tokens`",
    "Not enough memory to allocate {} KV cache",
    {"says": "Available KV cache memory: -", "as": "clue"},
    {"says": "# GPU blocks: 0,", "as": "clue"},
    {"says": "The estimated maximum model length is", "as": "trace"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
