"""What this user's gpuready knows of its installs, in his state folder: an environment that came from elsewhere proves nothing about itself.

    STATE/gpuready/installs/HASH   HASH is of a manifest; the file was written when all other files of its environment were there
    STATE/gpuready/wheels/HASH     HASH is of a file that differs from the RECORD in its wheel, which was fetched anew and had it again

A manifest has the hashes of the lock, of every RECORD and of every file without one, so a copy of the environment is as good as the first.
"""

from hashlib import sha256

from gpuready.system import AccessError, HostAccess, durable_files, file_contents
from gpuready.system.own_folders import find_state_folder, make_state_folder
from gpuready.system.process.runner import unredacted_variables

MANIFESTS, WHEELS = "installs", "wheels"


def write_seal(host: HostAccess, text: str, folder: str = MANIFESTS) -> str:
    """Remember a text, such as that of a manifest before it is written; return why that cannot be done, empty where it is."""
    try:
        path = make_state_folder(unredacted_variables(host), folder)
        durable_files.replace_file(f"{path}/{sha256(text.encode()).hexdigest()}", "", 0o600)
    except (AccessError, OSError) as error:
        return str(error)
    return ""


def read_seal(host: HostAccess, manifest: str) -> float | None:
    """Return when this user's gpuready wrote a manifest; None where it did not."""
    try:
        folder = find_state_folder(unredacted_variables(host), MANIFESTS)
        return file_contents.get_change_time(f"{folder}/{file_contents.hash_file_contents(manifest)}")
    except (AccessError, OSError):
        return None


def has_seal(host: HostAccess, text: str, folder: str) -> bool:
    """Whether a text is remembered."""
    try:
        path = f"{find_state_folder(unredacted_variables(host), folder)}/{sha256(text.encode()).hexdigest()}"
    except AccessError:
        return False
    return file_contents.file_size(path) is not None
