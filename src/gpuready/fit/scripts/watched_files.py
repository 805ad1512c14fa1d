"""Notes every file that a watched script makes, and keeps a copy of those that it is about to change. Runs in the target environment.

Python tells of each opened, renamed and removed file before it happens (audit hooks). What a library writes without Python is not seen.
"""

import json
import os
import shutil
import sys

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
LARGEST_COPY = 4 << 30
CHANGES = {
    "os.mkdir": ((0, 2),),
    "os.remove": ((0, 1),),
    "os.rename": ((0, 2), (1, 3)),
    "os.truncate": ((0, None),),
    "os.rmdir": ((0, 1),),
    "os.link": ((1, 3),),
    "os.symlink": ((1, 2),),
    "shutil.move": ((0, None),),
}
"""Which arguments of an event name what is changed, and the open folder that a name is relative to."""


class WatchedFiles:
    """``journal`` has a line for each file: it was made, or is kept as a copy."""

    def __init__(self, journal, backups):
        self.journal, self.backups, self.seen, self.busy = journal, backups, set(), False
        self.file = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def hook(self, event, args):
        if self.busy:
            return
        self.busy = True
        try:
            if event == "open" and isinstance(args[2], int) and args[2] & WRITING and isinstance(args[0], (str, bytes)):
                self.note(args[0])
            if event == "os.rename" and self.note_moved_folder(
                full_path(args[0], args[2]), full_path(args[1], args[3])
            ):
                return
            for at, folder in CHANGES.get(event, ()):
                self.note(
                    full_path(args[at], -1 if folder is None else args[folder]),
                    "folder" if event == "os.mkdir" else "made",
                )
        finally:
            self.busy = False

    def note(self, path, what="made"):
        """Note a file before it is changed."""
        path = os.path.abspath(os.fsdecode(path))
        if path in self.seen or path.startswith(("/dev/", "/proc/", self.backups + os.sep)):
            return
        self.seen.add(path)
        if not os.path.lexists(path):
            self.write(what, path)
        elif os.path.isfile(path) and not os.path.islink(path) and what == "made":
            self.keep(path)

    def note_moved_folder(self, source, target):
        """A folder that was there before is moved back; return whether this is one."""
        source, target = (os.path.abspath(os.fsdecode(path)) for path in (source, target))
        if not os.path.isdir(source) or os.path.islink(source) or source in self.seen:
            return False
        self.write("moved", source, target)
        return True

    def keep(self, path):
        if os.path.getsize(path) > LARGEST_COPY:
            raise PermissionError(f"{path} is large, and would be changed: not while the script is watched")
        copy = f"{self.backups}/{len(self.seen)}"
        shutil.copy2(path, copy)
        self.write("kept", path, copy)

    def write(self, *row):
        os.write(self.file, (json.dumps(row) + "\n").encode())


def full_path(name, folder):
    """Return the path of a name or an open file, relative to an open folder where one is given."""
    if isinstance(name, int):
        return os.readlink(f"/proc/self/fd/{name}")
    return os.path.join(os.readlink(f"/proc/self/fd/{folder}"), os.fsdecode(name)) if folder >= 0 else name


def watch_files(journal, backups):
    sys.addaudithook(WatchedFiles(journal, backups).hook)
