"""The variables of a fix as a shell file that is sourced before a job; what it replaces can be put back."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

from gpuready.apply.fix_record import FixState
from gpuready.system import durable_files, file_contents

FILE_NAME = "gpuready-env.sh"
_HEADER = "# Written by `gpuready fix`: source this file in the shell that starts the job."


class SettingsFile:
    """The settings file of one environment, or of a folder without one; its text before the last change is in the user's record."""

    def __init__(self, state: FixState):
        self.state = state

    def write(self, path: str, variables: Mapping[str, str], unset: Iterable[str]) -> None:
        """Add these settings to those of the file. OSError where it cannot be written."""
        before = file_contents.read_text_file(path)
        self.state.save(settings_path=path, settings_before=before)
        lines = {_line_name(line): line for line in (before or _HEADER).splitlines()}
        lines |= {name: f"export {name}={shlex.quote(value)}" for name, value in variables.items()}
        lines |= {name: f"unset {name}" for name in unset}
        self.state.journal.record_step("settings", path=path, undo=["gpuready", "fix", "--undo"])
        durable_files.replace_file(path, "\n".join(lines.values()) + "\n")

    def undo(self) -> str:
        """Put back the file before the last change, and return its path; empty where none was made."""
        record = self.state.read()
        if not record.settings_path:
            return ""
        if record.settings_before is None:
            durable_files.remove_file(record.settings_path)
        else:
            durable_files.replace_file(record.settings_path, record.settings_before)
        self.state.journal.try_record_step("settings-undone", path=record.settings_path)
        self.state.save(settings_path="", settings_before=None)
        return record.settings_path


def _line_name(line: str) -> str:
    """Return the variable that a line sets or unsets, else the line itself."""
    words = line.split(maxsplit=1)
    return words[1].partition("=")[0] if len(words) == 2 and words[0] in ("export", "unset") else line
