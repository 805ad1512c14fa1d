"""Why an install failed, in one sentence; disk errors by their errno name."""

import errno
import re
from collections.abc import Sequence

from gpuready.model import Report
from gpuready.model.plan import InstallFault


class InstallFailed(Exception):
    """The install failed and the old environment is unchanged. ``exit``: 1 not fit, 2 could not be made."""

    def __init__(self, message: str, exit: int = 2, report: Report | None = None, faults: Sequence[InstallFault] = ()):
        super().__init__(message)
        self.exit, self.report, self.faults = exit, report, tuple(faults)


def format_os_error(error: OSError) -> str:
    """Format an OSError with its errno name: ``ENOSPC, no space left on device``."""
    code = errno.errorcode.get(error.errno or 0, "")
    message = (error.strerror or str(error)).lower()
    where = f" ({error.filename})" if error.filename else ""
    return f"{code}, {message}{where}" if code else f"{message}{where}"


def suggest_missing_package(error: str) -> str:
    """What to do about ``ModuleNotFoundError: No module named 'kite'``; a part of a package (``kite.wing``) no other one brings."""
    found = re.search(r"No module named '(\w{1,100})'", error)
    if not found:
        return ""
    name = found[1].replace("_", "-")
    return f"; nothing in the plan brings it: requirements of your own that name package.{name} do (--contract FILE)"
