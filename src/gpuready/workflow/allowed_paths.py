"""Restrict the paths that clients of a server may name; Refused for any path outside the allowed folders."""

from collections.abc import Callable, Sequence

from gpuready import system
from gpuready.probe.target_environment import find_named_path
from gpuready.system.path_allowlist import PathAllowlist
from gpuready.workflow import refusal
from gpuready.workflow.machine_facts import is_machine_file
from gpuready.workflow.refusal import Refused


class AllowedPaths:
    """The folders in which clients may name files, and the environment used where none is named."""

    def __init__(self, roots: Sequence[str], python: str | None = None):
        self.python = python
        try:
            if python and not _is_there(python):
                raise Refused(f"--python {python}: there is no such file or folder; name an environment")
            self.fence = PathAllowlist(roots)
        except system.AccessError as error:
            raise Refused(f"--root {error}") from None

    def restrict_named_files(self) -> None:
        """Apply the fence also to files that other files name."""
        refusal.set_fence(self.fence)

    def check_file(self, path: str) -> str:
        return self._check_path(self.fence.check_file, path)

    def check_log(self, path: str) -> str:
        return self._check_path(self.fence.check_log, path)

    def check_folder(self, path: str) -> str:
        return self._check_path(self.fence.check_folder, path)

    def check_machine_name(self, name: str) -> str:
        """Check ``on``: the name of a GPU, or a recording in an allowed folder."""
        return self.check_file(name) if is_machine_file(name) else name

    def check_environment(self, path: str) -> str:
        """Check a virtual environment. An interpreter path is not accepted: it would be executed."""
        self.check_folder(path)
        try:
            status = system.LiveHost().stat_path(path)
        except system.AccessError as error:
            raise Refused(f"{path} cannot be seen: {error}") from None
        if status is None or status["kind"] != "dir":
            raise Refused(f"{path} is not the folder of an environment")
        return path

    def check_model(self, name: str) -> str:
        """Check a model: a name, or a file or folder inside. A name that matches nothing inside stays a name."""
        known = name.endswith((".json", ".yml", ".yaml", ".py"))
        if known:
            return self.check_file(name)
        if name.startswith(("/", "~", ".")) or ".." in name.split("/"):
            return self.check_folder(name)
        return name  # a link of that name that leads outside is not read: host_for_named_files() is fenced

    def _check_path(self, check: Callable[[str], str], path: str) -> str:
        try:
            return check(path)
        except system.AccessError as error:
            raise Refused(f"{path[:200]} {error}") from None


def _is_there(python: str) -> bool:
    host = system.LiveHost()
    return host.stat_path(find_named_path(host, python)) is not None
