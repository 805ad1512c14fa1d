"""Gather the flight recorders' dumps of all ranks beside their logs, where ``diagnose`` reads them.

Standard library only, Python 3.8 and newer: the first half runs beside the ranks.
"""

import base64
import os
from collections.abc import Mapping
from contextlib import suppress

FOLDER = "flight-recorder"
PLACES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
"""torch's name of today, and of before, which it warns of: read where the user has set it, never set."""
SIZE = "TORCH_FR_BUFFER_SIZE"
MAX_DUMP_BYTES = 4 << 20


def make_folder(environ: Mapping[str, str]) -> None:
    """Make the folder that the variables name: torch does not."""
    for name in PLACES:
        with suppress(OSError):
            if environ.get(name):
                os.makedirs(os.path.dirname(environ[name]), exist_ok=True)


def read_dump(environ: Mapping[str, str], rank: int) -> str:
    """Return what a rank's recorder has written, in base64; empty if nothing, or too much."""
    for name in PLACES:
        try:
            with open(f"{environ[name]}{rank}", "rb") as file:
                data = file.read(MAX_DUMP_BYTES + 1)
        except (KeyError, OSError):
            continue
        if data and len(data) <= MAX_DUMP_BYTES:
            return base64.b64encode(data).decode("ascii")
    return ""


def keep_dump(logs: str, rank: int, text: str) -> None:
    """Write a dump of another node beside the logs; one that is there already stays."""
    path = os.path.join(logs, FOLDER, f"rank_{rank}")
    with suppress(OSError, ValueError):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "xb") as file:
            file.write(base64.b64decode(text, validate=True))
