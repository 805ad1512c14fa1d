"""The installed peft or accelerate does not go with transformers.

transformers hands the work to accelerate, and adapters to peft, through interfaces that all three change together. With releases of different
times a name cannot be imported, a constructor gets an argument that it does not know, or the check of transformers refuses the version outright. An
adapter that was saved by a newer peft fails the same way in an older one: its configuration has fields that are unknown there.

Install the three in one step, in the ranges that the framework names. A package that is not installed at all is another matter.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "PKG029"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    {"says": "cannot import name '{name}' from 'accelerate", "in": "exception"},
    {"says": "cannot import name '{name}' from 'peft", "in": "exception"},
    {
        "says": "cannot import name '{name}' from 'transformers",
        "in": "exception",
        "with": ("-packages/peft/", "-packages/accelerate/", "-packages\\peft\\"),
    },
    {"says": "No module named 'accelerate.{name}'", "in": "exception"},
    {"says": "No module named 'peft.{name}'", "in": "exception"},
    {
        "says": "accelerate{}is required for a normal functioning of this module, but found accelerate==",
        "in": "exception",
    },
    {"says": "peft{}is required for a normal functioning of this module, but found peft==", "in": "exception"},
    {"says": "requires `accelerate>=", "in": "exception"},
    {"says": "requires accelerate>=", "in": "exception"},
    {"says": "requires the accelerate library >=", "in": "exception"},
    {"says": "Accelerator.__init__() got an unexpected keyword argument", "in": "exception"},
    {
        "says": "__init__() got an unexpected keyword argument 'dispatch_batches'",
        "in": "exception",
        "with": ("Accelerator(", "accelerate"),
    },
    {"says": "__init__() got an unexpected keyword argument 'use_seedable_sampler'", "in": "exception"},
    {"says": "LoraConfig.__init__() got an unexpected keyword argument", "in": "exception"},
    {"says": "LoraConfig' got an unexpected keyword argument", "in": "exception"},
    {"says": "PeftConfig.__init__() got an unexpected keyword argument", "in": "exception"},
    {"says": "PeftModel.{} got an unexpected keyword argument", "in": "exception"},
    {
        "says": "__init__() got an unexpected keyword argument",
        "in": "exception",
        "with": ("-packages/peft/config.py", "LoraConfig("),
    },
    {"says": "'AcceleratorState' object has no attribute", "in": "exception"},
    {"says": "'PartialState' object has no attribute", "in": "exception"},
    {"says": "'Accelerator' object has no attribute", "in": "exception"},
    {"says": "module 'accelerate' has no attribute", "in": "exception"},
    {"says": "module 'peft' has no attribute", "in": "exception"},
    {"says": "module 'accelerate.utils' has no attribute", "in": "exception"},
    {"says": "unwrap_model() got an unexpected keyword argument", "in": "exception"},
    {"says": "unexpected keyword argument 'strict'", "in": "exception", "with": ("accelerate",)},
    {"says": "requires peft>=", "in": "exception"},
    {"says": "The version of PEFT you are using is not compatible", "in": "exception"},
    {"says": "version of `accelerate` is too old", "in": "exception"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
