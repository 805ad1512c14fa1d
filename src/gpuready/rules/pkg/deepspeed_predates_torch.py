"""The installed DeepSpeed is older than this torch allows.

DeepSpeed reaches into parts of torch that are not public. Some of them are gone from newer releases: ``torch._six`` since 2.0, the logger of the elastic
agent since 2.3. A DeepSpeed from before that fails while it is imported, before any training begins, and everything that only looks whether
DeepSpeed is there (accelerate, transformers) fails with it.

Upgrade DeepSpeed to a release that is newer than the torch, or go back to the torch that it was written for. A kernel that DeepSpeed cannot build
is another matter.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "PKG031"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    {"says": "No module named 'torch._six'", "in": "exception"},
    {"says": "No module named 'torch._six'"},
    {"says": "from 'torch.distributed.elastic.agent.server.api'", "in": "exception"},
    {"says": "cannot import name '{name}' from 'torch", "in": "exception", "with": ("/deepspeed/", "\\deepspeed\\")},
    {"says": "module 'torch{}' has no attribute", "in": "exception", "with": ("/deepspeed/", "\\deepspeed\\")},
    {"says": "No module named 'torch.", "in": "exception", "with": ("/deepspeed/", "\\deepspeed\\")},
    {"says": "DeepSpeed requires torch >=", "in": "exception"},
    {
        "says": "deepspeed{}is required for a normal functioning of this module, but found deepspeed==",
        "in": "exception",
    },
    {"says": "from 'torch.distributed.elastic.agent.server.api'", "as": "clue"},
    {"says": "DeepSpeed ops were compiled and installed with a different version than what is being used at runtime"},
    {"says": "PyTorch version mismatch! DeepSpeed ops"},
    {"says": "CUDA version mismatch! DeepSpeed ops"},
    {"says": "requires torch {}", "in": "exception", "with": ("deepspeed",)},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
