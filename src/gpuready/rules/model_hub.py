"""Whether a model has to be downloaded from the hub."""

from __future__ import annotations

from gpuready.model import Facts

READS = ("hub.cache", "hub.offline", "job.model")
LOCAL_PREFIXES = ("/", "./", "../", "~")


def may_download_model(facts: Facts) -> bool:
    """Return whether the hub may be used and the job does not name a local folder."""
    if facts.value("hub.offline"):
        return False
    model = facts.value("job.model") if "job.model" in facts else None
    return model is None or not str(model).startswith(LOCAL_PREFIXES)
