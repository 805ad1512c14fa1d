"""A fence for a face that reads files for strangers: every path that they name is held to it, with a refusal in one sentence."""

from __future__ import annotations

from gpuready import system
from gpuready.system.fence import Fence
from gpuready.workflow import refusal
from gpuready.workflow.refusal import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Yard:
    """The folders that a stranger may name files in, and the environment that is meant where none is named."""

    def __init__(self, roots: Sequence[str], python: str | None = None):
        self.python = python
        try:
            self.fence = Fence(roots)
        except system.Blind as blind:
            raise Refused(f"--root {blind}") from None

    def close(self) -> None:
        """From here on, files that other files name are held to the fence too."""
        refusal.fence(self.fence)

    def file(self, path: str) -> str:
        return self._held(self.fence.file, path)

    def log(self, path: str) -> str:
        return self._held(self.fence.log, path)

    def folder(self, path: str) -> str:
        return self._held(self.fence.folder, path)

    def machine(self, name: str) -> str:
        """What ``on`` takes: the name of a GPU, or a recording inside."""
        from gpuready.workflow.looking import is_file

        return self.file(name) if is_file(name) else name

    def environment(self, path: str) -> str:
        """A virtual environment inside. A script is not taken: it would be started to be asked."""
        self.folder(path)
        try:
            status = system.Live().stat(path)
        except system.Blind as blind:
            raise Refused(f"{path} cannot be seen: {blind}") from None
        if status is None or status["kind"] != "dir":
            raise Refused(f"{path} is not the folder of an environment")
        return path

    def model(self, name: str) -> str:
        """A model by its name, or a file or a folder inside. A name that leads to nothing inside stays a name."""
        known = name.endswith((".json", ".yml", ".yaml", ".py"))
        if known:
            return self.file(name)
        if name.startswith(("/", "~", ".")) or ".." in name.split("/"):
            return self.folder(name)
        return name  # should a link of that name lead out, the door for named files sees nothing there

    def _held(self, check: Callable[[str], str], path: str) -> str:
        try:
            return check(path)
        except system.Blind as blind:
            raise Refused(f"{path[:200]} {blind}") from None
