"""Files of the command line that another user may change."""

from __future__ import annotations

from gpuready import system
from gpuready.workflow.refusal import call_or_refuse


def explain_foreign_file(host: system.HostAccess, flag: str, path: str | None) -> str:
    """Say why root refuses a file: another user may change it, and so what root installs. Empty where it is safe."""
    if path is None or host.get_user().get("uid") != 0:
        return ""
    status = call_or_refuse(host.stat_path, path)
    if status is None or status["kind"] != "file":
        return ""  # reading it reports the error
    if status["uid"]:
        reason = f"belongs to uid {status['uid']}, who"
    elif status["mode"] & 0o002:
        reason = "may be written by everybody, and so anybody"
    else:
        return ""
    return (
        f"{flag} {path} {reason} could change what root installs: install as that file's owner, "
        "or look at it and give a copy of your own (cp)"
    )
