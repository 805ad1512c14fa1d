"""Restrict the paths that clients of a server may name; Refused for any path outside the allowed folders."""

from __future__ import annotations

from gpuready import system
from gpuready.system.fence import Fence
from gpuready.workflow import refusal
from gpuready.workflow.refusal import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Yard:
    """The folders in which clients may name files, and the environment used where none is named."""

    def __init__(self, roots: Sequence[str], python: str | None = None):
        self.python = python
        try:
            self.fence = Fence(roots)
        except system.Blind as blind:
            raise Refused(f"--root {blind}") from None

    def close(self) -> None:
        """Apply the fence also to files that other files name."""
        refusal.fence(self.fence)

    def file(self, path: str) -> str:
        return self._held(self.fence.file, path)

    def log(self, path: str) -> str:
        return self._held(self.fence.log, path)

    def folder(self, path: str) -> str:
        return self._held(self.fence.folder, path)

    def machine(self, name: str) -> str:
        """Check ``on``: the name of a GPU, or a recording in an allowed folder."""
        from gpuready.workflow.looking import is_file

        return self.file(name) if is_file(name) else name

    def environment(self, path: str) -> str:
        """Check a virtual environment. An interpreter path is not accepted: it would be executed."""
        self.folder(path)
        try:
            status = system.Live().stat(path)
        except system.Blind as blind:
            raise Refused(f"{path} cannot be seen: {blind}") from None
        if status is None or status["kind"] != "dir":
            raise Refused(f"{path} is not the folder of an environment")
        return path

    def model(self, name: str) -> str:
        """Check a model: a name, or a file or folder inside. A name that matches nothing inside stays a name."""
        known = name.endswith((".json", ".yml", ".yaml", ".py"))
        if known:
            return self.file(name)
        if name.startswith(("/", "~", ".")) or ".." in name.split("/"):
            return self.folder(name)
        return name  # a link of that name that leads outside is not read: host_for_named_files() is fenced

    def _held(self, check: Callable[[str], str], path: str) -> str:
        try:
            return check(path)
        except system.Blind as blind:
            raise Refused(f"{path[:200]} {blind}") from None
