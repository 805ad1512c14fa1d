"""Undo what a watched process did to files: its journal says which it made, and keeps those that it was about to change."""

import json
import os
import shutil
from typing import Any

from gpuready.system.file_contents import read_text_file

MAX_JOURNAL = 64 << 20


def restore_files(journal: str, folder: str = "") -> list[str]:
    """Put files back as they were, and remove those that were made; return a sentence for each that could not be.

    What was made below ``folder``, the current one unless given, goes with all that it holds: libraries also write without Python. Elsewhere, as in caches, only what
    the journal names goes, since others may write there too.
    """
    text = read_text_file(journal, MAX_JOURNAL) or ""
    rows = [json.loads(line) for line in text.splitlines() if line.endswith("]")]
    folder, wrong = folder or os.getcwd(), []
    for row in reversed(rows):
        try:
            _undo(folder, *row)
        except OSError as error:
            wrong.append(f"{row[1]} was changed by the script, and could not be put back: {error.strerror}")
    return wrong


def _undo(folder: str, what: str, path: str, copy: str = "", *_: Any) -> None:
    if what == "kept":
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        shutil.copy2(copy, path)
    elif what == "moved":
        if os.path.isdir(copy) and not os.path.lexists(path):
            os.rename(copy, path)
    elif os.path.isdir(path) and not os.path.islink(path):
        if path.startswith(folder + os.sep):
            shutil.rmtree(path)
        elif not os.listdir(path):
            os.rmdir(path)
    elif os.path.lexists(path):
        os.unlink(path)
