"""The exception with which the last lines of a process end, as its launcher and the screens quote it."""

import json
import re
from collections.abc import Reversible

NATIVE_STACK = ("frame #", "<omitting python frames>", "Exception raised from ")
"""How the lines of a native stack begin, below what c10d says: ``frame #44: __libc_start_main + 0x85``"""
RANK_TAG = re.compile(r"^(?:\[rank\d+\]:\s?)+")
"""``[rank0]: ``, which torch writes before the lines of a traceback, once for each group that was made."""
_ERROR = re.compile(r"[\w.]*(?:Error|Exception)\b(?! in thread| ignored)|[a-z]\w*(?:\.\w+)*\.error: ")
"""``ValueError: bad shard``, ``zlib.error: Error -3 while decompressing data``"""
_NAMED_ERROR = re.compile(r"(?:(?:[a-z_]\w*\.)*[A-Z]\w*|(?:[a-z_]\w*\.)+\w+)(?:: |$)")
"""``StopTraining: no shard is left``, ``socket.gaierror: [Errno -2] Name or service not known``, below the lines of a traceback"""


def names_error(line: str) -> bool:
    """Whether a line begins with the name of an exception."""
    return bool(_ERROR.match(line)) and not line.startswith(NATIVE_STACK)


def last_error_line(lines: Reversible[str]) -> str:
    """The last line that begins with the name of an exception, without torch's tag, or that has it in JSON."""
    after = ""
    for line in (_read_json_error(RANK_TAG.sub("", line)) for line in reversed(lines)):
        if names_error(line) or (after and line.startswith('  File "')):
            return after if line.startswith("  ") else line
        after = line if _NAMED_ERROR.match(line) else after if line.startswith("    ") else ""
    return ""


def _read_json_error(line: str) -> str:
    """``{"type": "ValueError", "message": "bad shard"}`` as ``ValueError: bad shard``; any other line as it is."""
    if not (line.startswith("{") and '"type"' in line and '"message"' in line):
        return line
    try:
        row = json.loads(line)
        return f"{row['type']}: {' '.join(str(row['message']).split())}"
    except (ValueError, KeyError, RecursionError):
        return line
