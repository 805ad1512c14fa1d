"""A log in lower case: give structure its capitals back, so that the readers of tracebacks and exits know it again.

Patterns ignore letter case by themselves. Only a log without a single capital is changed.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Sequence

from gpuready.logs.lazy_regex import LazyRegex

_LOWERED = LazyRegex(
    r"traceback \(most recent|file \"[^\"]{1,300}\", line|[a-z](?:error|exception): |nccl (?:warn|info)|\bcuda\b|^\s{0,8}killed\b|root cause \(first|watchdog caught|worknccl\("
)
"""What nobody writes in lower case."""

_PHRASES = (
    "Traceback (most recent call last)", "Exception Group Traceback", "During handling of the above exception",
    "The above exception was the direct cause of", 'File "', "NCCL WARN", "NCCL INFO", "Root Cause (first observed failure)", "Failures:",
    "Other Failures:", "WorkNCCL(SeqNum=", "OpType=", "NumelIn=", "NumelOut=", "Watchdog caught", "[PG ID ", "PG GUID", "[Rank ", "Rank ",
    "Killed", "Segmentation fault", "Aborted", "Bus error", "Hangup", "Fatal Python error", "MainThread", "Exception ignored in", "OMP: Error",
    "Sending process ", "Killing subprocess", "NVRM: Xid", "Out of memory: Killed process", "Duplicate GPU detected", "Process ", "Thread ",
    "Connected all", "Init COMPLETE", "Trees [", "Channel ", "Ranks ", "SIGKILL", "SIGTERM", "SIGSEGV", "SIGABRT", "SIGBUS", "SIGHUP",
    "SIGINT", "RANK ", "PID ", "RUNNING AT", "Cell In[", "CMake Error",
)  # fmt: skip
_OTHER_NAMES = (
    "OutOfMemoryError", "ChildFailedError", "DistBackendError", "DistNetworkError", "DistStoreError", "CalledProcessError",
    "ProcessRaisedException", "ProcessExitedException", "AcceleratorError", "RayActorError", "RayTaskError", "ActorDiedError", "RemoteTraceback",
    "UnpicklingError", "HFValidationError", "RemoteEntryNotFoundError", "LocalEntryNotFoundError", "GatedRepoError", "JSONDecodeError",
)  # fmt: skip
_NAMES = {
    name.lower(): name
    for name in (*dir(builtins), *_OTHER_NAMES)
    if name.endswith(("Error", "Exception", "Interrupt", "Warning"))
}
_TABLE = {phrase.lower(): phrase for phrase in _PHRASES}
_PHRASE = LazyRegex(
    "(?<![a-z_])(?:"
    + "|".join(p.lower().replace("(", r"\(").replace(")", r"\)").replace("[", r"\[") for p in _PHRASES)
    + ")"
)
_NAME = LazyRegex(r"(?<![a-z_])([a-z_]{3,60}?)(error|exception|interrupt|warning)(?=[:(]|$)")
_BARE = LazyRegex(r"^(\s{0,40})exception(?=: )")
_LEVEL = LazyRegex(r"(?:^|(?<=\d )|(?<=\[)|(?<=- )|(?<=\| ))(?:error|warning|info|critical|debug)(?=[ :|\]])")
_GLOG = LazyRegex(r"^(\[rank\d{1,6}\]:)?(\[?)([ewif])(?=\d{4} \d\d:)|\[([ewif])(?=\d{0,4} \S{1,200}:\d{1,7}\])")


def is_lower_case(sample: Sequence[str]) -> bool:
    """Whether a log has no capital, and words that have one wherever they are written."""
    return all(text == text.lower() for text in sample) and any(_LOWERED.search(text) for text in sample)


def restore_case(text: str) -> str:
    """Write phrases, levels and the names of exceptions as their emitters do."""
    text = _PHRASE.compiled.sub(lambda match: _TABLE[match[0]], text)
    text = _LEVEL.compiled.sub(lambda match: match[0].upper(), text)
    text = _GLOG.compiled.sub(lambda match: match[0].upper().replace("RANK", "rank"), text)
    return _NAME.compiled.sub(_restore_name, _BARE.sub(r"\1Exception", text))


def _restore_name(match: re.Match[str]) -> str:
    known = _NAMES.get(match[0])
    return known or match[1][:1].upper() + match[1][1:] + match[2].capitalize()
