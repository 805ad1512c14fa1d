"""Small files of compiled data in the user's cache, each by the hash of what it was made of."""

from __future__ import annotations

from gpuready.system.durable_files import unlink_quietly, write_then_rename
from gpuready.system.host_access import AccessError
from gpuready.system.own_folders import files_beyond_newest, make_cache_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_FILES = 4


class CompiledCache:
    """Loads and saves bytes by name. Where there is no cache nothing is kept, and nothing fails."""

    def __init__(self, variables: Mapping[str, str], folder: str):
        self._variables, self._folder = variables, folder

    def load(self, name: str) -> bytes | None:
        try:
            with open(f"{make_cache_folder(self._variables, self._folder)}/{name}", "rb") as file:
                return file.read()
        except (OSError, AccessError):
            return None

    def save(self, name: str, data: bytes) -> None:
        import os

        try:
            folder = make_cache_folder(self._variables, self._folder)
            write_then_rename(f"{folder}/.{name}.{os.urandom(8).hex()}", f"{folder}/{name}", data, 0o600)
        except (OSError, AccessError):
            return
        for path in files_beyond_newest(folder, MAX_FILES):
            unlink_quietly(path)
