"""A package that fails while it is imported: its releases and those beside it do not fit.

  File "/home/me/train.py", line 1, in <module>
    from unsloth import FastLanguageModel
  File "/venv/lib/python3.12/site-packages/unsloth/models/rl.py", line 854, in patch_functions
IndexError: list index out of range
"""

from __future__ import annotations

from itertools import pairwise

from gpuready.diagnose.origin import REMOTE_CODE, USER, find_origin, names_environment, package_of_frame
from gpuready.diagnose.version_conflict import VersionConflict
from gpuready.logs.lazy_regex import LazyRegex
from gpuready.logs.logged_exception import LoggedException, StackFrame

_IMPORT = LazyRegex(r"\s*(?:from ([\w.]{1,160}) import |import ([\w.]{1,160}))")
_NOT_OF_RELEASES = ("filenotfounderror", "permissionerror", "memoryerror", "oserror", "keyboardinterrupt", "systemexit", "timeouterror",
                    "modulenotfounderror", "importerror", "syntaxerror", "indentationerror")  # fmt: skip
"""Types that say something else, or that are read as what is missing."""


def find_import_conflict(failure: LoggedException) -> VersionConflict | None:
    """The conflict where a package fails while it is imported: nobody has used it yet, so only what is installed can be at fault."""
    if failure.short_type.lower() in _NOT_OF_RELEASES or find_origin(failure).kind not in ("package", "torch"):
        return None
    if names_environment(failure.message):
        return None
    packages = [package_of_frame(frame) for frame in failure.frames]
    innermost = next((package for package in reversed(packages) if package), "")
    for (outer, inner), who, package in zip(pairwise(failure.frames), packages, packages[1:], strict=False):
        if package not in ("", USER, REMOTE_CODE) and _enters_module(outer, inner, who):
            return VersionConflict(innermost, USER, _imported_package(outer) or package, "import")
    return None


def _enters_module(outer: StackFrame, inner: StackFrame, who: str) -> bool:
    """Whether a frame imports what the next one runs; a prompt shows no code."""
    return bool(_IMPORT.match(outer.code)) or (who == USER and not outer.code and inner.function == "<module>")


def _imported_package(frame: StackFrame) -> str:
    """``from unsloth.models import x`` -> unsloth; empty for a relative import."""
    found = _IMPORT.match(frame.code)
    return (found[1] or found[2]).partition(".")[0] if found else ""
