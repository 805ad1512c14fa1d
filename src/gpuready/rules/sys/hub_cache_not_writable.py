"""The folder of downloaded models cannot be written.

## What it checks
Whether this user can write to the Hugging Face cache: HF_HUB_CACHE, else ``hub`` in HF_HOME, else
~/.cache/huggingface/hub. Nothing is reported with HF_HUB_OFFLINE=1 or if the job names its own folder.

## Why it matters
Downloads fail with ``Permission denied``. Remote code and locks fail even for models that are already there.
Usual reasons: another user created the folder, a read-only mount, or a container's home owned by root.

## How to fix
Set HF_HOME to a folder of your own, or have the owner changed. For a read-only shared cache that is complete,
set HF_HUB_OFFLINE=1.

## References
- huggingface_hub, environment variables, HF_HUB_CACHE
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import job_request

CODE = "SYS008"
SEVERITY = "warning"
READS = ("hub.writable", *job_request.HUB_READS)
BROKEN = {"hub.writable": False, "hub.cache": "/models/hub", "hub.offline": False}
HEALTHY = BROKEN | {"hub.writable": True}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "hub.writable" not in facts:
        return None
    if facts.value("hub.writable") is not False or not job_request.may_download_model(facts):
        return None
    cite = "huggingface_hub, environment variables, HF_HUB_CACHE"
    return make_finding(
        "this user cannot write to the folder of downloaded models",
        found=(facts.fact("hub.writable"), facts.fact("hub.cache")),
        needs=(Requirement("hub.writable", "true", level="recommended", cite=cite),),
        so="new models and datasets cannot be downloaded",
        fix=(
            FixStep("set HF_HOME to a folder of this user"),
            FixStep("set HF_HUB_OFFLINE=1 if the folder is shared and complete"),
        ),
    )
