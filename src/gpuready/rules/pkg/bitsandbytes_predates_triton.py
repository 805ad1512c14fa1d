"""The installed bitsandbytes is older than this Triton allows.

bitsandbytes before 0.45 imports ``triton.ops``, a module that Triton removed in 3.2. The import fails as soon as anything imports bitsandbytes:
peft, transformers with a quantisation, or an optimiser of eight bits. torch brings Triton along, so an upgrade of torch is enough to bring
the two apart, although neither package was touched by hand.

Upgrade bitsandbytes to 0.45 or newer. A Triton that is not installed at all is no case of this.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "PKG030"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    {"says": "No module named 'triton.ops'", "in": "exception"},
    {"says": "No module named 'triton.ops"},
    {"says": "cannot import name '{name}' from 'triton", "in": "exception", "with": ("bitsandbytes",)},
    {"says": "has no attribute 'libdevice'", "in": "exception", "with": ("bitsandbytes",)},
    {"says": "has no attribute 'llrint'", "in": "exception", "with": ("bitsandbytes",)},
    {"says": "module 'triton' has no attribute", "in": "exception", "with": ("bitsandbytes",)},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
