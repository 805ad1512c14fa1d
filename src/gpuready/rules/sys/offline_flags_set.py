"""A variable keeps the Hugging Face libraries offline.

## What it checks
Whether HF_HUB_OFFLINE=1 or TRANSFORMERS_OFFLINE=1 (its older name) is set. It is information.

## Why it matters
Only cached models and datasets can be loaded. That is right on nodes without network access. Left over from
an earlier job, it makes a model that is not cached fail with ``offline mode is enabled`` or a file that
cannot be found.

## How to fix
Unset the variable to download something, or download it on another machine with ``hf download MODEL``.

## References
- huggingface_hub, environment variables, HF_HUB_OFFLINE
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding

CODE = "SYS010"
SEVERITY = "info"
READS = ("hub.offline", "hub.cache")
REQUIRED_FACTS = ("hub.offline",)
BROKEN = {"hub.offline": True, "hub.cache": "/home/ada/.cache/huggingface/hub"}
HEALTHY = BROKEN | {"hub.offline": False}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "hub.offline" not in facts or not facts.value("hub.offline"):
        return None
    cite = "huggingface_hub, environment variables, HF_HUB_OFFLINE"
    return make_finding(
        "offline mode is on (HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE): only cached models load",
        found=(facts.fact("hub.offline"), facts.fact("hub.cache")),
        needs=(Requirement("hub.offline", "false", level="optional", cite=cite),),
        so="a model or dataset that is not in the cache cannot be loaded",
        fix=(FixStep("unset HF_HUB_OFFLINE and TRANSFORMERS_OFFLINE to download something"),),
    )
