"""Which manifests this user's gpuready has written: an environment that came from elsewhere proves nothing about itself.

    STATE/gpuready/installs/HASH   HASH is of a manifest; the file was written when all other files of its environment were there

A manifest has the hashes of the lock, of every RECORD and of every file without one, so a copy of the environment is as good as the first.
"""

from __future__ import annotations

from hashlib import sha256

from gpuready.system import AccessError, HostAccess, durable_files, file_contents
from gpuready.system.own_folders import find_state_folder, make_state_folder
from gpuready.system.process.runner import unredacted_variables

FOLDER = "installs"


def write_seal(host: HostAccess, text: str) -> str:
    """Remember the text of a manifest, before it is written; return why that cannot be done, empty where it is."""
    try:
        folder = make_state_folder(unredacted_variables(host), FOLDER)
        durable_files.replace_file(f"{folder}/{sha256(text.encode()).hexdigest()}", "", 0o600)
    except (AccessError, OSError) as error:
        return str(error)
    return ""


def read_seal(host: HostAccess, manifest: str) -> float | None:
    """Return when this user's gpuready wrote a manifest; None where it did not."""
    try:
        folder = find_state_folder(unredacted_variables(host), FOLDER)
        return file_contents.get_change_time(f"{folder}/{file_contents.hash_file_contents(manifest)}")
    except (AccessError, OSError):
        return None
