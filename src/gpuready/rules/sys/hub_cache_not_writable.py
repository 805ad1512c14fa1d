"""The folder of downloaded models cannot be written.

Models, tokenizers and datasets of the Hugging Face hub are kept in one folder: HF_HUB_CACHE, else ``hub``
below HF_HOME, else ~/.cache/huggingface/hub. Where the user may not write there (another user made it, the
disk is mounted read-only, the home of a container belongs to root), a download ends with ``Permission
denied``, and remote code and locks fail even for models that are there.

A shared folder that is read-only on purpose is fine as long as everything is in it: then set
HF_HUB_OFFLINE=1, and nothing is said here. Nothing is said either of a job that names a folder of its own.
Otherwise point HF_HOME to a folder of yours, or have the owner changed.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement
from gpuready.rules import model_hub

CODE = "SYS008"
SEVERITY = "warning"
READS = ("hub.writable", *model_hub.READS)
BROKEN = {"hub.writable": False, "hub.cache": "/models/hub", "hub.offline": False}
HEALTHY = BROKEN | {"hub.writable": True}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "hub.writable" not in facts:
        return None
    if facts.value("hub.writable") is not False or not model_hub.may_download_model(facts):
        return None
    cite = "huggingface_hub, environment variables, HF_HUB_CACHE"
    return Finding(
        CODE,
        SEVERITY,
        "the folder of downloaded models cannot be written by this user",
        found=(facts.fact("hub.writable"), facts.fact("hub.cache")),
        needs=(Requirement("hub.writable", "true", level="recommended", cite=cite),),
        so="models and datasets that are not there yet cannot be downloaded",
        fix=(
            FixStep("point HF_HOME to a folder of this user"),
            FixStep("set HF_HUB_OFFLINE=1 if the folder is shared and everything is in it"),
        ),
    )
