"""Why an install failed, in one sentence; disk errors by their errno name."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuready.model import Report
    from gpuready.model.plan import InstallFault
    from gpuready.system import RunResult


class InstallFailed(Exception):
    """The install failed and the old environment is unchanged. ``exit``: 1 not fit, 2 could not be made."""

    def __init__(self, message: str, exit: int = 2, report: Report | None = None, faults: Sequence[InstallFault] = ()):
        super().__init__(message)
        self.exit, self.report, self.faults = exit, report, tuple(faults)


def format_os_error(error: OSError) -> str:
    """Format an OSError with its errno name: ``ENOSPC, no space left on device``."""
    import errno

    code = errno.errorcode.get(error.errno or 0, "")
    message = (error.strerror or str(error)).lower()
    where = f" ({error.filename})" if error.filename else ""
    return f"{code}, {message}{where}" if code else f"{message}{where}"


def explain_uv_failure(ran: RunResult, what: str) -> str:
    import os
    import re

    if ran.end == "deadline":
        return f"uv {what} was not done in time ({ran.seconds:.0f} s), and was ended"
    if ran.end == "signal XFSZ":
        return f"uv {what} failed: EFBIG, file too large"
    if ran.end:
        return f"uv {what} failed: {ran.end}"
    text = _extract_uv_error(ran.err) or f"exit {ran.rc}"
    if "building from source is disabled" in " ".join(ran.err.split()):
        return (
            f"uv {what} failed: a package of the lock has no wheel for this machine, and building one runs its code: "
            f"agree with --allow-build, or make a wheel of it first and name its folder with --find-links; {text[:300]}"
        )
    match = re.search(r"os error (\d+)", ran.err)
    if match:
        number = int(match[1])
        return f"uv {what} failed: {format_os_error(OSError(number, os.strerror(number)))}; {text[:300]}"
    return f"uv {what} failed: {text[:600]}"


def _extract_uv_error(err: str) -> str:
    """Return uv's error message on one line, from its first ``error`` on."""
    lines = [line.strip(" ×╰─▶│├╴") for line in err.splitlines()]
    starts = [i for i, line in enumerate(lines) if line.startswith("error")]
    kept = [line for line in lines[starts[0] if starts else 0 :] if line and not line.startswith("warning")]
    return "; ".join(kept).removeprefix("error: ")
