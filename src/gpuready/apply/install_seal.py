"""What this user's gpuready knows of its installs, in his state folder: an environment that came from elsewhere proves nothing about itself.

    STATE/gpuready/installs/HASH   HASH is of a manifest; the file was written when all other files of its environment were there
    STATE/gpuready/wheels/HASH     HASH is of a file that differs from the RECORD in its wheel, which was fetched anew and had it again
    STATE/gpuready/imports/HASH    HASH is of all that an import rests on (``describe_import``); the file has the libraries of the system that it loaded

A manifest has the hashes of the lock, of every RECORD and of every file without one, so a copy of the environment is as good as the first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from hashlib import sha256

from gpuready import __version__
from gpuready.system import AccessError, HostAccess, durable_files, file_contents
from gpuready.system.own_folders import files_beyond_newest, find_state_folder, make_state_folder
from gpuready.system.process.runner import unredacted_variables

MANIFESTS, WHEELS, IMPORTS = "installs", "wheels", "imports"
IMPORT_AGE_S = 7 * 86400.0
"""How long the success of an import counts."""
MAX_IMPORTS = 200
SESSION_VARIABLES = (
    "PWD", "OLDPWD", "SHLVL", "_", "COLUMNS", "LINES", "TERM", "PS1", "SSH_TTY", "SSH_CLIENT", "SSH_CONNECTION",
    "SSH_AUTH_SOCK", "TMUX", "TMUX_PANE", "XDG_SESSION_ID",
)  # fmt: skip
"""Variables that say from where a command is given, and decide no import in the isolated mode of Python."""


def write_seal(host: HostAccess, text: str, folder: str = MANIFESTS, content: str = "") -> str:
    """Remember a text, such as that of a manifest before it is written; return why that cannot be done, empty where it is."""
    try:
        path = make_state_folder(unredacted_variables(host), folder)
        durable_files.replace_file(f"{path}/{sha256(text.encode()).hexdigest()}", content, 0o600)
        for old in files_beyond_newest(path, MAX_IMPORTS) if folder == IMPORTS else ():
            durable_files.remove_file(old)
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


def find_seal(host: HostAccess, text: str, folder: str) -> str | None:
    """Return the file that remembers a text; None where there is none."""
    try:
        path = f"{find_state_folder(unredacted_variables(host), folder)}/{sha256(text.encode()).hexdigest()}"
    except AccessError:
        return None
    return None if file_contents.file_size(path) is None else path


def describe_import(host: HostAccess, files: object, python: str, modules: Sequence[str]) -> str:
    """Everything that decides an import of files that are as their RECORDs say, but for the libraries of the system."""
    variables = sorted(item for item in unredacted_variables(host).items() if item[0] not in SESSION_VARIABLES)
    return json.dumps([__version__, host.get_hostname(), host.get_uname(), files, python, modules, variables])


def remember_import(host: HostAccess, what: str, root: str, libraries: Iterable[str]) -> None:
    """Remember that an import ended well, with the libraries that it loaded from outside of the environment."""
    used = {path: file_contents.identify_file(path) for path in libraries if not path.startswith(f"{root}/")}
    write_seal(host, what, IMPORTS, json.dumps({path: identity for path, identity in used.items() if identity}))


def is_import_known(host: HostAccess, what: str) -> bool:
    """Whether this user's gpuready imported the same lately, and the libraries that it loaded are still the same files."""
    path = find_seal(host, what, IMPORTS)
    if path is None or not file_contents.has_changed_since(path, host.get_wall_time() - IMPORT_AGE_S):
        return False
    try:
        used = json.loads(file_contents.read_text_file(path) or "")
        return bool(used) and all(file_contents.identify_file(name) == identity for name, identity in used.items())
    except (ValueError, AttributeError):
        return False
