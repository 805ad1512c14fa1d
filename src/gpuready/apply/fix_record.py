"""What the last fix of an environment did, in the user's own state folder: the only thing that a recovery or an undo believes.

    STATE/gpuready/fixes/HASH/record.json   FixRecord: the token that names the copy, the phase, the settings file before the change
    STATE/gpuready/fixes/HASH/journal.jsonl what was done, step by step

STATE is XDG_STATE_HOME or ~/.local/state; HASH is of the environment's path. Nobody else can write there, or foresee a token.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from gpuready.apply.generation import InstallJournal
from gpuready.model import Record
from gpuready.model.validation import parse_record
from gpuready.system import AccessError, HostAccess, durable_files, file_contents
from gpuready.system.own_folders import make_state_folder
from gpuready.system.process.runner import unredacted_variables

DRAFTING, EXCHANGING, COPYING, DONE, UNDOING, COPYING_BACK = (
    "draft",
    "exchange",
    "in-place",
    "done",
    "undo",
    "undo-in-place",
)


class FixRecord(Record):
    """One environment. ``token`` names the copy beside it that ``phase`` is about; empty where there is none."""

    path: str
    token: str = ""
    phase: str = ""
    previous: str = ""  # the copy before that one, kept until the new one is published
    rubbish: tuple[str, ...] = ()  # copies that can be removed
    settings_path: str = ""
    settings_before: str | None = None  # None where there was no such file
    written: tuple[str, ...] = ()  # of the record of a settings file: hashes of what it may have


class FixState:
    """The user's own folder for one environment, or for the settings of a folder without one."""

    def __init__(self, host: HostAccess, path: str):
        """ValueError where the user has no state folder."""
        self.path = path
        name = hashlib.sha256(os.fsencode(path)).hexdigest()[:32]
        try:
            self.folder = make_state_folder(unredacted_variables(host), "fixes", name)
        except AccessError as error:
            raise ValueError(
                f"gpuready fix keeps its way back in your state folder, and there is none: {error}; set XDG_STATE_HOME"
            ) from None
        self.file = f"{self.folder}/record.json"
        self.journal = InstallJournal(self.folder, host.get_wall_time)

    def read(self) -> FixRecord:
        """Return the record; an empty one where nothing is known of this environment."""
        try:
            found = parse_record(FixRecord, json.loads(file_contents.read_text_file(self.file) or "{}"))
        except (ValueError, RecursionError):
            return FixRecord(self.path)
        return found if found.path == self.path else FixRecord(self.path)

    def save(self, **changes: Any) -> FixRecord:
        """Change the record on disk, and return it."""
        record = self.read().replace(**changes)
        durable_files.replace_file(self.file, json.dumps(record.to_json()), 0o600)
        return record


FILE_NAME = "gpuready-env.sh"
_HEADER = "# Written by `gpuready fix`: source this file in the shell that starts the job."


class SettingsFile:
    """The settings file of one environment, or of a folder without one; its text before the last change is in the user's record."""

    def __init__(self, host: HostAccess, state: FixState):
        self.host, self.state = host, state

    def read_own(self, path: str) -> str | None:
        """Return the text that this user's gpuready wrote; None where there is no file. ValueError where it is a link, or of another."""
        text = file_contents.read_unlinked_text(path)
        if text is None:
            return None
        if not text.startswith(_HEADER) or _hash(text) not in FixState(self.host, path).read().written:
            raise ValueError(f"{path} is not as gpuready fix wrote it for you: look at it, and move it away first")
        return text

    def write(self, path: str, variables: Mapping[str, str], unset: Iterable[str]) -> None:
        """Add these settings to those of the file. OSError where it cannot be written, ValueError where it is not ours."""
        before = self.read_own(path)
        self.state.save(settings_path=path, settings_before=before)
        lines = {_line_name(line): line for line in (before or _HEADER).splitlines()}
        lines |= {name: f"export {name}={shlex.quote(value)}" for name, value in variables.items()}
        lines |= {name: f"unset {name}" for name in unset}
        self.state.journal.record_step("settings", path=path, undo=["gpuready", "fix", "--undo"])
        text = "\n".join(lines.values()) + "\n"
        FixState(self.host, path).save(written=(_hash(before or ""), _hash(text)))
        durable_files.replace_file(path, text)

    def undo(self) -> str:
        """Put back the file before the last change, and return its path; empty where none was made."""
        record = self.state.read()
        if not record.settings_path:
            return ""
        self.read_own(record.settings_path)
        if record.settings_before is None:
            durable_files.remove_file(record.settings_path)
        else:
            durable_files.replace_file(record.settings_path, record.settings_before)
        self.state.journal.try_record_step("settings-undone", path=record.settings_path)
        self.state.save(settings_path="", settings_before=None)
        return record.settings_path


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _line_name(line: str) -> str:
    """Return the variable that a line sets or unsets, else the line itself."""
    words = line.split(maxsplit=1)
    return words[1].partition("=")[0] if len(words) == 2 and words[0] in ("export", "unset") else line
