"""The variables of a fix as a shell file that is sourced before a job; what it replaces can be put back."""

from __future__ import annotations

import shlex

from gpuready.apply.journal import InstallJournal
from gpuready.system import durable_files, file_contents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuready.system import HostAccess

FILE_NAME = "gpuready-env.sh"
_HEADER = "# Written by `gpuready fix`: source this file in the shell that starts the job."


class SettingsFile:
    """One settings file. ``folder`` holds its path, its text before the last change, and the journal."""

    def __init__(self, host: HostAccess, folder: str, path: str = ""):
        """Without a path: the file that was written last."""
        self.folder, self.saved, self.place = folder, f"{folder}/settings-before", f"{folder}/settings-path"
        self.path = path or file_contents.read_text_file(self.place) or ""
        self.journal = InstallJournal(folder, host.get_wall_time)

    def write(self, variables: Mapping[str, str], unset: Iterable[str]) -> None:
        """Add these settings to those of the file. OSError where it cannot be written."""
        before = file_contents.read_text_file(self.path)
        durable_files.make_folder(self.folder)
        durable_files.remove_file(self.saved)
        durable_files.replace_file(self.place, self.path)
        if before is not None:
            durable_files.replace_file(self.saved, before)
        lines = {_line_name(line): line for line in (before or _HEADER).splitlines()}
        lines |= {name: f"export {name}={shlex.quote(value)}" for name, value in variables.items()}
        lines |= {name: f"unset {name}" for name in unset}
        self.journal.record_step("settings", path=self.path, undo=["gpuready", "fix", "--undo"])
        durable_files.replace_file(self.path, "\n".join(lines.values()) + "\n")

    def undo(self) -> bool:
        """Put back the file before the last change; False where none was made."""
        if file_contents.read_text_file(self.place) is None:
            return False
        saved = file_contents.read_text_file(self.saved)
        if saved is None:
            durable_files.remove_file(self.path)
        else:
            durable_files.replace_file(self.path, saved)
        self.journal.try_record_step("settings-undone", path=self.path)
        durable_files.remove_file(self.place)
        durable_files.remove_file(self.saved)
        return True


def _line_name(line: str) -> str:
    """Return the variable that a line sets or unsets, else the line itself."""
    words = line.split(maxsplit=1)
    return words[1].partition("=")[0] if len(words) == 2 and words[0] in ("export", "unset") else line
