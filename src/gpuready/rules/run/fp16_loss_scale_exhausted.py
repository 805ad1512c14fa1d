"""The loss scale of fp16 came to its end.

Training in fp16 scales the loss, and halves the scale each time that a gradient overflows. A few halvings at the beginning are
usual. Here every step overflowed until the scale came to its smallest value: activations or gradients do not fit into fp16, because
the model was made for bf16, the learning rate is too high, or the data or the weights have broken values.

Train in bf16 or fp32, lower the learning rate, and check the data. A single line that tells of a skipped step is no failure.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "RUN012"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    "Current loss scale already at minimum - cannot decrease scale anymore",
    "loss scale already at minimum",
    "Minimum loss scale reached",
    "Reached minimum loss scale",
    {"says": "Too many consecutive overflow", "as": "root"},
    {"says": "consecutive iterations with NaN{}loss scale", "as": "root"},
    {"says": "loss_scale has reached its minimum", "as": "root"},
    {"says": "OVERFLOW! Rank {rank} Skipping step. Attempted loss scale: {from}, reducing to", "as": "trace"},
    {
        "says": "OVERFLOW! Rank {rank} Skipping step. Attempted loss scale: {from}, reducing to {to}",
        "when": "from <= 1",
        "as": "clue",
    },
    {
        "says": "Overflow detected. Skipping step. Attempted loss scale: {from}, reducing to {to}",
        "when": "from <= 1",
        "as": "clue",
    },
    {"says": "Gradient overflow. Skipping step, loss scaler {} reducing loss scale to {to}", "when": "to < 0.001"},
    {"says": "Loss scale is at its minimum"},
    {"says": "Minimum loss scale ({}) reached"},
    {"says": "FloatingPointError: Minimum loss scale reached"},
    {"says": "cannot decrease scale anymore"},
    {"says": "overflow detected, setting loss scale to: {to}", "when": "to < 0.01"},
    {"says": "gradient overflow detected, ignoring gradient, setting loss scale to: {to}", "when": "to < 0.01"},
    {"says": "overflow detected, setting loss scale to: ", "as": "trace"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
