"""The huggingface_hub that is installed does not go with its users.

transformers, datasets, diffusers and peft all talk to the hub through huggingface_hub, and each of them is written for a range of its releases.
Names were removed (``cached_download``, ``HfFolder``) and modules were added (``huggingface_hub.errors``), so a client from outside the
range fails as soon as its user is imported: a name cannot be imported, a module is not there, or the version check of transformers refuses.

Install the range that is named, in one step with its users, so that the resolver sees all of them. A hub that cannot be reached is another
matter.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "PKG027"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    {"says": "cannot import name '{name}' from 'huggingface_hub", "in": "exception"},
    {"says": "No module named 'huggingface_hub.{name}'", "in": "exception"},
    {"says": "huggingface-hub{}is required for a normal functioning of this module, but found", "in": "exception"},
    {"says": "huggingface_hub{}is required for a normal functioning of this module, but found", "in": "exception"},
    {"says": "module 'huggingface_hub' has no attribute", "in": "exception"},
    {"says": "module 'huggingface_hub.{}' has no attribute", "in": "exception"},
    {"says": "No huggingface_hub attribute", "in": "exception"},
    {"says": "hf_hub_download() got an unexpected keyword argument", "in": "exception"},
    {"says": "snapshot_download() got an unexpected keyword argument", "in": "exception"},
    {"says": "cached_download() got an unexpected keyword argument", "in": "exception"},
    {"says": "HfApi.{} got an unexpected keyword argument", "in": "exception"},
    {"says": "HfFileSystem.{} got an unexpected keyword argument", "in": "exception"},
    {"says": "'HfFolder' object has no attribute", "in": "exception"},
    {"says": "type object 'HfFolder' has no attribute", "in": "exception"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
