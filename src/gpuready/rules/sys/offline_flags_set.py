"""The hub is not asked, because a variable says so.

HF_HUB_OFFLINE=1 (or TRANSFORMERS_OFFLINE=1, its older name) keeps the Hugging Face libraries from the
network: only what is in the cache can be loaded. That is right on nodes without a way out, and spares the
look for newer files. It is a trap where it was left over from an earlier job: a model that is not in the
cache then fails with ``offline mode is enabled`` or, less clearly, with a file that cannot be found.

This is a line of information. Unset the variable to download something, or download it first on a machine
that may: ``hf download MODEL``.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement

CODE = "SYS010"
SEVERITY = "info"
READS = ("hub.offline", "hub.cache")
BROKEN = {"hub.offline": True, "hub.cache": "/home/ada/.cache/huggingface/hub"}
HEALTHY = BROKEN | {"hub.offline": False}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "hub.offline" not in facts or not facts.value("hub.offline"):
        return None
    cite = "huggingface_hub, environment variables, HF_HUB_OFFLINE"
    return Finding(
        CODE,
        SEVERITY,
        "the hub is not asked (HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE): only cached models load",
        found=(facts.fact("hub.offline"), facts.fact("hub.cache")),
        needs=(Requirement("hub.offline", "false", level="optional", cite=cite),),
        so="a model or dataset that is not in the cache cannot be loaded",
        fix=(FixStep("unset HF_HUB_OFFLINE and TRANSFORMERS_OFFLINE to download something"),),
    )
